"""``kai-solver topology``: the domain trees of a cluster with what is free in them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kai_solver.cli.exits import Exit, guarded
from kai_solver.cli.options import AsJson, InputLimit, Instance, Output, PlanOf, Quiet

if TYPE_CHECKING:
    from kai_solver.cli.console import Grid
    from kai_solver.domain import Snapshot
    from kai_solver.explaining import DomainLine

Named = Annotated[str, typer.Option("--topology", metavar="NAME", help="Show only this topology; default: all.")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Also draw it, .svg or .png.")]
OneNode = Annotated[
    str, typer.Option("--node", metavar="NAME", help="Show the GPUs of this node instead of the trees.")
]
COLUMNS = ("domain", "level", "nodes", "idle", "GPUs", "used", "free", "gangs (GPUs)")


@guarded
def topology(
    instance: Instance,
    named: Named = "",
    node: OneNode = "",
    plan: PlanOf = None,
    plot: Plot = None,
    input_limit: InputLimit = None,
    output: Output = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> Exit:
    """Show the domain trees: nodes, used and free GPUs, and pods of every zone, block, rack or clique.

    Idle nodes have no GPU in use. Nodes that lack a label of a topology are in none of its domains.
    With --plan, the cluster is as the plan leaves it.

    With --node, it shows the links between the GPUs of one node, which pod holds which GPUs and how that is known, and
    which link limits them.

    \b
    Examples:
      kai-solver topology cluster.yaml
      kai-solver topology snapshot.zip --topology nvlink --plot domains.svg
      kai-solver topology cluster.yaml --plan plan.json --json | jq '.domains[] | select(.idle_nodes >= 16) | .domain'
      kai-solver topology cluster.yaml --node gpu-11 --plan plan.json --plot gpu-11.png
    """
    from kai_solver.cli.documents import deliver, document
    from kai_solver.cli.inputs import chosen_name, parse_limits, tell_notices
    from kai_solver.explaining import domain_lines
    from kai_solver.instances_io import load_instance
    from kai_solver.instances_io.complete import check_nodes

    snapshot = load_instance(instance, limits=parse_limits(input_limit)).snapshot
    tell_notices(snapshot, quiet=quiet)
    check_nodes(str(instance), snapshot)
    if node:
        from kai_solver.cli.topology_node import show_node

        return show_node(snapshot, node, named, plan, plot, as_json=as_json, output=output)
    if named:
        named = chosen_name(named, (each.name for each in snapshot.topologies), "topology", "--topology")
    after = _after(snapshot, plan)
    lines = domain_lines(after, named)
    if plot is not None:
        from kai_solver.explaining.rack_boards import rack_boards
        from kai_solver.explaining.rack_plot import plot_racks

        when = f" after {plan.name}" if plan else ""
        title = f"{snapshot.name or instance.name}{when}: GPUs by the queue that holds them"
        plot_racks(rack_boards(after, named), _leaf_queues(snapshot), title, plot)
    members = {"domains": [line.document() for line in lines]}
    if deliver(document("topology", members), as_json=as_json, output=output):
        _print(snapshot, lines, quiet=quiet)
    return Exit.FINE


def _leaf_queues(snapshot: "Snapshot") -> list[str]:
    above = {queue.parent for queue in snapshot.queues}
    return [queue.name for queue in snapshot.queues if queue.name not in above]


def _after(snapshot: "Snapshot", plan: Path | None) -> "Snapshot":
    if plan is None:
        return snapshot
    from kai_solver.explaining import carried_out
    from kai_solver.instances_io.plans import read_plan_of

    return carried_out(snapshot, read_plan_of(snapshot, plan))


def _print(snapshot: "Snapshot", lines: "Sequence[DomainLine]", *, quiet: bool) -> None:
    from kai_solver.cli.console import line, open_console
    from kai_solver.domain.names import names_of

    console = open_console()
    if not lines:
        line(console, "The instance has no topologies.")
        return
    console.print(_table(lines, names_of(snapshot.gangs)))
    for tree in () if quiet else dict.fromkeys(entry.topology for entry in lines):
        inside = next(entry.nodes for entry in lines if entry.topology == tree and entry.depth == 0)
        if inside < len(snapshot.nodes):
            line(
                console, f"{len(snapshot.nodes) - inside} of {len(snapshot.nodes)} nodes are outside of {tree}.", "dim"
            )


def _table(lines: "Sequence[DomainLine]", names: Mapping[str, str]) -> "Grid":
    from kai_solver.cli.console import table

    rows = [
        (
            "  " * entry.depth + (entry.name.rpartition("/")[2] if entry.depth else entry.name),
            entry.level,
            f"{entry.nodes:,}",
            f"{entry.idle_nodes:,}",
            f"{entry.gpus:,g}",
            f"{entry.used_gpus:,g}",
            f"{entry.free_gpus:,g}",
            entry.tenants(names) if entry.depth else "",
        )
        for entry in lines
    ]
    return table(COLUMNS, rows, right=COLUMNS[2:7])
