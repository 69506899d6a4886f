"""The smallest set of what blocks: rules and resources of which none can be left out of a bound's proof.

Rules and resources are dropped, halves of them at a time, and the bound is asked again (QuickXplain, Junker 2004),
until nothing more can be. Where two or more are left, each rule and resource is tried alone, then pairs. So what comes
out is minimal for the bounds, and up to three elements the smallest.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from kai_solver.bounds.counting import (
    GPU_NAME,
    TOPOLOGY,
    BoolArray,
    Relaxed,
    Shortfall,
    describe,
    say_slots,
)
from kai_solver.bounds.demand import Demand
from kai_solver.bounds.refuting import (
    LIMIT,
    OTHERS,
    QUOTA,
    SURPLUS,
    Bounds,
    Moment,
    Refuted,
    lacks_rights,
    most_in_words,
)
from kai_solver.domain import Action, Blocker
from kai_solver.errors import InternalError
from kai_solver.fairness import MINRUNTIME, PREEMPTIBLE, PRIORITY, SHARE
from kai_solver.problem.capacity import NODE_RULES
from kai_solver.problem.rules import Spacing
from kai_solver.units import GPU, MILLI, QUEUE_RESOURCES, counted, format_amount

MOST_TRIED = 36
"""Pairs tried for a smaller set: of nine rules and resources. One costs 0.1 to 0.2 ms at 1,000 nodes (2026-11-21)."""

EVER = "even if nothing else ran"

Ask = Callable[[Demand, frozenset[str]], Refuted | None]
"""A bound, asked with what is dropped."""


@dataclass(slots=True)
class Allowance:
    """Work left for blocking sets in one cycle, in node questions; counted, so that no clock changes an answer."""

    left: int

    def spend(self, amount: int) -> bool:
        """False where nothing is left."""
        self.left -= amount
        return self.left >= 0


@dataclass(slots=True, eq=False)
class Evidence:
    """A question that a bound answered with "no", kept so that the set can be found when it is asked for."""

    bounds: Bounds
    demand: Demand
    moment: Moment
    allowance: Allowance
    _found: tuple[Blocker, ...] | None = None
    _ever: tuple[Blocker, ...] | None = None

    def blocking(self) -> tuple[Blocker, ...]:
        """The set that blocks this action; empty where the bounds, or the work allowed, do not suffice."""
        if self._found is None:
            refute = self.bounds.refute
            self._found = self._smallest(lambda demand, dropped: refute(demand, self.moment, dropped), by_action=True)
        return self._found

    def blocking_ever(self) -> tuple[Blocker, ...]:
        """The set that blocks every action, even on an empty cluster; empty where there is none."""
        if self._ever is None:
            demand, known = self.demand, self.bounds.ever
            key = demand.gang.index, demand.pods, demand.scope, demand.undone, demand.deep
            if demand.spacings or key not in known:  # No action makes a difference, but how pods have to lie may.
                ever = self._smallest(self.bounds.refute_ever, by_action=False)
                known[key] = tuple(_ever(blocker) for blocker in ever)
            self._ever = known[key]
        return self._ever

    def _to_place(self) -> Counter[int]:
        """Pods by shape that must all have a place if the gang is to run: its own, and those of others."""
        leaving = self.bounds.leaving(self.demand, self.moment)
        return self.bounds.beside(self.demand, self.moment, leaving) + Counter(self.demand.needed)

    def _smallest(self, ask: Ask, *, by_action: bool) -> tuple[Blocker, ...]:
        cost = (len(self.bounds.problem.nodes) + 100) * (10 if self.demand.deep else 1)

        def paid(demand: Demand, dropped: frozenset[str]) -> Refuted | None:
            return ask(demand, dropped) if self.allowance.spend(cost) else None

        names = tuple(_elements(self.bounds, self.demand, by_action=by_action))
        every, known = frozenset(names), self.bounds.blocking
        enough = known.get(names, every)
        whole = paid(self.demand, every - enough)
        if whole is None and enough != every:
            enough, whole = every, paid(self.demand, frozenset())
        if whole is None:
            return ()
        kept = known[names] = _filter(partial(paid, self.demand), names, enough)
        dropped = every - kept
        if kept != enough:
            whole = ask(self.demand, dropped)
        to_place = self._to_place() if by_action else self.demand.needed
        elements = []
        for name in filter(kept.__contains__, names):
            demand = self._blamed(paid, name, kept, dropped)
            found = whole if demand is self.demand else paid(demand, dropped)
            if found is None or self.allowance.left < 0:
                return ()
            elements.append(ElementWords(self, demand, found, to_place, by_action=by_action).element(name))
        return tuple(elements)

    def _blamed(self, ask: Ask, name: str, kept: frozenset[str], dropped: frozenset[str]) -> Demand:
        """The question whose answer says what lacks of ``name``.

        Where one domain must do, of several things that block together one may lack here and another there: each is
        named for a domain that would do if only it did not bind.
        """
        demand, scope, resources = self.demand, self.demand.scope, self.bounds.problem.snapshot.schema.names
        others = kept - {name, TOPOLOGY} - self.bounds.protections
        of_nodes = (*resources, *(rule.kind for rule in self.bounds.problem.rules if rule.limits_nodes))
        if scope is None or TOPOLOGY not in kept or name not in of_nodes or not others:
            return demand
        first, last = 0, len(scope.names)
        while last - first > 1:
            middle = (first + last) // 2
            would_do = ask(replace(demand, scope=scope.part(first, middle)), dropped | {name}) is None
            first, last = (first, middle) if would_do else (middle, last)
        return replace(demand, scope=scope.part(first, last))


def _ever(blocker: Blocker) -> Blocker:
    """The element as one of an empty cluster: how much there is comes first, then what may be added."""
    have, mark, more = blocker.have.partition(";")
    return replace(blocker, have=f"{have} {EVER}{mark}{more}")


def _elements(bounds: Bounds, demand: Demand, *, by_action: bool) -> Iterator[str]:
    """Rules and resources that may matter; capacity first, so that it is named rather than a rule if both would do."""
    shapes = bounds.problem.shapes.shapes
    asked = [
        name
        for resource, name in enumerate(bounds.problem.snapshot.schema.names)
        if any(shapes[s].gpu.devices if resource == GPU else shapes[s].request[resource] for s in demand.needed)
    ]
    yield from sorted(asked, key=lambda name: name != GPU_NAME)
    yield LIMIT
    if not demand.gang.gang.preemptible:
        yield QUOTA
    if demand.scope is not None:
        yield TOPOLOGY
    yield from (spacing.kind for spacing in demand.spacings)
    yield NODE_RULES
    coming = [rule for rule in bounds.problem.rules if not rule.is_protective]
    rules = [rule for rule in coming if rule.may_block(bounds.problem, demand.needed)]
    yield from (rule.kind for rule in rules if rule.limits_nodes)
    yield from (rule.kind for rule in rules if not rule.limits_nodes)
    if by_action and demand.action is not Action.ALLOCATE:
        yield from bounds.rights.protections(demand)


def elements_of_model(evidence: Evidence) -> tuple[str, ...]:
    """Rules and resources that the model can be asked without, as of `_elements`."""
    demand = evidence.demand
    shares = [SHARE] if demand.action is Action.RECLAIM else []
    not_asked = {LIMIT, QUOTA, *(spacing.kind for spacing in demand.spacings)}
    names = [name for name in _elements(evidence.bounds, demand, by_action=False) if name not in not_asked]
    return (*names, *shares)


def in_words_of_model(evidence: Evidence, name: str, to_place: Mapping[int, int]) -> Blocker:
    """An element of a set that the model found: that there is too little, not how much would do at the least.

    ``to_place``: pods by shape for which the model sought places.
    """
    pods = sum(evidence.demand.needed.values())
    found = Refuted("count", Shortfall("flow", pods, 0))
    element = ElementWords(evidence, evidence.demand, found, to_place).element(name)
    if element.kind not in ("resource", *(rule.kind for rule in evidence.bounds.problem.rules if rule.limits_nodes)):
        return element
    return replace(element, need=f"{counted(pods, 'pod')}, with those admitted before", have="no way to place all")


def smallest_part(ask: Callable[[frozenset[str]], object | None], names: Sequence[str]) -> list[str]:
    """Those of ``names`` that must hold for ``ask`` to say no, given what is dropped; as few as were found."""
    kept = _filter(ask, names, frozenset(names))
    return [name for name in names if name in kept]


def _filter(
    ask: Callable[[frozenset[str]], object | None], names: Sequence[str], enough: frozenset[str]
) -> frozenset[str]:
    """A smallest part of ``names`` that must hold for the bound to say no; of equals, one of those named first.

    ``enough``: a part that suffices, such as what blocked another question. If each of it is needed, no other part of
    ``names`` is as small: two questions in place of about nine.
    """
    every = frozenset(names)
    failed: list[frozenset[str]] = []  # What does not suffice, no part of it does.

    def suffices(kept: Iterable[str]) -> bool:
        kept = frozenset(kept)
        if any(kept <= more for more in failed):
            return False
        if ask(every - kept) is not None:
            return True
        failed.append(kept)
        return False

    if enough != every and not any(suffices(every - {name}) for name in names if name in enough):
        return enough

    kept = frozenset(_minimal(suffices, (), tuple(names), is_open=False))
    for size in range(1, min(len(kept), 3)):
        sets = [frozenset(found) for found in combinations(names, size)]
        for found in sets[:MOST_TRIED]:
            if not found <= kept and suffices(found):
                return found
    return kept


def _minimal(
    suffices: Callable[[Iterable[str]], bool], held: tuple[str, ...], names: tuple[str, ...], *, is_open: bool
) -> tuple[str, ...]:
    """Those of ``names`` that are needed beside ``held`` (QuickXplain: k of n in about k log n questions).

    ``is_open``: ``held`` has grown, so that it may suffice by itself.
    """
    if is_open and suffices(held):
        return ()
    if len(names) == 1:
        return names
    half = len(names) // 2
    late = _minimal(suffices, held + names[:half], names[half:], is_open=True)
    early = _minimal(suffices, held + late, names[:half], is_open=bool(late))
    return early + late


class ElementWords:
    """Elements in words, by the proof that is left when all else is dropped."""

    def __init__(
        self, evidence: Evidence, demand: Demand, found: Refuted, to_place: Mapping[int, int], *, by_action: bool = True
    ) -> None:
        """``found`` answers ``demand``.

        ``to_place``: pods by shape that need a place, of others too. ``by_action``: what an action may do, else an
        empty cluster.
        """
        self.by_action = by_action
        self.to_place = to_place
        self.bounds = evidence.bounds
        self.moment = evidence.moment
        self.problem = evidence.bounds.problem
        self.demand = demand
        self.found = found

    def element(self, name: str) -> Blocker:
        """``name`` as an element of the set."""
        if name in (LIMIT, QUOTA):
            return self._of_queue(name)
        if name == SHARE and self.found.count is None:
            return lacks_rights(self.found.need, self.found.have)
        if name in _RULES:
            return self._rule(name)
        if name == TOPOLOGY:
            return self._domain()
        if self.found.blocker is not None and self.found.kind == name:
            return self.found.blocker
        for spacing in self.demand.spacings:
            if spacing.kind == name:
                return self._spacing(spacing)
        for rule in self.problem.rules:
            if rule.kind == name:
                return rule.element(self)
        return self._resource(name)

    def _of_queue(self, kind: str) -> Blocker:
        found, title = self.found, self.problem.queues.title(self.found.queue)
        name = QUEUE_RESOURCES[found.resource]
        need, have = format_amount(name, found.need), format_amount(name, max(0, found.have))
        return Blocker(kind, title, need, have, resource=name, short=found.need - found.have)

    def _rule(self, name: str) -> Blocker:
        need, have = _RULES[name]
        if name == SHARE:
            return Blocker(SURPLUS, OTHERS, need, have)
        if name == NODE_RULES:
            admitting = max(int(self.problem.shapes.mask(shape).sum()) for shape in self.demand.needed)
            have = f"{admitting} of {len(self.problem.nodes)} nodes"
        return Blocker("rule", name, need, have)

    @property
    def count(self) -> Shortfall:
        """The count that says no."""
        if self.found.count is None:
            raise InternalError("a rule blocks, but no count says so")
        return self.found.count

    @property
    def where(self) -> str:
        """The nearest domain; empty where none must be chosen."""
        scope, where = self.demand.scope, self.count.where
        return "" if scope is None or where < 0 else scope.names[where]

    def _domain(self) -> Blocker:
        scope = self.demand.scope
        level = scope.level if scope is not None else ""
        best = f"; the nearest is {self.where}" if self.where else ""
        domains = len(scope.names) if scope is not None else 0
        return Blocker("domain", level, f"one domain of {level} with room for all", f"none of {domains}{best}")

    def free_nodes(self) -> tuple[Relaxed, BoolArray]:
        """What is free once those have left that may, and (N,) the nodes that the count is about."""
        count = self.count
        leaving = self.bounds.leaving(self.demand, self.moment) if self.by_action else self.bounds.residents.runs
        relaxed = self.bounds.residents.without(leaving, self.bounds.barred() if self.by_action else None)
        inside = relaxed.admits(self.problem, [count.shape])
        if count.where >= 0 and self.demand.scope is not None:
            inside = inside & self.demand.scope.masks[count.where]
        return relaxed, inside

    def _spacing(self, spacing: Spacing) -> Blocker:
        count = self.count
        if count.kind == "nodes":
            need, have = (f"{n} different nodes with room" for n in (count.need, count.have))
            return Blocker(spacing.kind, "different nodes", need, have)
        need = f"{counted(count.need, 'pod')} of {describe(self.problem, count.shape)}"
        return Blocker(spacing.kind, f"{spacing.says} on one node", need, f"room for {count.have:,}")

    def _resource(self, name: str) -> Blocker:
        if self.found.count is None:  # Not enough is free, and not enough may be taken.
            need, most = format_amount(name, self.found.need), most_in_words(self.found.have)
            have = f"{most} that are free or may be taken"
            return Blocker("resource", name, need, have, "", name, self.found.need - self.found.have)
        count, resource = self.count, self.problem.snapshot.schema.index(name)
        short = self.short(count, resource)
        if count.kind in ("total", "slots") and resource != count.resource:  # It blocks together with another.
            need, have = counted(sum(self.demand.needed.values()), "pod"), "room for fewer"
        elif count.kind == "total":
            need, have = (format_amount(name, amount) for amount in (count.need, max(0, count.have)))
        elif count.kind == "slots":
            need, have = (say_slots(n, count.size) for n in (count.need, count.have))
        elif count.kind == "flow":
            need, have = f"{counted(count.need, 'pod')}, with those admitted before", f"room for {count.have:,}"
        elif count.kind == "nodes":
            need, have = (f"{n} different nodes" for n in (count.need, count.have))
        else:
            asked = self.problem.shapes.shapes[count.shape].request[resource] if resource != GPU else 0
            pod = format_amount(name, asked) if asked else describe(self.problem, count.shape)
            need, have = f"{counted(count.need, 'pod')} of {pod}", f"room for {count.have:,}"
        # What blocks together with another may lack in other domains than the nearest.
        where = "" if self._is_shared_blame(count, resource) else self.where
        return Blocker("resource", name, need, have, where, name, short)

    def _is_shared_blame(self, count: Shortfall, resource: int) -> bool:
        """True where the count that is left does not say how much of the resource is short."""
        return count.kind == "flow" or (count.kind in ("total", "slots") and resource != count.resource)

    def short(self, count: Shortfall, resource: int) -> int:
        """How much more of ``resource`` would do."""
        missing = count.need - count.have
        if self._is_shared_blame(count, resource):
            # So much would surely do: how little might is not known.
            return sum(pods * self._asked(shape, resource) for shape, pods in self.to_place.items())
        if count.kind == "total":
            return missing
        if count.kind == "slots":
            return missing * count.size * MILLI
        shapes = [count.shape] if count.shape >= 0 else list(self.demand.needed)
        return missing * max(self._asked(shape, resource) for shape in shapes)

    def _asked(self, index: int, resource: int) -> int:
        shape = self.problem.shapes.shapes[index]
        if resource != GPU:
            return shape.request[resource]
        is_part = shape.gpu.devices == 1 and not shape.gpu.memory_mib
        return shape.gpu.milli if is_part else shape.gpu.devices * MILLI  # Shares of several lie on different devices.


_RULES = {
    PREEMPTIBLE: ("work that may be taken or moved", "work that is not preemptible"),
    MINRUNTIME: ("work that has run for its minimum run time", "work that started lately"),
    PRIORITY: ("work of lower priority in its queue", "none that makes room"),
    SHARE: ("work of queues above their share", "none that makes room"),
    NODE_RULES: ("nodes that take pods, and that its selectors, affinity and tolerations admit", ""),
}
"""Element: what it would need, and what there is."""
