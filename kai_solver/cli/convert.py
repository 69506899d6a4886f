"""``kai-solver convert``: from any readable form to the project's own, to a KAI snapshot, to Kubernetes YAML."""

import time
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kai_solver.cli.exits import Exit, complain, guarded
from kai_solver.cli.options import AsJson, InputLimit, Instance, Quiet

if TYPE_CHECKING:
    from kai_solver.domain import Snapshot
    from kai_solver.kubeobjects import RawObjects


SUFFIXES = {"": (".json", ".yaml", ".yml", ".zip"), ".zst": (".json", ".yaml", ".yml")}
"""What an output may end with, by what follows it."""


class Form(Enum):
    """What can be written."""

    NATIVE = "native"
    SNAPSHOT = "snapshot"
    KUBERNETES = "kubernetes"


@guarded
def convert(
    instance: Instance,
    output: Annotated[
        Path, typer.Argument(metavar="OUTPUT", help="File to write: .json, .yaml (both also .zst), or .zip.")
    ],
    to: Annotated[
        Form | None,
        typer.Option(
            "--to", metavar="FORM", help="native, snapshot or kubernetes; default: snapshot for .zip, else native."
        ),
    ] = None,
    anonymize: Annotated[bool, typer.Option("--anonymize", help="Replace every name by a hash.")] = False,
    as_of_now: Annotated[
        bool,
        typer.Option(
            "--as-of-now",
            help="Move all times so that the instance's present is now: KAI's tool counts from the clock.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")] = False,
    history: Annotated[
        Path | None,
        typer.Option(
            "--history", metavar="FILE", help="Past usage of the queues, from jobs that ran: CSV, or kubectl's JSON."
        ),
    ] = None,
    mapping: Annotated[
        Path | None,
        typer.Option("--mapping", metavar="FILE", help="With --history: which column says what (kai-history/v1)."),
    ] = None,
    input_limit: InputLimit = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> Exit:
    """Write an instance in another form; nothing that the scheduler uses is lost.

    The end of the output's name chooses JSON, YAML or a zip archive. `.zst` after it compresses.

    \b
    Examples:
      kai-solver convert snapshot.zip cluster.json
      kai-solver convert cluster.yaml snapshot.zip --anonymize
      kai-solver convert case.json objects.yaml --to kubernetes
      kai-solver convert cluster.yaml for-kai.zip --as-of-now
      kai-solver convert cluster.yaml with-usage.yaml --history jobs.csv --mapping columns.yaml
    """
    from kai_solver.cli.documents import deliver, document
    from kai_solver.cli.inputs import parse_limits, tell_notices
    from kai_solver.errors import InputError
    from kai_solver.instances_io import load_instance
    from kai_solver.instances_io.anonymize import anonymize as hash_names
    from kai_solver.instances_io.moments import moved_to
    from kai_solver.instances_io.output import write_bytes

    _check_output(output, force=force)
    form = to or (Form.SNAPSHOT if output.suffix == ".zip" else Form.NATIVE)
    if (form is Form.SNAPSHOT) != (output.suffix == ".zip"):
        is_zip = output.suffix == ".zip"
        problem = "a .zip is always a KAI snapshot" if is_zip else "a KAI snapshot is always a .zip"
        cure = f"Name a {'.yaml or .json' if is_zip else '.zip'} file, or leave --to out"
        raise InputError(problem, file=str(output), field="--to", cure=cure)
    if mapping is not None and history is None:
        raise InputError("says how to read a history", field="--mapping", cure="Name the history: --history FILE")
    limits = parse_limits(input_limit)
    snapshot = load_instance(instance, limits=limits).snapshot
    if history is not None:
        from kai_solver.lab.history import read_history, read_mapping, with_past_usage

        reading = read_mapping(mapping)
        snapshot = with_past_usage(snapshot, read_history(history, reading, limits=limits), reading)
    tell_notices(snapshot, quiet=quiet)
    if as_of_now:
        snapshot = moved_to(snapshot, time.time())
    if anonymize:
        snapshot = hash_names(snapshot)
    write_bytes(_content(snapshot, form, output, quiet=quiet), output)
    notices = [{"kind": notice.kind, "object": notice.object, "text": notice.text} for notice in snapshot.notices]
    members = {"output": str(output), "form": form.value, "anonymized": anonymize, "notices": notices}
    deliver(document("conversion", members), as_json=as_json, output=None)
    return Exit.FINE


def _check_output(output: Path, *, force: bool) -> None:
    from kai_solver.errors import InputError
    from kai_solver.instances_io.output import check_place

    packed = ".zst" if output.suffix == ".zst" else ""
    if not output.name.removesuffix(packed).endswith(SUFFIXES[packed]):
        cure = "Name a file that ends in .json, .yaml, .json.zst, .yaml.zst or .zip"
        raise InputError("does not say in which form to write", file=str(output), cure=cure)
    check_place(output)
    if output.exists() and not force:
        raise InputError("exists", file=str(output), cure="Name another file, or replace this one with --force")


def _content(snapshot: "Snapshot", form: Form, output: Path, *, quiet: bool) -> bytes:
    if form is Form.NATIVE:
        from kai_solver.instances_io import native_from_snapshot

        return _text(native_from_snapshot(snapshot), output)
    if form is Form.SNAPSHOT:
        from kai_solver.instances_io.seated import kai_archive

        return kai_archive(snapshot)
    from kai_solver.kubeobjects import KubeSettings, objects_from_snapshot

    objects = objects_from_snapshot(snapshot, KubeSettings(policy=snapshot.policy))
    return _manifests(objects, snapshot, output, quiet=quiet)


def _manifests(objects: "RawObjects", snapshot: "Snapshot", output: Path, *, quiet: bool) -> bytes:
    """YAML documents, one an object; into JSON a List, as ``kubectl get -o json`` gives it."""
    import yaml

    from kai_solver.domain import Policy
    from kai_solver.kubeobjects import KINDS

    if snapshot.policy != Policy() and not quiet:
        complain("the cluster's policy is not a Kubernetes object and is not written; `--to snapshot` keeps it")
    known = [
        {"apiVersion": kind.api_version, "kind": kind.kind} | dict(entry)
        for kind in KINDS
        for entry in getattr(objects, kind.field)
    ]
    documents = known + [dict(entry) for entry in objects.other]
    if not _is_yaml(output):
        return _text({"apiVersion": "v1", "kind": "List", "items": documents}, output)
    return yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True).encode()


def _text(document: object, output: Path) -> bytes:
    if _is_yaml(output):
        import yaml

        return yaml.safe_dump(document, sort_keys=False, allow_unicode=True).encode()
    import orjson

    return orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"


def _is_yaml(output: Path) -> bool:
    return output.name.removesuffix(".zst").endswith((".yaml", ".yml"))
