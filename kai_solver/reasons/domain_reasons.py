"""Why the domains of a topology do not take a part of a gang, in KAI's words (``plugins/topology/job_filtering.go``).

KAI looks before it tries: pods of one kind are counted per domain, pods that differ are compared by their sum.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import NODE_GROUP, FitError, TopologyConstraint
from kai_solver.planstate.allocation_units import Part
from kai_solver.planstate.state import State
from kai_solver.reasons.node_reasons import is_mig
from kai_solver.topology import ROOT, ROOT_LEVEL, Domain, DomainTree
from kai_solver.units import CPU, GPU, MEMORY, MILLI, PODS, humanized
from kai_solver.units.go_text import CORES, GB
from kai_solver.units.shares import WHOLE

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]

_ABSENT_RATIO = 1000.0
"""KAI's ratio of a request to nothing at all."""


@dataclass(frozen=True, slots=True)
class DomainAnswer:
    """Domains that may be tried, the most promising of KAI's order first; or why there are none."""

    domains: tuple[Domain, ...] = ()
    errors: tuple[FitError, ...] = ()


class DomainRoom:
    """What is free on nodes in the present state, as KAI counts it for domains.

    Attributes
    ----------
    free
        (R, N) once everything that leaves has left; GPUs: whole devices. Do not write to it.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.free: FloatArray = state.future.astype(np.float64)
        self.free[GPU] = state.whole_later
        self._known: dict[bytes, NDArray[np.int64] | None] = {}

    def per_node(self, largest: FloatArray) -> NDArray[np.int64] | None:
        """(N,) pods of a request ``largest`` (R,) that each node takes; None: it asks for nothing but a pod's slot."""
        key = largest.tobytes()
        if key not in self._known:
            self._known[key] = self._per_node(largest)
        return self._known[key]

    def _per_node(self, largest: FloatArray) -> NDArray[np.int64] | None:
        asked = np.flatnonzero(largest > 0)
        if not len(np.delete(asked, asked == PODS)):
            return None
        free = self.free
        if 0 < largest[GPU] < 1:
            free, future = free.copy(), self.state.device_future
            partial = np.where(future < WHOLE, np.maximum(future, 0), 0)
            free[GPU] += partial.sum(axis=1) / WHOLE
        slots = np.floor(free[asked] / largest[asked, None] + 1e-9).min(axis=0)
        room: NDArray[np.int64] = np.maximum(slots, 0).astype(np.int64)
        return room


