"""A result of the chain search put into effect on the outcome: all of it, or the parts that hold.

What changes falls into parts that share no node, so one that cannot be had (a right, a limit, an optional rule) does
not lose the others: all are tried together, then each half, and so on, while there is time. Every part is one step of
the state that is undone as a whole.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kai_solver.actions.caps import over_capacity, within_limits
from kai_solver.chains.arrays import NONE, ChainResult
from kai_solver.chains.attribute import Charging, charge
from kai_solver.chains.describe import Description
from kai_solver.domain import Action
from kai_solver.placement.fit import FitTable
from kai_solver.placement.placing import Placer, start_together
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.planstate.victims import VictimPool

Judge = Callable[[Outcome], bool]
"""Whether an outcome is as good as it has to be, now that something changed."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Gangs that were admitted, and groups that changed, of those that the result changes."""

    admitted: int
    changed: int
    wanted: int


class Effecting:
    """Puts results of one description into effect.

    ``is_late``: whether no more is to be tried, asked after all parts together were.
    """

    def __init__(
        self,
        outcome: Outcome,
        pool: VictimPool,
        description: Description,
        charging: Charging,
        judge: Judge,
        is_late: Callable[[], bool],
    ) -> None:
        self.outcome, self.pool, self.state = outcome, pool, outcome.state
        self.problem = outcome.state.problem
        self.description = description
        self.charging = charging
        self.judge = judge
        self.is_late = is_late
        self._placer = Placer(self.state, fits=FitTable(self.state))

    def run(self, result: ChainResult) -> Effect:
        """Put ``result`` into effect, as much of it as may be."""
        parts = self._parts(result)
        before = len(self.outcome.admissions)
        done = self._try_all(parts, result)
        wanted = sum(len(part) for part in parts)
        return Effect(len(self.outcome.admissions) - before, done, wanted)

    # -- parts -----------------------------------------------------------------------------------------------------

    def _parts(self, result: ChainResult) -> list[list[int]]:
        """Groups that change, by what hangs together: groups on one node before or after."""
        arrays = self.description.problem
        differs = (result.node != arrays.start) | (result.devices != arrays.start_devices).any(axis=1)
        parent: dict[int, int] = {}

        def root(node: int) -> int:
            while parent.setdefault(node, node) != node:
                parent[node] = parent[parent[node]]
                node = parent[node]
            return node

        changed = [
            group
            for group in range(len(self.description.groups))
            if differs[arrays.first[group] : arrays.first[group + 1]].any()
        ]
        anchor: dict[int, int] = {}
        for group in changed:
            pods = slice(arrays.first[group], arrays.first[group + 1])
            nodes = {*arrays.start[pods].tolist(), *result.node[pods].tolist(), *arrays.home[pods].tolist()} - {NONE}
            first, *others = nodes
            anchor[group] = first
            for node in others:
                parent[root(node)] = root(first)
        found: dict[int, list[int]] = {}
        for group in changed:
            found.setdefault(root(anchor[group]), []).append(group)
        return list(found.values())

    def _try_all(self, parts: Sequence[list[int]], result: ChainResult) -> int:
        """Put all ``parts`` into effect, or each half of them; how many groups changed."""
        if not parts:
            return 0
        groups = [group for part in parts for group in part]
        if self._try(groups, result):
            return len(groups)
        done, half = 0, len(parts) // 2
        for some in (parts[:half], parts[half:]) if half else ():
            if not self.is_late():
                done += self._try_all(some, result)
        return done

    # -- one step --------------------------------------------------------------------------------------------------

    def _try(self, groups: Sequence[int], result: ChainResult) -> bool:
        """Put the new places of ``groups`` into effect in one step; False, and nothing, where they do not hold."""
        outcome, pool, mark = self.outcome, self.pool, self.state.mark()
        admissions, pinned = outcome.admissions, set(pool.pinned)
        self._clear(groups, result)
        done = self._return(groups, result) and self._place(groups, result) and self._holds(groups)
        if done:
            outcome.replace_admissions([*admissions, *self._new(groups, result)])
            done = charge(outcome, pool, self._units(groups), self.charging) and self.judge(outcome)
        if done:
            pool.pin(a.allocation_unit.gang for a in self._new(groups, result))
            return True
        self.state.rollback(mark)
        outcome.replace_admissions(admissions)
        pool.pin_only(pinned)
        return False

    def _pods(self, group: int) -> Iterable[tuple[int, int]]:
        """Pods of ``group``, each with its number in the arrays."""
        first = int(self.description.problem.first[group])
        return ((pod, first + number) for number, pod in enumerate(self.description.groups[group].pods))

    def _is_home(self, group: int, result: ChainResult) -> bool:
        """Whether all pods of the group run where they ran."""
        arrays = self.description.problem
        pods = slice(arrays.first[group], arrays.first[group + 1])
        is_unit = self.description.groups[group].unit != NONE
        return is_unit and bool((result.node[pods] == arrays.home[pods]).all())

    def _clear(self, groups: Sequence[int], result: ChainResult) -> None:
        """Lift what had places; running pods leave where not all of their unit stay."""
        for group in groups:
            runs = self.description.groups[group].unit != NONE
            leaves = runs and not self._is_home(group, result)
            for pod, _ in self._pods(group):
                if pod in self.state.places:
                    self.state.lift(pod)
                if leaves and pod not in self.state.gone:
                    self.state.evict(pod)

    def _return(self, groups: Sequence[int], result: ChainResult) -> bool:
        for group in groups:
            if self._is_home(group, result):
                pods = [pod for pod, _ in self._pods(group) if pod in self.state.gone]
                if not self.state.returns_to_origin(pods, rules=False):
                    return False
        return True

    def _place(self, groups: Sequence[int], result: ChainResult) -> bool:
        """Give pods their places: first those that share devices, which must have those that the result names."""
        steps = []
        for group in groups:
            own = self.description.groups[group]
            waiting = own.waiting
            if not result.is_in[group] or self._is_home(group, result):
                continue
            if waiting is not None and over_capacity(self.state, waiting) is not None:
                return False
            steps += [(pod, number, own.unit != NONE) for pod, number in self._pods(group)]
        pods = self.problem.pods
        steps.sort(key=lambda step: not pods[step[0]].gpu.is_shared)
        if not all(self._put(pod, number, result, later=later) for pod, number, later in steps):
            return False
        for group in groups:
            own = self.description.groups[group]
            if own.unit != NONE:
                self.pool.note_places(own.unit)
            elif result.is_in[group]:
                start_together(self.state, own.waiting or self.outcome.admissions[own.admission].allocation_unit)
        return True

    def _put(self, pod: int, number: int, result: ChainResult, *, later: bool) -> bool:
        node, shape = int(result.node[number]), self.problem.pod_shape[pod]
        now, ever = self._placer.fits.counts(shape)
        if ever[node] <= 0 or not self.state.keeps_devices(pod, node):
            return False
        wanted = tuple(device for device in result.devices[number].tolist() if device != NONE)
        is_shared = self.problem.pods[pod].gpu.is_shared
        starts = not later and bool(now[node] > 0)
        if is_shared and starts:
            parts = self.problem.shapes.parts(shape)[node]
            starts = all(self.state.device_idle[node, device] >= parts for device in wanted)
        stays = node == self.problem.pod_node[pod]
        place = self.state.put(pod, node, now=starts, wanted=wanted if is_shared or stays else ())
        return not is_shared or set(place.devices) == set(wanted)

    def _holds(self, groups: Sequence[int]) -> bool:
        """Domains, spacing, limits of queues and optional rules."""
        gangs = {self.problem.pod_gang[self.description.groups[group].pods[0]] for group in groups}
        shapes = [self.problem.gangs[gang] for gang in gangs]
        state = self.state
        return (
            all(self._placer.keeps_domains(shape, shape.root) and state.keeps_spacing(shape.index) for shape in shapes)
            and all(within_limits(state, queue) for queue in {shape.queue for shape in shapes})
            and state.keeps_rules()
            and state.may_be_gone()
        )

    # -- for which gang ----------------------------------------------------------------------------------------------

    def _new(self, groups: Sequence[int], result: ChainResult) -> list[Admission]:
        """What waited and has places now, in policy order."""
        waiting = sorted(group for group in groups if self.description.groups[group].waiting and result.is_in[group])
        units = [self.description.groups[group].waiting for group in waiting]
        return [Admission(unit, Action.CONSOLIDATION) for unit in units if unit is not None]

    def _units(self, groups: Sequence[int]) -> list[int]:
        return [own.unit for group in groups if (own := self.description.groups[group]).unit != NONE]
