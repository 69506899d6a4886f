"""``kai-solver controller``: the scheduler of a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kai_solver.cli.exits import Exit, guarded

if TYPE_CHECKING:
    from kai_solver.controller.settings import ControllerSettings


@guarded
def controller(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="Settings file, YAML; every key has a default (see --show-settings)."
        ),
    ] = None,
    kubeconfig: Annotated[
        str | None,
        typer.Option("--kubeconfig", metavar="FILE", help="Kubeconfig file; none: the pod's service account."),
    ] = None,
    context: Annotated[str | None, typer.Option("--context", metavar="NAME", help="Context in the kubeconfig.")] = None,
    scheduler_name: Annotated[
        str | None, typer.Option("--scheduler-name", metavar="NAME", help="Schedule pods with this schedulerName.")
    ] = None,
    node_pool: Annotated[
        str | None,
        typer.Option("--node-pool", metavar="NAME", help="Value of the node pool label of its nodes and queues."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="Solver model: a name or a TOML file.")
    ] = None,
    dry_run: Annotated[
        bool | None,
        typer.Option("--dry-run", help="Decide and report, but change nothing. For use beside another scheduler."),
    ] = None,
    log_format: Annotated[str | None, typer.Option("--log-format", metavar="FORM", help="json or console.")] = None,
    embedded: Annotated[
        bool,
        typer.Option("--embedded", help="Schedule a cluster in memory with changing work, for a first look."),
    ] = False,
    lasting: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="End after this time, like 60 or 10m; none: when interrupted."),
    ] = None,
    show_settings: Annotated[bool, typer.Option("--show-settings", help="Print all settings and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --show-settings: JSON instead of YAML.")] = False,
) -> Exit:
    """Schedule a Kubernetes cluster: watch it, decide, bind, move, evict.

    A drop-in for KAI's scheduler: the same Queues, PodGroups, labels and annotations. It waits while KAI's own
    scheduler runs under the same name. With --dry-run it may run beside it.

    \b
    Examples:
      kai-solver controller --embedded --for 60               no Kubernetes needed
      kai-solver controller --dry-run --log-format console    what would it do in the current cluster?
      kai-solver controller --config settings.yaml
      kai-solver controller --show-settings > settings.yaml
    """
    from kai_solver.cli.documents import deliver, document
    from kai_solver.cli.inputs import parse_span_s
    from kai_solver.controller.settings import load_settings, settings_text

    seconds = None if lasting is None else parse_span_s(lasting)
    settings = load_settings(
        config,
        kubeconfig=kubeconfig,
        context=context,
        scheduler_name=scheduler_name,
        node_pool=node_pool,
        model=model,
        dry_run=dry_run,
        log_format=log_format,
    )
    if show_settings:
        if deliver(document("settings", settings.model_dump(mode="json")), as_json=as_json, output=None):
            typer.echo(settings_text(settings), nl=False)
        return Exit.FINE
    return _run(settings, embedded, seconds)


def _run(settings: "ControllerSettings", embedded: bool, seconds: float | None) -> Exit:
    from kai_solver.cli.interrupt import end_for_sure, stop_when_told
    from kai_solver.controller.app import Controller
    from kai_solver.controller.logs import configure_logs, log_start
    from kai_solver.controller.process import give_memory_back, open_more_files

    if embedded:
        from kai_solver.cli.embedded import run_embedded

        return run_embedded(settings, seconds)
    from kai_solver.cluster.rest import connect

    configure_logs(settings)
    give_memory_back()
    open_more_files()
    api = connect(settings.kubeconfig, settings.context, connections=2 * settings.workers.writes + 32)
    log_start(settings)
    replica = Controller(api, settings)
    stop_when_told(replica.stop, seconds)
    end_for_sure(replica.stop)
    return Exit.FINE if replica.run() else Exit.FAILURE
