"""Placing an allocation unit: domains tightest first, nodes by key, devices by fill; all of it or nothing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import TopologyConstraint
from kai_solver.placement.fit import RANKS, FitTable
from kai_solver.placement.node_caps import NodeCaps
from kai_solver.planstate.allocation_units import AllocationUnit, AllocationUnits, Part
from kai_solver.planstate.gang_states import GangState
from kai_solver.planstate.origins import is_at_origin
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.state import State
from kai_solver.problem import GangShape, Leaf, TreeNode
from kai_solver.problem.charges import sum_of
from kai_solver.problem.gangs import leaves_below
from kai_solver.topology import DomainTree

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

OUTSIDE = -1
"""Domain of nodes outside of a topology."""
FEW_PODS = 4
"""Fewer pods of one shape are placed one by one."""


LOOKS = 8
"""Pods between two checks of the clock: with the most rules that a pod may have, one takes about 5 ms (2026-11-23)."""


class TimeIsUp(Exception):  # noqa: N818  (no error: the state is to be rolled back)
    """The time for a gang has ended while its pods were placed."""


def never() -> bool:
    """There is no limit."""
    return False


class Placer:
    """Greedy placement on a state; every method leaves the state unchanged where it fails.

    ``later``: nothing is bound now even where it could be (places for pods that first have to leave another).
    ``without``: the kind of an optional rule that is not heeded, to learn whether it is what stands in the way.
    ``at_once``: pods of one shape may be placed together. It changes no place, only the time that it takes.
    ``is_attempt_over``: asked between pods; where it says so, `TimeIsUp` is raised, with pods placed.
    """

    at_once = True

    def __init__(self, state: State, *, fits: FitTable | None = None, later: bool = False, without: str = "") -> None:
        self.state = state
        self.fits = fits or FitTable(state)
        self.later = later
        self.without = without
        self.is_attempt_over: Callable[[], bool] = never
        self._looks = 0
        self._rank: IntArray | None = None

    def place_unit(self, allocation_unit: AllocationUnit, allowed: BoolArray | None = None) -> bool:
        """Place all pods of ``allocation_unit``; a second try takes the largest pods first where sizes differ."""
        mark = self.state.mark()
        done = self.place_part(allocation_unit.root, allowed, largest_first=False)
        if not done and len({self.state.problem.pod_shape[p] for p in allocation_unit.pods}) > 1:
            self.state.rollback(mark)
            done = self.place_part(allocation_unit.root, allowed, largest_first=True)
        if not done:
            self.state.rollback(mark)
            return False
        start_together(self.state, allocation_unit)
        return True

    def place_pod(self, pod: int, allowed: BoolArray | None = None) -> bool:
        """Place one pod on its best node."""
        self._looks += 1
        if self._looks % LOOKS == 0 and self.is_attempt_over():
            raise TimeIsUp
        shape = self.state.problem.pod_shape[pod]
        if not self.fits.has_room(shape):
            return False
        allowed = self.state.admitting(pod, allowed, without=self.without)
        if self.state.problem.pods[pod].gpu.memory_mib and self.state.problem.pod_node[pod] < 0:
            mask = NodeCaps.of(self.state, pod).affordable()
            allowed = mask if allowed is None else allowed & mask
        if not self.state.keeps_devices(pod, origin := self.state.problem.pod_node[pod]):
            elsewhere = np.arange(len(self.state.problem.nodes)) != origin
            allowed = elsewhere if allowed is None else allowed & elsewhere
        choice = self._promised(pod, shape, allowed)
        choice = choice or self.fits.choose(shape, allowed, self._rank, pod)
        if choice is None:
            return False
        node, now = choice
        place = self.state.put(pod, node, now=now and not self.later)
        self.fits.took(shape, node, now=place.now)
        return True

    def _promised(self, pod: int, shape: int, allowed: BoolArray | None) -> tuple[int, bool] | None:
        """The node that an earlier cycle nominated, where the pod fits it.

        Source: docs/kai-behaviour.md#scoring: before all other scores.
        """
        nominated = self.state.problem.pods[pod].nominated_node
        node = self.state.problem.node_index.get(nominated, -1) if nominated else -1
        if node < 0 or (allowed is not None and not allowed[node]):
            return None
        now, later = self.fits.counts(shape)
        return (node, bool(now[node] > 0)) if later[node] > 0 else None

    def place_part(self, part: Part, allowed: BoolArray | None, *, largest_first: bool = False) -> bool:
        """Place all pods under ``part``; may leave some placed where it fails."""
        if part.topology is None:
            return self._place_inside(part, allowed, largest_first=largest_first)
        outer = self._rank
        for domain, rank in self.domains(part, part.topology, allowed):
            mark = self.state.mark()
            self._rank = rank if rank is not None else outer
            done = self._place_inside(part, domain, largest_first=largest_first)
            self._rank = outer
            if done:
                return True
            self.state.rollback(mark)
        return False

    def _place_inside(self, part: Part, allowed: BoolArray | None, *, largest_first: bool) -> bool:
        parts, pods = part.parts, part.pods
        if largest_first:
            parts = tuple(sorted(parts, key=lambda p: -max((self._size(i) for i in p.all_pods()), default=0)))
            pods = tuple(sorted(pods, key=lambda i: -self._size(i)))
        if self.at_once and len(parts) > 1 and self._lacks_domains(parts, allowed):
            return False
        for child in parts:
            if not self.place_part(child, allowed, largest_first=largest_first):
                return False
        return self._place_pods(pods, allowed)

    def _place_pods(self, pods: tuple[int, ...], allowed: BoolArray | None) -> bool:
        shapes = self.state.problem.pod_shape
        if len(pods) < FEW_PODS or not self.at_once:
            return all(self.place_pod(pod, allowed) for pod in pods)
        runs = (tuple(run) for _, run in groupby(pods, shapes.__getitem__))
        return all(self._place_identical(run, allowed) for run in runs)

    def _place_identical(self, pods: tuple[int, ...], allowed: BoolArray | None) -> bool:
        """Place ``pods`` of one shape: at once where all can start now and no rule but those of nodes is theirs."""
        shape = self.state.problem.pod_shape[pods[0]]
        if len(pods) >= FEW_PODS and self.is_plain(pods):
            if self._lacks(shape, len(pods), allowed):
                return False
            if not self.later and self.fill(pods, allowed):
                return True
        return all(self.place_pod(pod, allowed) for pod in pods)

    def _lacks(self, shape: int, count: int, allowed: BoolArray | None) -> bool:
        later = self.fits.counts(shape)[1]
        return int((later if allowed is None else later[allowed]).sum()) < count

    def _lacks_domains(self, parts: tuple[Part, ...], allowed: BoolArray | None) -> bool:
        """True where fewer domains than needed have room for the smallest of the ``parts`` that each need one.

        Counted by level and shape, so that a gang which cannot move is refused before its first segments are placed. On
        36 racks with 394 pods in segments, where seven gangs wait, the greedy so takes 0.5 s of CPU, not 1.3
        (2026-11-22).
        """
        needs: dict[tuple[str, str, int], list[int]] = {}
        for part in parts:
            if part.topology is not None and part.topology.required:
                for shape, count in self.state.problem.by_shape(part.all_pods()).items():
                    key = (part.topology.topology, part.topology.required, shape)
                    needs.setdefault(key, []).append(count)
        for (topology, level, shape), counts in needs.items():
            domain_of = domains_at(self.state.problem.domains, topology, level)
            room = self.fits.counts(shape)[1]
            if domain_of is not None and hosts(domain_of, room, min(counts), allowed) < len(counts):
                return True
        return False

    def is_plain(self, pods: Sequence[int]) -> bool:
        """True where it is only a matter of counting on which nodes ``pods`` of one gang and shape go."""
        problem = self.state.problem
        if problem.outlook is not None:
            return False
        if problem.gangs[problem.pod_gang[pods[0]]].family >= 0 or not self.state.is_plain(problem.pod_shape[pods[0]]):
            return False
        if len(pods) == 1:
            return pods[0] not in problem.related and not problem.pods[pods[0]].nominated_node
        return problem.related.isdisjoint(pods) and not any(problem.pods[pod].nominated_node for pod in pods)

    def fill(self, pods: Sequence[int], allowed: BoolArray | None = None, *, joined: bool = False) -> bool:
        """Place plain ``pods`` where they would go one after the other; False where not all can start now."""
        shape = self.state.problem.pod_shape[pods[0]]
        found = self.fits.fill(shape, len(pods), allowed, self._rank)
        if found is None:
            return False
        if not joined:
            self.state.join(pods, sum_of(self.state.problem.charges[pod] for pod in pods))
        self.state.place_joined(pods, found[0].tolist(), found[1].tolist())
        self.fits.took_many(shape, *found)
        return True

    def _size(self, pod: int) -> int:
        charge = self.state.problem.charges[pod]
        return charge[2] * 1_000_000 + charge[0]

    # -- topology ----------------------------------------------------------------------------------------------

    def domains(
        self, part: Part, topology: TopologyConstraint, allowed: BoolArray | None
    ) -> Iterator[tuple[BoolArray | None, IntArray | None]]:
        """Node masks to try for ``part``, best first: preferred level up to the required one, tightest first.

        Without a required level the whole of ``allowed`` comes last. Above the preferred level a rank goes with the
        mask, so that the pods still keep to few preferred domains.
        """
        tree = self.state.problem.domains.get(topology.topology)
        top = tree.level_index(topology.required) if tree is not None and topology.required else None
        if topology.required and top is None:
            return
        preferred = tree.level_index(topology.preferred) if tree is not None and topology.preferred else None
        if tree is None or (preferred is None and top is None):
            yield allowed, None
            return
        lowest, deepest = top or 0, preferred if preferred is not None else -1
        for level in range(max(deepest, lowest), lowest - 1, -1):
            for mask in self._domains_at(tree, level, part, allowed, top):
                yield mask, self._preference(tree, deepest, mask) if level < deepest else None
        if top is None:
            yield allowed, self._preference(tree, deepest, allowed)

    def _preference(self, tree: DomainTree, level: int, mask: BoolArray | None) -> IntArray:
        """(N,) rank of each node by its domain at the preferred level: most free room first.

        KAI has ten steps, ``floor((i + 1) / n * 10)`` for the i-th of n domains (docs/kai-behaviour.md#scoring): more
        than ten domains tie there, and here they do not.
        """
        of_node = tree.domain_of[level]
        inside = of_node >= 0 if mask is None else (of_node >= 0) & mask
        domains = np.unique(of_node[inside])
        free = self._free_by_level(tree, level, inside)[level]
        order = sorted(domains.tolist(), key=lambda d: (float(free[d]), d))
        steps = np.zeros(len(tree.names[level]) + 1, dtype=np.int64)
        for position, domain in enumerate(order):
            steps[domain] = position + 1
        rank: IntArray = np.minimum(len(order) - steps[of_node], RANKS)
        return rank

    def _domains_at(
        self,
        tree: DomainTree,
        level: int,
        part: Part,
        allowed: BoolArray | None,
        top: int | None,
    ) -> Iterator[BoolArray]:
        """Masks of the domains of ``level`` worth trying; ``top`` is the required level, None without one."""
        of_node = tree.domain_of[level]
        inside = of_node >= 0 if allowed is None else (of_node >= 0) & allowed
        if part.anchors and top is not None:
            inside = inside & self._beside_anchors(tree, top, part)
        for domain in self._ranked(tree, level, part, inside):
            yield inside & (of_node == domain)

    def _ranked(self, tree: DomainTree, level: int, part: Part, inside: BoolArray) -> list[int]:
        """Domains with room for ``part``, tightest first, counted from the outermost level in."""
        roomy = self._roomy(tree.domain_of[level], inside, part)
        keys: list[NDArray[np.float64] | IntArray] = [roomy]
        free = self._free_by_level(tree, level, inside) if len(roomy) > 1 else []
        line = roomy
        for at in reversed(range(len(free))):
            keys.append(free[at][line])
            line = tree.parents[at][line].astype(np.int64)
        ranked: list[int] = roomy[np.lexsort(keys)].tolist()
        return ranked

    def _free_by_level(self, tree: DomainTree, level: int, inside: BoolArray) -> list[NDArray[np.float64]]:
        """Free GPUs (thousandths) by domain, for every level from the outermost down to ``level``."""
        weights = self.state.gpu_free[inside]
        free: list[NDArray[np.float64]] = []
        for at in range(level + 1):
            row = np.bincount(tree.domain_of[at][inside], weights=weights, minlength=len(tree.names[at]))
            free.append(row.astype(np.float64))
        return free

    def _beside_anchors(self, tree: DomainTree, top: int, part: Part) -> BoolArray:
        of_node = tree.domain_of[top]
        nodes = {self.node_of(pod) for pod in part.anchors}
        domains = {int(of_node[node]) for node in nodes if node >= 0}
        return np.isin(of_node, sorted(domains)) if len(domains) == 1 else np.zeros(len(of_node), dtype=np.bool_)

    def keeps_domains(self, gang: GangShape, node: TreeNode | Leaf) -> bool:
        """True where the running and placed pods under every required level are in one of its domains.

        Of pods that were spread over several before, those that get places join some that stay. Where none gets one,
        all is as it was.
        """
        inner = () if isinstance(node, Leaf) else node.children
        if not all(self.keeps_domains(gang, child) for child in inner):
            return False
        topology = node.topology
        tree = self.state.problem.domains.get(topology.topology) if topology is not None else None
        level = tree.level_index(topology.required) if tree is not None and topology is not None else None
        if tree is None or level is None:
            return True
        of_node = tree.domain_of[level]
        pods = [pod for leaf in leaves_below(node) for pod in (*leaf.active, *leaf.pending)]
        active = {pod for found in self.state.gangs[gang.index].active for pod in found}
        problem, places = self.state.problem, self.state.places
        new = {p for p in active.intersection(pods) if p in places and not is_at_origin(problem, p, places[p])}
        come = {int(of_node[places[pod].node]) for pod in new}
        stay = {int(of_node[self.node_of(pod)]) for pod in pods if pod in active and pod not in new} - {OUTSIDE}
        return OUTSIDE not in come and (come <= stay if stay else len(come) <= 1)

    def node_of(self, pod: int) -> int:
        """Node on which ``pod`` runs or is to run."""
        place = self.state.places.get(pod)
        return place.node if place is not None else self.state.problem.pod_node[pod]

    def _roomy(self, of_node: NDArray[np.int32], inside: BoolArray, part: Part) -> NDArray[np.int64]:
        """Domains in which every shape of ``part``, counted alone, finds room for all its pods."""
        width = int(of_node.max(initial=-1)) + 1
        domains = of_node[inside]
        fits = np.bincount(domains, minlength=width) > 0
        for shape, count in self.state.problem.by_shape(part.all_pods()).items():
            _, later = self.fits.counts(shape)
            fits &= np.bincount(domains, weights=later[inside], minlength=width) >= count
        return np.flatnonzero(fits)


def domains_at(domains: Mapping[str, DomainTree], topology: str, level: str) -> IntArray | None:
    """(N,) domain of each node at a level (label or alias), -1 outside of all; None where there is no such level."""
    tree = domains.get(topology)
    index = tree.level_index(level) if tree is not None else None
    return None if tree is None or index is None else tree.domain_of[index].astype(np.int64)


def hosts(domain_of: IntArray, room: IntArray, count: int, allowed: BoolArray | None = None) -> int:
    """How many times ``count`` pods find room in one domain; ``room``: (N,) pods that each node takes."""
    inside = domain_of >= 0 if allowed is None else (domain_of >= 0) & allowed
    return int((np.bincount(domain_of[inside], weights=room[inside]) // count).sum())


def start_together(state: State, allocation_unit: AllocationUnit) -> None:
    """What must start together waits together (KAI: ShouldPipelineJob, docs/kai-behaviour.md#allocate).

    A minimum, of the gang or of an optional subgroup, waits for its last pod. Surplus waits for the minimum of the
    gang, and for those of the subgroups that it is in.
    """
    places = state.places
    if all(places[pod].now for pod in allocation_unit.pods) and (
        allocation_unit.is_core or _minimum_runs(state, allocation_unit)
    ):
        return
    _wait(state, allocation_unit)


def wait_for_company(outcome: Outcome) -> None:
    """Let admitted units wait of which a pod would start without one that it requires beside it.

    That one leaves, or waits itself. It did not when the pod got its place: others came, left or were given other
    places since.
    """
    state = outcome.state
    if not any(shape.constraints.affinity for shape in state.problem.shapes.shapes):
        return
    units = [admission.allocation_unit for admission in outcome.admissions]
    placed = [unit for unit in units if unit.pods[0] in state.places]
    relying = [unit for unit in placed if is_relying(state, unit)]
    mark, changed = state.mark(), {unit.gang for unit in relying}
    try:
        while changed:
            for unit in placed:
                if unit.gang in changed:
                    start_together(state, unit)
            lonely = [unit for unit in relying if not _may_rely(state, unit)]
            for unit in lonely:
                _wait(state, unit)
            changed = {unit.gang for unit in lonely}
    except Exception:
        state.rollback(mark)
        raise


def is_relying(state: State, unit: AllocationUnit) -> bool:
    """Whether a rule requires others beside some pod of ``unit``."""
    return any(state.problem.pods[pod].constraints.affinity for pod in unit.pods)


def _may_rely(state: State, unit: AllocationUnit) -> bool:
    starting = [(pod, state.places[pod].node) for pod in unit.pods if state.places[pod].now]
    return all(rule.may_rely(pod, node) for pod, node in starting for rule in state.rules)


def _wait(state: State, unit: AllocationUnit) -> None:
    """Let no pod of ``unit`` start at once."""
    for pod in unit.pods:
        place = state.places[pod]
        if place.now:
            state.lift(pod)
            state.put(pod, place.node, now=False, wanted=place.devices, wanted_grants=place.grants)


def _minimum_runs(state: State, allocation_unit: AllocationUnit) -> bool:
    """True where pods that run, or start now, hold the minimum of the gang, and of all parts that the unit is in."""
    places, gone = state.places, state.gone
    active = [
        [p for p in pods if (places[p].now if p in places else p not in gone)]
        for pods in state.gangs[allocation_unit.gang].active
    ]
    shape = state.problem.gangs[allocation_unit.gang]
    units = AllocationUnits(shape, GangState(active, state.gangs[allocation_unit.gang].pending))
    mine = {id(shape.leaves[state.leaf_of[pod]]) for pod in allocation_unit.pods}

    def runs(part: TreeNode | Leaf) -> bool:
        if mine.isdisjoint(map(id, leaves_below(part))):
            return True
        inner = () if isinstance(part, Leaf) else part.children
        return units.is_satisfied(part) and all(map(runs, inner))

    return runs(shape.root)
