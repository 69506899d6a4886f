#!/bin/sh
# What the image consists of: the locked packages, checked by hash, and kai-solver itself, in the folder TARGET.
# The image runs it; so do the tests, in an empty environment of a temporary folder.
#
#   deploy/image/install.sh TARGET [PYTHON]
set -eu

source=$(cd "$(dirname "$0")/../.." && pwd)
target=${1:?"usage: install.sh TARGET [PYTHON]"}
python=${2:-python3}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

pip() {
  "$work/build/bin/python" -m pip --quiet --disable-pip-version-check --no-input "$@"
}

# What builds our wheel is not in the image.
"$python" -m venv "$work/build"
pip install --require-hashes --only-binary :all: -r "$source/requirements/build.txt"
pip wheel --no-deps --no-build-isolation --wheel-dir "$work" "$source"

pip install --require-hashes --only-binary :all: --no-compile --target "$target" -r "$source/requirements/runtime.txt"
pip install --no-deps --no-compile --target "$target" "$work"/kai_solver-*.whl

# The client's asynchronous twin is as large as the client, and nobody imports it.
rm -rf "$target/kubernetes/aio"

PYTHONPATH="$target" "$python" -c 'import ortools.sat.python.cp_model, kai_solver.cluster.rest, kai_solver.controller.app; print("kai-solver", kai_solver.__version__)'