class DomainReasons:
    """The domains of one topology for the pods of one part, in the present state."""

    def __init__(
        self, room: DomainRoom, tree: DomainTree, part: Part, constraint: TopologyConstraint, gang: str
    ) -> None:
        self.room = room
        self.state = state = room.state
        self.tree = tree
        self.part = part
        self.constraint = constraint
        self.gang = gang
        self.pods = tuple(part.all_pods())
        shapes = [state.problem.pod_shape[pod] for pod in self.pods]
        rows = {shape: _request(state, shape) for shape in dict.fromkeys(shapes)}
        self.requests = np.array([rows[shape] for shape in shapes], dtype=np.float64)
        self.free = room.free
        self.asked: FloatArray = self.requests.sum(axis=0)
        self._accommodation = self._per_node() if self._is_uniform() else None
        self._rooms_at: dict[int, list[int]] = {}

    def answer(self, allowed: BoolArray | None) -> DomainAnswer:
        """KAI's choice of domains below the lowest one that holds all of ``allowed``."""
        common = self._lowest_common(allowed)
        if self._misfit(common, common) is not None:
            where = "the cluster" if common.level == ROOT_LEVEL else _title(self.tree, common)
            return DomainAnswer(errors=(self._no_match(f": not enough resources in {where} to allocate the job"),))
        levels = self._levels()
        fitting: list[Domain] = []
        lines: list[FitError] = []
        for level in levels:
            for domain in self._domains(level):
                misfit = self._misfit(domain, common)
                if misfit is None:
                    fitting.append(domain)
                elif level == levels[-1]:
                    lines.append(misfit)
        if not fitting:
            return DomainAnswer(errors=(*lines, self._no_match("")))
        return DomainAnswer(tuple(sorted(fitting, key=self._key)))

    # -- which domains -------------------------------------------------------------------------------------------

    def _levels(self) -> list[int]:
        """Levels to try, the deepest first: from the preferred one (else the required one) up to the required one."""
        required = self.tree.level_index(self.constraint.required) if self.constraint.required else None
        preferred = self.tree.level_index(self.constraint.preferred) if self.constraint.preferred else None
        top = ROOT_LEVEL if required is None else required
        deepest = max(top, ROOT_LEVEL if preferred is None else preferred)
        return list(range(deepest, top - 1, -1))

    def _domains(self, level: int) -> list[Domain]:
        if level == ROOT_LEVEL:
            return [ROOT]
        domains = [Domain(level, position) for position in range(len(self.tree.names[level]))]
        anchors = self._anchored()
        if anchors is None:
            return domains
        return [domain for domain in domains if anchors & {self._above(domain, level) for level in range(level + 1)}]

    def _anchored(self) -> set[Domain] | None:
        """Required-level domains that hold running pods of the part; None where that binds nothing."""
        top = self.tree.level_index(self.constraint.required) if self.constraint.required else None
        if top is None or not self.part.anchors:
            return None
        places = self.state.places
        nodes = {places[p].node if p in places else self.state.problem.pod_node[p] for p in self.part.anchors}
        return {Domain(top, int(self.tree.domain_of[top, node])) for node in nodes if node >= 0}

    def _above(self, domain: Domain, level: int) -> Domain:
        return Domain(level, self.tree.line(domain.level, domain.position)[level])

    def _lowest_common(self, allowed: BoolArray | None) -> Domain:
        """The deepest domain that holds all allowed nodes of the tree, not below the preferred level."""
        members = self.tree.members if allowed is None else self.tree.members[allowed[self.tree.members]]
        common = ROOT
        for level, names in enumerate(self.tree.names):
            # Each domain of a tree has nodes.
            found = np.arange(len(names)) if allowed is None else np.unique(self.tree.domain_of[level, members])
            if len(found) != 1:
                break
            common = Domain(level, int(found[0]))
            if self.constraint.preferred and self.tree.level_index(self.constraint.preferred) == level:
                break
        return common

    def _key(self, domain: Domain) -> tuple[int, tuple[tuple[float, str], ...]]:
        """Deepest level first; below each parent the tightest first, then by name."""
        if domain.level == ROOT_LEVEL:
            return (-ROOT_LEVEL, ())
        line = [self._above(domain, level) for level in range(domain.level + 1)]
        return (-domain.level, tuple((-self._ratio(d), _title(self.tree, d)) for d in line))

    # -- does it fit ---------------------------------------------------------------------------------------------

    def _misfit(self, domain: Domain, common: Domain) -> FitError | None:
        """Why the part does not fit ``domain``; None where it may. Outside ``common`` KAI has counted nothing."""
        counted = self._is_below(domain, common)
        title = _title(self.tree, domain)
        if counted and self._accommodation is not None:
            room = self._rooms(domain.level)[domain.position]
            if room >= len(self.pods):
                return None
            text = f"node-group {title} can allocate only {room} of {len(self.pods)} required pods"
            return FitError(NODE_GROUP, (text,), subgroup=self.part.name, domain=title)
        free = self._free_in(domain) if counted else np.zeros_like(self.asked)
        if _ratio(self.asked, free) <= 1.0:
            return None
        return self._insufficient(title, free)

    def _rooms(self, level: int) -> list[int]:
        """Pods that each domain of ``level`` takes."""
        if level not in self._rooms_at and self._accommodation is not None:
            members = self.tree.members
            of_node = self.tree.domain_of[level, members] if level != ROOT_LEVEL else np.zeros_like(members)
            rooms = np.bincount(of_node, weights=self._accommodation[members], minlength=1)
            self._rooms_at[level] = [int(room) for room in rooms]
        return self._rooms_at[level]

    def _is_below(self, domain: Domain, common: Domain) -> bool:
        if common.level == ROOT_LEVEL or domain == common:
            return True
        return domain.level > common.level and self._above(domain, common.level) == common

    def _free_in(self, domain: Domain) -> FloatArray:
        free: FloatArray = self.free[:, self.tree.nodes_of(domain)].sum(axis=1)
        return free

    def _ratio(self, domain: Domain) -> float:
        return _ratio(self.asked, self._free_in(domain))

    def _is_uniform(self) -> bool:
        """True where all pods ask for the same kinds of GPUs and extended resources: KAI then counts pods."""
        asks = self.requests > 0
        asks[:, [CPU, MEMORY]] = True
        return bool((asks == asks[0]).all())

    def _per_node(self) -> NDArray[np.int64]:
        """(N,) pods of the largest request that each node takes."""
        room = self.room.per_node(self.requests.max(axis=0))
        return np.full(self.free.shape[1], len(self.pods), dtype=np.int64) if room is None else room

    # -- texts ---------------------------------------------------------------------------------------------------

    def _no_match(self, suffix: str) -> FitError:
        where = f", subgroup {self.part.name}" if self.part.name not in ("", "default") else ""
        c = self.constraint
        level = f", requirement {c.required}" if c.required else ""  # KAI leaves a gap
        text = f"topology {c.topology}{level} couldn't be satisfied for job <{self.gang}>{where}"
        return FitError("PodSchedulingErrors", (text + suffix,))

    def _insufficient(self, title: str, free: FloatArray) -> FitError:
        names = self.state.problem.snapshot.schema.names
        short, detailed = [], []
        for resource in np.flatnonzero(self.asked > free).tolist():
            asked, have = float(self.asked[resource]), float(free[resource])
            if resource in _PLURAL:
                name, scale = _PLURAL[resource]
                what, need, got = f"resources: {name}", humanized(asked, scale), humanized(have, scale)
            elif resource == GPU:
                what, need, got = "resource: GPUs", f"{asked:.3g}", f"{have:.3g}"
            else:
                what, need, got = f"resource: {names[resource]}", str(int(asked)), str(int(have))
            detailed.append(f"{title} didn't have enough {what}, requested: {need}, available: {got}")
            name = what.partition(": ")[2]
            kind = "of mig profile" if is_mig(name) else "resources"
            short.append(f"node-group(s) didn't have enough {kind}: {name}")
        return FitError(NODE_GROUP, tuple(short), tuple(detailed), self.part.name, title)


