"""``kai-solver shadow``: what kai-solver would have done, beside what the scheduler at work did."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kai_solver.cli.exits import Exit, complain, guarded
from kai_solver.cli.options import AsJson, Budget, Full, Model, Output, Quiet
from kai_solver.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kai_solver.shadow.comparing import Comparison
    from kai_solver.shadow.lines import Line


@guarded
def shadow(
    before: Annotated[
        Path | None,
        typer.Argument(
            metavar="BEFORE", help="A snapshot, or an export of Kubernetes objects: kai-solver decides this one."
        ),
    ] = None,
    after: Annotated[
        Path | None,
        typer.Argument(
            metavar="AFTER", help="A later one of the same cluster: what the scheduler at work did by then."
        ),
    ] = None,
    recording: Annotated[
        list[Path] | None,
        typer.Option(
            "--recording", metavar="PATH", help="Folder or file that a dry run stored (recording.folder); repeatable."
        ),
    ] = None,
    server: Annotated[
        str | None, typer.Option("--server", metavar="URL", help="Controller that records, like http://localhost:8082.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="Bearer token for --server; without one the kubeconfig's."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Look on from here: a dry run on the cluster of the kubeconfig.")
    ] = False,
    lasting: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="With --live: how long, like 10m or 8h; none: until Ctrl-C."),
    ] = None,
    store: Annotated[
        Path | None, typer.Option("--store", metavar="FOLDER", help="With --live: keep the recording in this folder.")
    ] = None,
    kubeconfig: Annotated[str, typer.Option(metavar="FILE", help="With --live: file of the cluster's address.")] = "",
    context: Annotated[str, typer.Option(metavar="NAME", help="With --live: context in the kubeconfig.")] = "",
    scheduler_name: Annotated[
        str, typer.Option(metavar="NAME", help="With --live: pods with this schedulerName are compared.")
    ] = "kai-scheduler",
    node_pool: Annotated[str, typer.Option(metavar="NAME", help="With --live: value of the node pool label.")] = "",
    model: Model = "default",
    budget: Budget = None,
    page: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the report here as well, as one HTML page.")
    ] = None,
    output: Output = None,
    full: Full = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> Exit:
    """Compare what kai-solver would have done with what the scheduler at work did: same, better or worse, by gang.

    It needs one of: two snapshots of a cluster, a recording of a dry run, a controller that records, or --live.

    \b
    Examples:
      kai-solver shadow --live --for 1h --html report.html    nothing is installed, nothing is changed
      kai-solver shadow --server http://localhost:8082        a dry run in the cluster, by kubectl port-forward
      kai-solver shadow --recording decisions/ --json | jq .gangs
      kai-solver shadow at-nine.zip at-ten.zip
    """
    from kai_solver.shadow.comparing import compare
    from kai_solver.shadow.recordings import files_of, read_recording

    given = [before is not None, bool(recording), server is not None, live]
    if sum(given) != 1 or (before is None) != (after is None):
        cure = "Give two snapshots, --recording, --server or --live, and one of them only"
        raise InputError("what is to be compared is not clear", cure=cure)
    if page is not None:
        from kai_solver.instances_io.output import check_place

        check_place(page)
    if before is not None and after is not None:
        found = compare(_of_snapshots(before, after, model, budget, quiet=quiet))
    elif recording:
        found = compare(read_recording(recording))
    elif server is not None:
        from kai_solver.cli.served import fetch
        from kai_solver.shadow.lines import read_lines

        lines = list(read_lines(fetch(server, "/recording", token_file).splitlines(), server))
        if not lines:
            raise InputError("nothing is recorded yet", file=server, cure="Ask again when a cycle has ended")
        found = compare(lines)
    else:
        with _folder(store) as folder:
            chosen = {"kubeconfig": kubeconfig, "context": context, "model": model, "budget": budget}
            chosen |= {"scheduler_name": scheduler_name, "node_pool": node_pool}
            _look_on(folder, lasting, chosen, quiet=quiet)
            if not files_of(folder):
                raise InputError("no cycle ended in this time", cure="Look on for longer: --for 10m")
            found = compare(read_recording([folder]))
    _show(found, page, output, full=full, as_json=as_json)
    return Exit.FINE


def _show(found: "Comparison", page: Path | None, output: Path | None, *, full: bool, as_json: bool) -> None:
    from kai_solver.cli.documents import deliver
    from kai_solver.shadow.reporting import document_of_report, page_of_report, text_of_report

    if deliver(document_of_report(found), as_json=as_json, output=output):
        from kai_solver.cli.console import clean

        typer.echo(clean(text_of_report(found, full=full)))
    if page is not None:
        from kai_solver.instances_io.output import write_bytes

        write_bytes(page_of_report(found).encode(), page)


def _of_snapshots(before: Path, after: Path, model: str, budget: str | None, *, quiet: bool) -> "Iterable[Line]":
    """Decide the first one; the second says what was done."""
    from kai_solver.cli.inputs import read_request
    from kai_solver.cli.solve import decide
    from kai_solver.instances_io import load_instance
    from kai_solver.instances_io.pod_objects import pod_objects
    from kai_solver.modelfiles import load_model
    from kai_solver.shadow.recordings import check_pair, recording_of

    request = read_request(before, load_model(model), budget, None, is_own_first=model == "default")
    later = load_instance(after).snapshot
    check_pair(request.loaded.snapshot, later)
    plan = decide(request, 0, lambda: False, quiet=quiet)
    took_s = plan.timing_s.get("decide", 0.0)
    return recording_of(request.loaded.snapshot, plan, later, took_s, pod_objects(after))


@contextmanager
def _folder(store: Path | None) -> Iterator[Path]:
    if store is not None:
        yield store
        return
    with TemporaryDirectory(prefix="kai-solver-shadow-") as folder:
        yield Path(folder)


def _look_on(folder: Path, lasting: str | None, chosen: dict[str, Any], *, quiet: bool) -> None:
    """A dry run in this process, which stores what it sees in ``folder``."""
    from kai_solver.cli.inputs import parse_span_s
    from kai_solver.cli.interrupt import stop_when_told
    from kai_solver.cluster.rest import connect
    from kai_solver.controller.app import Controller
    from kai_solver.controller.logs import configure_logs
    from kai_solver.controller.settings import load_settings

    seconds = None if lasting is None else parse_span_s(lasting)
    chosen |= dict.fromkeys(("metrics_bind_address", "health_bind_address", "answers_bind_address"), "")
    chosen |= {"dry_run": True, "recording": {"folder": str(folder), "files": 1000}}
    settings = load_settings(log_level="warning", log_format="console", **chosen)
    configure_logs(settings)
    replica = Controller(connect(settings.kubeconfig, settings.context), settings)
    stop_when_told(replica.stop, seconds)
    if not quiet:
        complain(f"looking on{f' for {lasting}' if lasting else ''}; Ctrl-C ends it and reports")
    replica.run()
