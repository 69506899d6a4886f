"""What a plan does to the pods of a gang, and to pods of others for it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, TypeVar

from kai_solver.domain import Plan
from kai_solver.units import counted

_NAMED = 4
T = TypeVar("T")

EffectKind = Literal["bound", "moved", "evicted", "others-moved", "others-evicted"]


@dataclass(frozen=True, slots=True)
class Effect:
    """What happens to some pods of a gang; ``others-``: to pods of another gang, for this one.

    ``gangs``: for which gangs, or of which gang (``others-``). ``text``: one sentence for people.
    """

    kind: EffectKind
    pods: tuple[str, ...]
    gangs: tuple[str, ...]
    text: str


def effects_of(plan: Plan, gang: str, names: Mapping[str, str]) -> tuple[Effect, ...]:
    """Effects of ``plan`` on ``gang`` (its key); ``names``: of gangs, for people."""
    return tuple(_effects(plan, gang, names))


def _effects(plan: Plan, gang: str, names: Mapping[str, str]) -> Iterator[Effect]:
    binds = [bind for bind in plan.binds if bind.gang == gang]
    for nominated, found in _grouped(binds, lambda bind: bind.nominated):
        pods = tuple(bind.pod for bind in found)
        when = ", once capacity there is released" if nominated else ""
        text = f"{counted(len(pods), 'pod gets', 'pods get')} {_listed(bind.node for bind in found)}{when}"
        yield Effect("bound", pods, (), text)
    moves = [move for move in plan.moves if move.gang == gang]
    for (helps, cause), own in _grouped(moves, lambda move: (move.helps, move.cause)):
        pods = tuple(move.pod for move in own)
        where = f"from {_listed(move.source for move in own)} to {_listed(move.target for move in own)}"
        why = ", as its node is to be drained" if cause == "drain" else _for(helps, names)
        text = f"{counted(len(pods), 'pod moves', 'pods move')} {where}{why}"
        yield Effect("moved", pods, helps, text)
    evictions = [eviction for eviction in plan.evictions if eviction.gang == gang]
    for (reason, helps), gone in _grouped(evictions, lambda eviction: (eviction.reason, eviction.helps)):
        pods = tuple(eviction.pod for eviction in gone)
        yield Effect("evicted", pods, helps, f"{counted(len(pods), 'pod')} evicted by {reason}{_for(helps, names)}")
    leaving = [eviction for eviction in plan.evictions if gang in eviction.helps]
    for (other, reason), gone in _grouped(leaving, lambda eviction: (eviction.gang, eviction.reason)):
        pods = tuple(eviction.pod for eviction in gone)
        text = f"For it, {counted(len(pods), 'pod')} of {names.get(other, other)} evicted by {reason}"
        yield Effect("others-evicted", pods, (other,), text)
    giving_way = [move for move in plan.moves if gang in move.helps]
    for other, own in _grouped(giving_way, lambda move: move.gang):
        pods = tuple(move.pod for move in own)
        targets = _listed(move.target for move in own)
        text = f"For it, {counted(len(pods), 'pod')} of {names.get(other, other)} moved to {targets}"
        yield Effect("others-moved", pods, (other,), text)


def _grouped(entries: Iterable[T], key: Callable[[T], Any]) -> Iterator[tuple[Any, list[T]]]:
    return ((value, list(found)) for value, found in groupby(sorted(entries, key=key), key=key))


def _listed(nodes: Iterable[str]) -> str:
    found = list(dict.fromkeys(nodes))
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more


def _for(helps: tuple[str, ...], names: Mapping[str, str]) -> str:
    return f" for {_listed(names.get(gang, gang) for gang in helps)}" if helps else ""
