"""Rule ``devices``, of GPUs that must be in a row: that they will be free is known.

It is not known if some GPUs of the node failed and it is not stated which, nor beside pods with unidentified devices:
pods whose GPUs are neither stated nor wished for, or that wished for what another pod has.
"""

from collections.abc import Iterable, Iterator

from kai_solver.check.columns import stays
from kai_solver.check.scene import Arrival, Scene
from kai_solver.check.violation import Violation
from kai_solver.domain import Node, Pod
from kai_solver.units import GPU, MILLI


def judge_rows(scene: Scene) -> Iterator[Violation]:
    """No row is given if it is unknown which GPUs are free."""
    rows: dict[str, list[Arrival]] = {}
    for arrival in scene.come:
        if arrival.entry.devices and arrival.pod.gpu.row.endswith("-required"):
            rows.setdefault(arrival.node.name, []).append(arrival)
    for name, given in rows.items():
        text = _fault(scene, scene.nodes[name], given)
        if text:
            yield Violation("devices", name, f"node {name}: GPUs are given in a row, and {text}")


def _fault(scene: Scene, node: Node, given: list[Arrival]) -> str:
    if node.allocatable[GPU] < node.gpus * MILLI:
        return "some of the node cannot be had, and it is unknown which"
    leaving = scene.leaving
    here = [holder for holder in scene.holders({node.name}) if holder.pod.gpu.devices]
    at_end = [holder.pod for holder in here if stays(holder.pod, leaving)]
    unidentified = _unidentified(node, at_end)
    if unidentified:
        return f"it is unknown which {unidentified[0].key} holds, which stays"
    rowed = {device.index for arrival in given for device in arrival.entry.devices}
    wishing = next((pod for pod in at_end if not rowed.isdisjoint(_believed(pod))), None)
    if wishing is not None:
        return f"{wishing.key} stays, which may hold some of these"
    now = _unidentified(node, [holder.pod for holder in here])
    hasty = next((a for a in scene.come if a.at_once and a.entry.devices and a.node.name == node.name), None)
    if now and hasty is not None:
        return f"{hasty.entry.pod} starts while {now[0].key} still holds unknown ones"
    return ""


def _believed(pod: Pod) -> tuple[int, ...]:
    """Its GPUs, as it was told or, where not all are, as they were chosen for it."""
    return pod.devices if len(pod.devices) == pod.gpu.devices else pod.wished


def _unidentified(node: Node, pods: Iterable[Pod]) -> list[Pod]:
    """Those of ``pods`` on ``node`` with GPUs that cannot be identified beside those of the others."""
    found: list[Pod] = []
    taken: set[int] = set()
    whole: set[int] = set()
    for pod in sorted(pods, key=lambda pod: len(pod.devices) < pod.gpu.devices):
        own = set(_believed(pod))
        others = taken if pod.gpu.is_whole else whole
        if len(own) < pod.gpu.devices or not own <= set(range(node.gpus)) or not own.isdisjoint(others):
            found.append(pod)
            continue
        taken |= own
        whole |= own if pod.gpu.is_whole else set()
    return found
