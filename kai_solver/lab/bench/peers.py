"""What another scheduler reached on an instance, where its outcome stands beside the file."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import zstandard

from kai_solver.domain import Plan, PodStatus, Snapshot
from kai_solver.errors import InputError

COMPRESSED = ".zst"


@dataclass(frozen=True, slots=True)
class Reached:
    """An outcome in comparable numbers.

    Attributes
    ----------
    full, partial
        Gangs that had waiting pods and got a place for all of them, or for some.
    evicted, moved
        Pods.
    """

    full: frozenset[str]
    partial: frozenset[str]
    evicted: int
    moved: int

    @property
    def placed(self) -> frozenset[str]:
        """Gangs that got anything."""
        return self.full | self.partial


@dataclass(frozen=True, slots=True)
class Peer:
    """A recorded outcome: ``name`` is the middle of the file's name, ``cycle_ms`` its own timing."""

    name: str
    reached: Reached
    cycle_ms: float


def peers_beside(instance: Path, snapshot: Snapshot) -> Iterator[Peer]:
    """Outcomes recorded as ``<instance>.kai-*.json`` (or ``.json.zst``) beside the instance.

    Raises
    ------
    InputError
        One of them cannot be used.
    """
    stem = instance.name.removesuffix(COMPRESSED).removesuffix(".json")
    for path in sorted(instance.parent.glob(f"{_escaped(stem)}.kai-*.json*")):
        yield _read_peer(path, path.name[len(stem) + 1 :].split(".json")[0], snapshot)


def is_peer_file(path: Path) -> bool:
    """True for a recorded outcome, which is not an instance."""
    return ".kai-" in path.name


def _read_peer(path: Path, name: str, snapshot: Snapshot) -> Peer:
    try:
        raw = path.read_bytes()
        if path.suffix == COMPRESSED:
            raw = zstandard.ZstdDecompressor().decompress(raw, max_output_size=1 << 30)
        document = orjson.loads(raw)
        tasks = {task: str(state["status"]) for task, state in document["tasks"].items()}
        summary = document["summary"]
        evicted, moved = int(summary["tasks_evicted"]), int(summary["tasks_moved"])
        cycle_ms = float(document.get("timing_ms", {}).get("cycle", 0.0))
    except (OSError, zstandard.ZstdError, orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"not a recorded outcome: {error!r}", file=str(path)) from error
    placed = {task for task, status in tasks.items() if status in ("Binding", "Pipelined", "Running", "Bound")}
    full, partial = _served(snapshot, placed)
    return Peer(name, Reached(full, partial, evicted, moved), cycle_ms)


def reached_by(snapshot: Snapshot, plan: Plan) -> Reached:
    """What ``plan`` reaches, counted as the peers' outcomes are."""
    names = {pod.key: pod.name for gang in snapshot.gangs for pod in gang.pods}
    full, partial = _served(snapshot, {names[bind.pod] for bind in plan.binds})
    return Reached(full, partial, len(plan.evictions), len(plan.moves))


def _served(snapshot: Snapshot, placed: set[str]) -> tuple[frozenset[str], frozenset[str]]:
    """(fully, partly) served gangs among those with waiting pods; ``placed`` holds pod names."""
    full, partial = set(), set()
    for gang in snapshot.gangs:
        waiting = [pod.name in placed for pod in gang.pods if pod.status is PodStatus.PENDING]
        if waiting and all(waiting):
            full.add(gang.key)
        elif any(waiting):
            partial.add(gang.key)
    return frozenset(full), frozenset(partial)


def shortfall(ours: Reached, peer: Peer) -> str:
    """Why the peer's outcome is better than ours; empty when it is not.

    Better: more gangs placed, or the same gangs with fewer pods evicted. Moves are not judged.
    """
    theirs = peer.reached
    if len(ours.placed) < len(theirs.placed) or len(ours.full) < len(theirs.full):
        return (
            f"{peer.name} places {len(theirs.full)} gangs ({len(theirs.placed)} with parts), "
            f"we {len(ours.full)} ({len(ours.placed)})"
        )
    if ours.placed == theirs.placed and ours.full == theirs.full and ours.evicted > theirs.evicted:
        return f"{peer.name} evicts {theirs.evicted} pods for the same gangs, we {ours.evicted}"
    return ""


def _escaped(stem: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in stem)
