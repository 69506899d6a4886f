"""``kai-solver whatif``: what manifests would do to a cluster, and to the work of others."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kai_solver.cli.exits import Exit, complain, guarded
from kai_solver.cli.options import (
    AsJson,
    Budget,
    Full,
    InputLimit,
    Instance,
    Model,
    Output,
    Quiet,
    Seed,
    Verbose,
    manifest_path,
)
from kai_solver.errors import InputError

if TYPE_CHECKING:
    from kai_solver.domain import Notice, Plan, Snapshot
    from kai_solver.explaining import Difference, Explanation

WITHOUT, WITH = "without it", "with it"


@guarded
def whatif(
    instance: Instance,
    manifests: Annotated[
        list[Path],
        typer.Argument(
            metavar="MANIFEST",
            parser=manifest_path,
            help="What you would give to `kubectl apply -f`; - reads a pipe.",
        ),
    ],
    model: Model = "default",
    budget: Budget = None,
    seed: Seed = 0,
    input_limit: InputLimit = None,
    output: Output = None,
    as_json: AsJson = False,
    full: Full = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> Exit:
    """Say what would become of a workload before you submit it, and what it would do to others.

    The instance is solved as it is, and with the objects of the manifests. For each gang that they add: whether it
    starts and where, which pods leave or move for it, or why it waits. For the others: which would fare differently.

    A manifest has no creation time yet, so it counts as the newest. It waits behind older gangs of its queue and
    priority. An object that exists is replaced.

    \b
    Examples:
      kai-solver whatif snapshot.zip job.yaml
      kai-solver whatif cluster.yaml job.yaml quota.yaml --budget 5s
      kubectl create job train --image=app --dry-run=client -o yaml | kai-solver whatif cluster.yaml -
    """
    from kai_solver.cli.documents import deliver, document
    from kai_solver.cli.inputs import Request, parse_budget_s, parse_limits, tell_notices
    from kai_solver.cli.interrupt import stopping_on_interrupt
    from kai_solver.cli.solve import decide
    from kai_solver.instances_io.added import load_with
    from kai_solver.instances_io.complete import check_complete
    from kai_solver.modelfiles import load_model

    chosen = load_model(model)
    budget_s = chosen.budget_s if budget is None else parse_budget_s(budget)
    before, after = load_with(instance, manifests, limits=parse_limits(input_limit))
    check_complete(str(instance), before)
    known, told = {gang.key for gang in before.snapshot.gangs}, set(before.snapshot.notices)
    added = [gang.key for gang in after.snapshot.gangs if gang.key not in known]
    new = tuple(notice for notice in after.snapshot.notices if notice not in told)
    if not added:
        raise _nothing(manifests, new)
    tell_notices(replace(after.snapshot, notices=new), quiet=quiet)
    plans: list[Plan] = []
    with stopping_on_interrupt() as stop:
        for words, loaded in ((WITHOUT, before), (WITH, after)):
            if not quiet:
                typer.echo(f"{words}, {budget_s:g} s", err=True)
            plans.append(decide(Request(instance, loaded, chosen, budget_s), seed, stop.is_set, quiet=quiet))
        interrupted = stop.is_set()
    answer = Answer(before.snapshot, after.snapshot, plans[0], plans[1], tuple(added))
    about = {"instance": instance.name, "manifests": [file.name for file in manifests]}
    if deliver(document("what-if", about | answer.members()), as_json=as_json, output=output):
        answer.show(full=full, verbose=verbose)
    if interrupted:
        complain("interrupted; these are the best plans so far")
        return Exit.INTERRUPTED
    return Exit.FINE


def _nothing(manifests: Sequence[Path], notices: "Sequence[Notice]") -> InputError:
    """The manifests ask for no pods, or those that do were set aside."""
    file = ", ".join(map(str, manifests))
    aside = next((notice for notice in notices if notice.kind == "set-aside"), None)
    if aside is not None:
        return InputError(f"adds nothing: {aside.object} was set aside: {aside.text}", file=file)
    cure = "Give a workload that the cluster does not have: a Pod, Job, PyTorchJob, RayJob or the like"
    return InputError("adds no pod that is to be scheduled", file=file, cure=cure)


@dataclass(frozen=True)
class Answer:
    """Two plans: of a cluster (``before``), and of the same with gangs that are ``added``, by their keys."""

    before: "Snapshot"
    after: "Snapshot"
    without: "Plan"
    with_it: "Plan"
    added: tuple[str, ...]

    @cached_property
    def explanations(self) -> "list[Explanation]":
        """Of each gang that is added, what becomes of it."""
        from kai_solver.explaining import Explainer

        explainer = Explainer(self.after, self.with_it)
        return [explainer.explain(gang) for gang in self.added]

    @cached_property
    def others(self) -> "tuple[Difference, ...]":
        """Gangs of the cluster that fare differently."""
        from kai_solver.explaining import differences

        return differences(self.before, (self.without, self.with_it))

    @property
    def is_proven(self) -> bool:
        """Whether no other plan is better, with or without it."""
        return all(stage.optimal for plan in (self.without, self.with_it) for stage in plan.stages)

    def members(self) -> dict[str, Any]:
        """Of the JSON document."""
        from kai_solver.explaining import plan_figures

        return {
            "gangs": [explanation.document() for explanation in self.explanations],
            "others": [
                {"without": group.fates[0], "with": group.fates[1], "gangs": group.gangs} for group in self.others
            ],
            "without": asdict(plan_figures(self.without)),
            "with": asdict(plan_figures(self.with_it)),
            "proven": self.is_proven,
        }

    def show(self, *, full: bool, verbose: bool) -> None:
        """Print it for people."""
        from kai_solver.cli.console import line, open_console
        from kai_solver.cli.explained import print_explanations
        from kai_solver.cli.fates import print_fates
        from kai_solver.domain.names import names_of

        console = open_console()
        print_explanations(self.explanations, names_of(self.after.gangs), verbose=verbose, console=console)
        if not self.others:
            line(console, "All other gangs fare as they would without it.")
            return
        print_fates(console, "Other gangs that fare differently", (WITHOUT, WITH), self.others, full=full)
        if not self.is_proven:
            line(console, "Not all of both plans is proven best, so some may differ by chance. Try a longer --budget.")
