"""What blocks where CP-SAT gave the proof: the model asked again without resources and rules, halves of them at a time.

The same search for a smallest set as for the bounds (`bounds/blocking.py`, QuickXplain), with the model in place of a
count. What may be disturbed, limits and quotas stay as they are: a set is about what is left to ask for beside them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kai_solver.bounds import Evidence
from kai_solver.bounds.blocking import elements_of_model, in_words_of_model, smallest_part
from kai_solver.bounds.counting import GPU_NAME, TOPOLOGY
from kai_solver.domain import Blocker
from kai_solver.fairness import SHARE
from kai_solver.model.build import formulate
from kai_solver.model.joint import Joint
from kai_solver.search.solver_client import SolverClient
from kai_solver.units import PODS
from kai_solver.units.resources import FIXED

PODS_NAME = FIXED[PODS]
LARGEST = 20_000
"""Variables up to which the model is asked again: each question may take as long as the proof did."""

FAMILIES = {TOPOLOGY: "topology", SHARE: "entitlement"}
"""Rules of the core that are families of the model, as every optional rule is; resources and the rules of nodes are
left out of places instead."""


class _GaveUpError(Exception):
    """No time, or no answer."""


@dataclass(slots=True, eq=False)
class SolverEvidence:
    """A question that CP-SAT proved to have no solution, kept so that the set can be found when it is asked for.

    ``counted``: the same question to the bounds, which know what no empty cluster could serve.
    """

    solver_client: SolverClient
    joint: Joint
    counted: Evidence
    _found: tuple[Blocker, ...] | None = field(default=None)

    def blocking(self) -> tuple[Blocker, ...]:
        """The smallest set found; empty where there was no time for it."""
        if self._found is None:
            try:
                self._found = tuple(self._smallest())
            except _GaveUpError:
                self._found = ()
        return self._found

    def blocking_ever(self) -> tuple[Blocker, ...]:
        """What blocks every action, even on an empty cluster, by the bounds."""
        return self.counted.blocking_ever()

    def _smallest(self) -> list[Blocker]:
        names = elements_of_model(self.counted)
        releasing = {name for (name, _), _ in self.joint.releases}
        names = (*names, *(rule.kind for rule in self.joint.problem.rules if rule.name in releasing))
        if self._blocks(frozenset(names)):
            return []
        kept = smallest_part(lambda dropped: self._blocks(dropped) or None, names)
        to_place = self.joint.to_place
        shared = self._may_open(to_place)
        if PODS_NAME in kept and shared:
            # A device that shares open takes a slot for its reservation pod: more devices do not do without.
            kept = [name for name in kept if name != GPU_NAME]
        found = [in_words_of_model(self.counted, name, to_place) for name in kept]
        return [replace(b, short=b.short + shared) if b.name == PODS_NAME else b for b in found]

    def _may_open(self, pods: Mapping[int, int]) -> int:
        """Devices that the shares among ``pods`` (by shape) may open, at most one each."""
        shapes = self.joint.problem.shapes.shapes
        return sum(count * shapes[s].gpu.devices for s, count in pods.items() if shapes[s].gpu.is_shared)

    def _blocks(self, dropped: frozenset[str]) -> bool:
        """Has the model no solution without what is ``dropped``?"""
        if self.solver_client.is_out_of_time:
            raise _GaveUpError
        family_of = FAMILIES | {rule.kind: rule.name for rule in self.joint.problem.rules}
        left_out = {family_of[name] for name in dropped if name in family_of}
        families = [name for name in self.solver_client.model.families if name not in left_out]
        form = formulate(replace(self.joint, dropped=dropped - FAMILIES.keys()), families, ())
        if form.spec.size[0] > LARGEST:
            raise _GaveUpError
        answer = self.solver_client.solve(form.spec, self.solver_client.budget.left_s / 4)
        if answer.status != "infeasible" and answer.values is None:
            raise _GaveUpError
        return answer.status == "infeasible"
