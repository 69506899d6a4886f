"""Rules ``form`` and ``foreign``: every entry of the plan names what exists and may be touched at all."""

from collections import Counter
from collections.abc import Iterator

from kai_solver.check.accounts import QueueTree
from kai_solver.check.scene import Scene, destination, is_active
from kai_solver.check.violation import Violation
from kai_solver.domain import Bind, Eviction, Move, Pod, PodStatus

Entry = Bind | Move | Eviction


def judge_form(scene: Scene, tree: QueueTree) -> Iterator[Violation]:
    """Unknown names, pods touched twice, pods in the wrong state, pods that are not ours to touch."""
    yield from _touched_twice(scene)
    for entry in _not_plainly_right(scene):
        yield from _faults(scene, entry)
    for change in scene.changes.values():
        if (change.binds or change.moves) and change.gang.queue not in tree.paths:
            text = f"gang {change.gang.key}: its queue {change.gang.queue!r} is not a leaf of the queue tree"
            yield Violation("form", change.gang.key, text)
    for gang in scene.actions:
        if gang not in scene.gangs:
            yield Violation("form", gang, f"admitted: no gang {gang}")


def _not_plainly_right(scene: Scene) -> list[Entry]:
    """All but most entries: a waiting pod of a gang of ours gets a node, or a running one is evicted from its own."""
    owners, pods, gangs, nodes, pending = scene.owners, scene.pods, scene.gangs, scene.nodes, PodStatus.PENDING
    found: list[Entry] = []
    for bind in scene.plan.binds:
        owner = owners.get(bind.pod)
        is_ours = owner is not None and not owner.set_aside and gangs.get(bind.gang) is owner
        if not is_ours or pods[bind.pod].status is not pending or bind.node not in nodes:
            found.append(bind)
    found += scene.plan.moves
    for gone in scene.plan.evictions:
        owner = owners.get(gone.pod)
        is_ours = owner is not None and not owner.set_aside and gangs.get(gone.gang) is owner
        if not is_ours or not _is_there(pods[gone.pod], gone.node) or gone.node not in nodes:
            found.append(gone)
    return found


def _is_there(pod: Pod, node: str) -> bool:
    return pod.status.is_active and pod.node == node


def _faults(scene: Scene, entry: Entry) -> Iterator[Violation]:
    fault = _untouchable(scene, entry) or _unknown(scene, entry) or _wrong_state(scene, entry)
    if fault is not None:
        yield fault


def _touched_twice(scene: Scene) -> Iterator[Violation]:
    plan = scene.plan
    keys = [bind.pod for bind in plan.binds] + [move.pod for move in plan.moves] + [gone.pod for gone in plan.evictions]
    for pod, count in Counter(keys).items() if len(set(keys)) < len(keys) else ():
        if count > 1:
            yield Violation("form", pod, f"pod {pod}: {count} entries in the plan, at most one is allowed")


def _untouchable(scene: Scene, entry: Entry) -> Violation | None:
    if entry.pod in scene.foreign:
        return Violation("foreign", entry.pod, f"pod {entry.pod}: belongs to another scheduler")
    owner = scene.owners.get(entry.pod)
    if owner is not None and owner.set_aside:
        return Violation("foreign", entry.pod, f"pod {entry.pod}: its gang is set aside ({owner.set_aside})")
    return None


def _unknown(scene: Scene, entry: Entry) -> Violation | None:
    owner = scene.owners.get(entry.pod)
    node = entry.node if isinstance(entry, Eviction) else destination(entry)
    if owner is None:
        return Violation("form", entry.pod, f"pod {entry.pod}: no such pod")
    if entry.gang not in scene.gangs:
        return Violation("form", entry.pod, f"pod {entry.pod}: no gang {entry.gang}")
    if owner.key != entry.gang:
        return Violation("form", entry.pod, f"pod {entry.pod}: belongs to gang {owner.key}, not {entry.gang}")
    if node not in scene.nodes:
        return Violation("form", entry.pod, f"pod {entry.pod}: no node {node}")
    return None


def _wrong_state(scene: Scene, entry: Entry) -> Violation | None:
    pod = scene.pods[entry.pod]
    if isinstance(entry, Bind):
        # A gated pod is judged by `readiness`.
        if pod.status not in (PodStatus.PENDING, PodStatus.GATED):
            return Violation("form", entry.pod, f"pod {entry.pod}: bound though it is {pod.status.value}")
        return None
    if not is_active(pod):
        verb = "moved" if isinstance(entry, Move) else "evicted"
        return Violation("form", entry.pod, f"pod {entry.pod}: {verb} though it is {pod.status.value}")
    where = entry.source if isinstance(entry, Move) else entry.node
    if where != pod.node:
        return Violation("form", entry.pod, f"pod {entry.pod}: runs on {pod.node}, not on {where}")
    if where not in scene.nodes:
        return Violation("form", entry.pod, f"pod {entry.pod}: no node {where}")
    if isinstance(entry, Move) and entry.target == pod.node and not _changes_device(entry, pod):
        return Violation("form", entry.pod, f"pod {entry.pod}: moved to {entry.target}, where it is")
    return None


def _changes_device(move: Move, pod: Pod) -> bool:
    """True where a shared GPU or a NUMA zone is left for another one of the same node; whole GPUs are all equal."""
    was, becomes = ({s.zone: dict(s.amounts) for s in shares} for shares in (pod.zones, move.zones))
    other_zones = bool(was) and was != becomes
    return other_zones or (pod.gpu.is_shared and {device.index for device in move.devices} != set(pod.devices))
