#!/bin/sh
# What of the image is Python's, in the folder TARGET, which is to be on PYTHONPATH. PART is `packages`, the locked ones, checked
# by hash (beside them pip's report, TARGET.json), or `kai-solver` itself. The same sources give the same bytes.
#
#   deploy/image/install.sh PART TARGET [PYTHON]
set -eu

source=$(cd "$(dirname "$0")/../.." && pwd)
part=${1:?"usage: install.sh packages|kai-solver TARGET [PYTHON]"}
target=${2:?"usage: install.sh packages|kai-solver TARGET [PYTHON]"}
python=${3:-python3}
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-0}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

pip() {
  "$work/build/bin/python" -m pip --quiet --disable-pip-version-check --no-input "$@"
}

"$python" -m venv "$work/build"
case "$part" in
packages)
  pip install --no-deps --require-hashes --only-binary :all: --no-compile --target "$target" --report "$target.json" \
    -r "$source/requirements/runtime.txt"
  # The client's asynchronous twin is as large as the client, and nothing imports it.
  rm -rf "$target/kubernetes/aio"
  ;;
kai-solver)
  # What builds our wheel is not in the image.
  pip install --no-deps --require-hashes --only-binary :all: -r "$source/requirements/build.txt"
  pip wheel --no-deps --no-build-isolation --wheel-dir "$work" "$source"
  pip install --no-deps --no-compile --target "$target" "$work"/kai_solver-*.whl
  ;;
*)
  echo "there is no part $part" >&2
  exit 2
  ;;
esac

# Commands, and the file that says where a wheel was, name folders of this machine; `python -m kai_solver` needs neither.
rm -rf "$target/bin"
rm -f "$target"/*.dist-info/direct_url.json
for record in "$target"/*.dist-info/RECORD; do
  grep -v -e '^\(\.\./\)*bin/' -e '/direct_url\.json,' -e '^kubernetes/aio/' "$record" > "$work/record"
  cat "$work/record" > "$record"
done
