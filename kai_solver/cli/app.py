"""The typer app: one file per command."""

from typing import Annotated

import typer

from kai_solver.cli.bench import bench
from kai_solver.cli.compare import compare
from kai_solver.cli.compile import compile_kernels
from kai_solver.cli.conformance import conformance
from kai_solver.cli.controller import controller
from kai_solver.cli.convert import convert
from kai_solver.cli.devices import devices
from kai_solver.cli.exits import EXIT_CODES_HELP
from kai_solver.cli.experiment import experiment
from kai_solver.cli.experiment_nvlink import nvlink
from kai_solver.cli.explain import explain
from kai_solver.cli.fairshare import fairshare
from kai_solver.cli.models import models
from kai_solver.cli.report import report
from kai_solver.cli.shadow import shadow
from kai_solver.cli.simulate import simulate
from kai_solver.cli.solve import solve
from kai_solver.cli.topology import topology
from kai_solver.cli.tune import tune
from kai_solver.cli.usage import Command, Group
from kai_solver.cli.validate import validate
from kai_solver.cli.whatif import whatif

HELP = """Schedule gangs of GPU pods as the KAI Scheduler does, by constraint optimisation.

An INSTANCE is a file or folder. It is the project's own JSON or YAML (optionally .zst), a KAI snapshot.zip,
Kubernetes YAML ("kubectl get ... -o yaml"), a KAI behaviour case, or an openb trace.

\b
Examples:
  kai-solver solve snapshot.zip                     what would be bound, moved, evicted, and why the rest is pending
  kai-solver solve cluster.yaml --budget 5s --output plan.json
  kai-solver compare cluster.yaml                   two models side by side, and which gangs are treated differently
  kai-solver validate cluster.yaml --plan plan.json judge a plan by the rules
  kai-solver explain snapshot.zip team-a/train-7    why this gang is pending
  kai-solver whatif snapshot.zip job.yaml           what would become of this job, and what it would do to others
  kai-solver fairshare snapshot.zip                 the queue tree: quota, request, fair share, allocation
  kai-solver topology cluster.yaml --plot racks.svg racks, blocks and cliques, and what is free in them
  kai-solver convert snapshot.zip cluster.json --anonymize
  kai-solver devices --product dgx1-v100-8 --free 0-5 --count 4

"""

app = typer.Typer(
    cls=Group,
    help=HELP + EXIT_CODES_HELP,
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"kai-solver {version('kai-solver')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Hold the options before the command."""


app.command("solve", cls=Command, short_help="Decide one cycle of a cluster.")(solve)
app.command("compare", cls=Command, short_help="Solve with several models and show what differs.")(compare)
app.command("validate", cls=Command, short_help="Judge a plan, or an instance alone.")(validate)
app.command("explain", cls=Command, short_help="Say why a gang is pending.")(explain)
app.command("whatif", cls=Command, short_help="Say what a workload would do before it is submitted.")(whatif)
app.command("fairshare", cls=Command, short_help="Show the queue tree in numbers.")(fairshare)
app.command("topology", cls=Command, short_help="Show racks, blocks and cliques, and their free room.")(topology)
app.command("convert", cls=Command, short_help="Write an instance in another form.")(convert)
app.command("devices", cls=Command, short_help="Choose GPUs of a node by their links.")(devices)
app.command("controller", cls=Command, short_help="Schedule a Kubernetes cluster.")(controller)
app.command("shadow", cls=Command, short_help="Compare a dry run with the scheduler at work.")(shadow)
app.command("compile", cls=Command, short_help="Compile the kernels for large clusters.")(compile_kernels)
app.command("conformance", cls=Command, short_help="Run behaviour cases.")(conformance)
app.command("simulate", cls=Command, short_help="Replay a workload in simulated time.")(simulate)
app.command("report", cls=Command, short_help="Make a page of what was measured.")(report)
experiment.command("nvlink", cls=Command)(nvlink)
app.add_typer(experiment, name="experiment", short_help="Run experiments against published baselines.")
app.command("bench", cls=Command, short_help="Measure models on instances.")(bench)
app.command("tune", cls=Command, short_help="Search for better values of a model's parameters.")(tune)
app.add_typer(models, name="models", short_help="List and show solver models.")
