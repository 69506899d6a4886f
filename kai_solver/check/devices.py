"""Rule ``devices``: which GPUs of a node the new pods take, and whether they are free."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from kai_solver.check.capacity import Load
from kai_solver.check.columns import Flags, Integers
from kai_solver.check.parts import charged_on, device_of, devices_of, memory_of, share_on
from kai_solver.check.scene import Scene, destination
from kai_solver.check.violation import Violation
from kai_solver.domain import Bind, GpuRequest, Move, Node, Pod
from kai_solver.units import MILLI, PODS


@dataclass(slots=True)
class Board:
    """The GPUs of one node and the pods on them.

    Attributes
    ----------
    names
        Indices of the device groups (KAI's names) of which some pod tells both.
    taken
        Amounts taken of devices with a known index (`check.parts`, as all amounts here).
    shared
        Indices that some known pod shares.
    groups
        What is taken of shared devices that are known by KAI's name only.
    whole
        Whole devices of which nothing else is known.
    loose
        Such shares, for each pod that has some: the part of a device, and how many devices it shares.
    given
        Indices that the plan gives to new pods.
    opened
        Those among them that are shared and that no running pod is known to share.
    rows
        Those among them that have to be in a row.
    """

    node: Node
    names: dict[str, int] = field(default_factory=dict)
    taken: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    shared: set[int] = field(default_factory=set)
    groups: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    whole: int = 0
    loose: list[tuple[int, int]] = field(default_factory=list)
    given: set[int] = field(default_factory=set)
    opened: set[int] = field(default_factory=set)
    rows: set[int] = field(default_factory=set)

    def seat(self, pod: Pod) -> None:
        """Seat a pod that runs."""
        part = share_on(self.node, pod.gpu)
        if pod.gpu.is_whole and len(pod.devices) == pod.gpu.devices:
            for known in pod.devices:
                self.taken[known] += part
            return
        unknown = 0
        for place in range(devices_of(pod.gpu)):
            index = _index(pod, place, self.names)
            if index is not None:
                self.taken[index] += part
                if pod.gpu.is_shared:
                    self.shared.add(index)
            elif pod.gpu.is_whole:
                self.whole += 1
            elif place < len(pod.gpu_groups):
                self.groups[pod.gpu_groups[place]] += part
            else:
                unknown += 1
        if unknown:
            self.loose.append((part, unknown))

    def give(self, entry: Bind | Move, request: GpuRequest) -> None:
        """Seat a new pod on the devices that the plan names."""
        is_shared, part = request.is_shared, share_on(self.node, request)
        for device in entry.devices:
            self.taken[device.index] += part
            self.given.add(device.index)
            if request.row.endswith("-required"):
                self.rows.add(device.index)
            if is_shared and device.index not in self.shared:
                self.opened.add(device.index)

    def copy(self) -> "Board":
        """An independent copy."""
        return replace(
            self, taken=self.taken.copy(), shared=set(self.shared), groups=self.groups.copy(), loose=list(self.loose)
        )

    def admits(self, pod: Pod) -> bool:
        """Seat ``pod`` where it ran and tell whether all still have their GPUs; unseat it where not.

        No pod stays that may have some of the GPUs which were given in a row: that they are free must be known.
        """
        if (
            self.rows
            and len(pod.devices) < pod.gpu.devices
            and (not pod.wished or not self.rows.isdisjoint(pod.wished))
        ):
            return False
        taken, groups, whole, loose = self.taken.copy(), self.groups.copy(), self.whole, list(self.loose)
        self.seat(pod)
        if not self.overfull() and self.seats_unknown(certainly=True):
            return True
        self.taken, self.groups, self.whole, self.loose = taken, groups, whole, loose
        return False

    @property
    def reservations(self) -> int:
        """Reservation pods, one for each shared device: at least so many, where devices are not known."""
        return max(len(self.shared | self.opened), len(self.groups))

    def overfull(self) -> list[int]:
        """Indices of devices that are taken more than once over."""
        whole = device_of(self.node)
        return [index for index, taken in self.taken.items() if taken > whole]

    def seats_unknown(self, *, certainly: bool = False) -> bool:
        """True where pods of unknown devices still find some.

        Groups and whole devices are distinct devices: the largest demand meets the emptiest device. Shares of which
        not even a group is known are only counted, and those of one pod are on devices of their own; ``certainly``: all
        have to fit what devices have left.
        """
        whole = device_of(self.node)
        free = sorted((whole - self.taken.get(index, 0) for index in range(self.node.gpus)), reverse=True)
        wanted = sorted([whole] * self.whole + list(self.groups.values()), reverse=True)
        if len(wanted) > len(free) or any(want > room for want, room in zip(wanted, free, strict=False)):
            return False
        left = [room - want for room, want in zip(free, wanted + [0] * len(free), strict=False)]
        if certainly:
            return _first_fit(self.loose, left)
        if any(sum(room >= share for room in left) < count for share, count in self.loose):
            return False
        return sum(share * count for share, count in self.loose) <= sum(room for room in left if room > 0)


def _first_fit(shares: list[tuple[int, int]], rooms: list[int]) -> bool:
    """True where the shares, largest first, find devices, several of one pod on as many; False may only mean that this
    order fails.
    """
    for share, count in sorted(shares, reverse=True):
        fitting = sorted((index for index, room in enumerate(rooms) if room >= share), key=rooms.__getitem__)
        if len(fitting) < count:
            return False
        for index in fitting[:count]:
            rooms[index] -= share
    return True


def _index(pod: Pod, place: int, names: dict[str, int]) -> int | None:
    if place < len(pod.devices):
        return pod.devices[place]
    if place < len(pod.gpu_groups):
        return names.get(pod.gpu_groups[place])
    return None


def set_boards(scene: Scene, *, end: bool, only: Collection[str]) -> dict[str, Board]:
    """Boards of the nodes ``only``, now or finally, with the plan's pods placed on them."""
    boards = {name: Board(scene.nodes[name]) for name in only}
    if not boards:
        return boards
    chosen = np.array([name in boards for name in scene.concerned], dtype=np.bool_)
    here = np.flatnonzero(chosen[scene.held.rows])
    pods, is_there = scene.held.pods, scene.held.at(end=end)[here].tolist()
    for place in here.tolist():
        pod = pods[place]
        if pod.gpu_groups and pod.devices:
            boards[pod.node].names.update(zip(pod.gpu_groups, pod.devices, strict=False))
    for place, there in zip(here.tolist(), is_there, strict=True):
        if there and (pod := pods[place]).gpu.devices:
            boards[pod.node].seat(pod)
    for place in np.flatnonzero(chosen[scene.got.rows] & scene.got.at(end=end)).tolist():
        entry, pod, node, _ = scene.come[place]
        if entry.devices:
            boards[node.name].give(entry, pod.gpu)
    return boards


def judge_devices(scene: Scene, now: Load, end: Load) -> Iterator[Violation]:
    """Devices match the request, exist, are distinct, and none is given more than once over."""
    faults = list(_mismatches(scene))
    if faults:
        yield from faults
        return
    held, got = scene.held, scene.got
    final = np.zeros(len(scene.concerned), dtype=np.bool_)
    final[got.rows] = _crowded(scene, end)[got.rows]
    final[got.rows[scene.kinds.flags(_asks)[got.kinds]]] = True
    # Where no pod leaves, what holds finally holds now.
    at_once, left = np.zeros_like(final), np.zeros_like(final)
    at_once[got.rows[got.now]] = left[held.rows[~held.end]] = True
    at_end, earlier = _Doubts(scene, final, end=True), _Doubts(scene, final & left & at_once, end=False)
    for name in dict.fromkeys(sorted([*at_end.boards, *earlier.boards])):
        text = at_end.fault(name, end)
        waiting = "" if text else earlier.fault(name, now)
        if text or waiting:
            when = " while victims and releasing pods still hold theirs" if waiting else ""
            yield Violation("devices", name, f"node {name}: {text or waiting}{when}")


class _Doubts:
    """Boards, at one moment, of the nodes of which a count does not show that all is well.

    It does if all pods with GPUs have whole devices, of which all are known or none: no new pod is given what another
    has, and as many are left as the pods have of which none are known.
    """

    def __init__(self, scene: Scene, judged: Flags, *, end: bool) -> None:
        self._scene, self._judged, self._end = scene, judged, end
        self._gpus = np.array([node.gpus for node in scene.concerned.values()], dtype=np.int64)
        doubtful = self._doubtful() if judged.any() else judged
        names = list(scene.concerned)
        self.boards = set_boards(scene, end=end, only=[names[row] for row in np.flatnonzero(doubtful).tolist()])

    def fault(self, name: str, load: Load) -> str:
        """What is wrong with the GPUs of a node; empty if nothing is."""
        return _fault(self.boards[name], load) if name in self.boards else ""

    def _doubtful(self) -> Flags:
        """(N,) nodes of which a board has to tell."""
        held, got, width = self._scene.held, self._scene.got, int(self._gpus.max())
        whole = self._scene.kinds.flags(lambda gpu: gpu.is_whole)
        with_devices = self._scene.kinds.flags(_asks)
        here = self._judged[held.rows] & held.at(end=self._end) & with_devices[held.kinds]
        new = self._judged[got.rows] & got.at(end=self._end) & with_devices[got.kinds]
        doubtful = np.zeros_like(self._judged)
        doubtful[held.rows[here & ~whole[held.kinds]]] = doubtful[got.rows[new & ~whole[got.kinds]]] = True
        taken, unknown = self._taken(np.flatnonzero(here & whole[held.kinds]), doubtful, width)
        given = self._given(np.flatnonzero(new), width)
        free = self._gpus - np.count_nonzero(taken + given, axis=1)
        doubtful |= (unknown > free) | ((given > 0) & (taken + given > 1)).any(axis=1)
        return doubtful

    def _taken(self, places: Integers, doubtful: Flags, width: int) -> tuple[Integers, Integers]:
        """(N, width) how many pods have each device, and (N,) how many devices others have; and it notes doubts."""
        pods, sizes, unknown = self._scene.held.pods, self._gpus.tolist(), np.zeros_like(self._gpus)
        known: list[int] = []
        for place, row in zip(places.tolist(), self._scene.held.rows[places].tolist(), strict=True):
            pod = pods[place]
            if len(pod.devices) == pod.gpu.devices:
                known += [row * width + index for index in pod.devices if 0 <= index < sizes[row]]
            elif pod.devices or pod.gpu_groups:
                doubtful[row] = True
            else:
                unknown[row] += pod.gpu.devices
        return _counted(known, self._gpus.size, width), unknown

    def _given(self, places: Integers, width: int) -> Integers:
        """(N, width) how many new pods are given each device."""
        come, rows = self._scene.come, self._scene.got.rows[places].tolist()
        given = [
            row * width + device.index
            for place, row in zip(places.tolist(), rows, strict=True)
            for device in come[place].entry.devices
        ]
        return _counted(given, self._gpus.size, width)


def _counted(keys: list[int], nodes: int, width: int) -> Integers:
    return np.bincount(np.array(keys, dtype=np.int64), minlength=nodes * width).reshape(nodes, width)


def _asks(request: GpuRequest) -> bool:
    return request.devices > 0


def _crowded(scene: Scene, load: Load) -> Flags:
    """[nodes] True where the reservation pods of all devices of a node would not find slots beside its pods."""
    gpus = np.array([node.gpus for node in scene.concerned.values()], dtype=np.int64)
    crowded: Flags = load.used[:, PODS] + gpus > load.allocatable[:, PODS]
    return crowded


def _fault(board: Board, load: Load) -> str:
    # An over-full device that no new pod sits on was so before.
    for index in board.overfull():
        if index in board.given:
            return f"GPU {index} is given {board.taken[index] / memory_of(board.node):.15g}m of {MILLI}m"
    if (board.whole or board.groups or board.loose) and not board.seats_unknown():
        return "pods with unknown devices hold its GPUs"
    row = load.index[board.node.name]
    used, of = load.used[row, PODS], load.allocatable[row, PODS]
    if load.added[row, PODS] and used <= of < used + board.reservations:
        return f"{used} pods and {board.reservations} reservation pods of shared GPUs have {of} slots"
    return ""


def _mismatches(scene: Scene) -> Iterator[Violation]:
    """Entries whose devices are not what their pods ask for, or not what their nodes have."""
    right: set[tuple[int, int, int, int]] = set()
    for arrival in scene.come:
        # Entries share their devices: what was right for one is for all of the same pods on the same kind of node.
        key = id(arrival.pod.gpu), id(arrival.entry.devices), arrival.node.gpus, arrival.node.gpu_memory_mib
        if key in right:
            continue
        fault = _mismatch(scene, arrival.entry)
        if fault is None:
            right.add(key)
        else:
            yield fault


def _not_in_row(entry: Bind | Move, request: GpuRequest) -> Violation | None:
    """What is wrong with the indices of GPUs that must follow each other."""
    if not request.row.endswith("-required"):
        return None
    given = sorted(device.index for device in entry.devices)
    is_row = given == list(range(given[0], given[0] + len(given)))
    if is_row and (not request.row.startswith("aligned") or given[0] % len(given) == 0):
        return None
    asked = "aligned in" if request.row.startswith("aligned") else "in"
    text = f"pod {entry.pod}: given GPUs {', '.join(map(str, given))}, asked for {len(given)} {asked} a row"
    return Violation("devices", entry.pod, text)


def _mismatch(scene: Scene, entry: Bind | Move) -> Violation | None:
    request = scene.pods[entry.pod].gpu
    node = scene.nodes[destination(entry)]
    milli = charged_on(node, request)
    if len(entry.devices) == request.devices == len({device.index for device in entry.devices}):
        for device in entry.devices:
            if device.milli != milli or not 0 <= device.index < node.gpus:
                break
        else:
            return _not_in_row(entry, request)
    if len(entry.devices) != request.devices:
        text = f"given {len(entry.devices)} GPUs, asked for {request.devices}"
    elif len({device.index for device in entry.devices}) < len(entry.devices):
        text = "given the same GPU twice"
    elif not all(0 <= device.index < node.gpus for device in entry.devices):
        text = f"given a GPU that node {node.name} does not have (it has {node.gpus})"
    else:
        given = [device.milli for device in entry.devices]
        text = f"given {given} thousandths of its GPUs, needs {milli} of each"
    return Violation("devices", entry.pod, f"pod {entry.pod}: {text}")