_PLURAL = {CPU: ("CPU cores", CORES), MEMORY: ("memory", GB)}


def _title(tree: DomainTree, domain: Domain) -> str:
    """KAI's id of a domain: the label values from the outermost level in, with dots between."""
    return "root" if domain.level == ROOT_LEVEL else ".".join(tree.names[domain.level][domain.position])


def _request(state: State, shape: int) -> list[float]:
    """(R,) what one pod asks for; GPUs as a number of devices, 0 for requests by GPU memory (as in KAI)."""
    spec = state.problem.shapes.shapes[shape]
    request = [float(amount) for amount in spec.request]
    request[GPU] = spec.gpu.devices * spec.gpu.milli / MILLI
    return request


def _ratio(asked: FloatArray, free: FloatArray) -> float:
    """How much of what is free the request takes, of the resource that is scarcest; pods are not counted."""
    present = [r for r in np.flatnonzero(asked > 0).tolist() if r != PODS]
    ratios = [float(asked[r] / free[r]) if free[r] > 0 else _ABSENT_RATIO for r in present]
    return max(ratios, default=0.0)


def known_level(tree: DomainTree, constraint: TopologyConstraint) -> bool:
    """True where the topology has every level that ``constraint`` names."""
    named: Sequence[str] = [level for level in (constraint.required, constraint.preferred) if level]
    return bool(named) and all(tree.level_index(level) is not None for level in named)
