"""Rule ``devices``: which GPUs of a node the new pods take, and whether they are free."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial

from kai_solver.check.capacity import Load, stays
from kai_solver.check.parts import charged_on, device_of, memory_of, share_on
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
    whole, loose
        Whole devices, and shares, of which nothing else is known.
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
    loose: list[int] = field(default_factory=list)
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
        for place in range(pod.gpu.devices):
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
                self.loose.append(part)

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
        not even a group is known are only counted; ``certainly``: each has to fit what one device has left.
        """
        whole = device_of(self.node)
        free = sorted((whole - self.taken.get(index, 0) for index in range(self.node.gpus)), reverse=True)
        wanted = sorted([whole] * self.whole + list(self.groups.values()), reverse=True)
        if len(wanted) > len(free) or any(want > room for want, room in zip(wanted, free, strict=False)):
            return False
        left = [room - want for room, want in zip(free, wanted + [0] * len(free), strict=False)]
        if certainly:
            return _first_fit(self.loose, left)
        return sum(self.loose) <= sum(room for room in left if room > 0)


def _first_fit(shares: list[int], rooms: list[int]) -> bool:
    """True where the shares, largest first, each find a device; False may only mean that this order fails."""
    for share in sorted(shares, reverse=True):
        fitting = [index for index, room in enumerate(rooms) if room >= share]
        if not fitting:
            return False
        rooms[min(fitting, key=rooms.__getitem__)] -= share
    return True


def _index(pod: Pod, place: int, names: dict[str, int]) -> int | None:
    if place < len(pod.devices):
        return pod.devices[place]
    if place < len(pod.gpu_groups):
        return names.get(pod.gpu_groups[place])
    return None


FinalBoards = Callable[[], Mapping[str, Board]]
"""Gives the boards of all nodes that the plan names, as they are finally; they are set once."""


def final_boards_of(scene: Scene) -> FinalBoards:
    """The final boards of ``scene``, which are set when they are first asked for. Copy what you change."""
    return cache(partial(set_boards, scene, at_end=True, only=scene.concerned))


def set_boards(scene: Scene, *, at_end: bool, only: Iterable[str]) -> dict[str, Board]:
    """Boards of the nodes ``only``, now or finally, with the plan's pods placed on them."""
    boards = {name: Board(scene.nodes[name]) for name in only}
    if not boards:
        return boards
    leaving = scene.leaving() if at_end else set()
    _name_groups(scene, boards)
    for holder in scene.holders:
        board = boards.get(holder.pod.node)
        if board is not None and holder.pod.gpu.devices and (not at_end or stays(holder, leaving)):
            board.seat(holder.pod)
    for entry, pod, node, at_once in scene.come:
        if entry.devices and (at_end or at_once) and (board := boards.get(node.name)) is not None:
            board.give(entry, pod.gpu)
    return boards


def _name_groups(scene: Scene, boards: dict[str, Board]) -> None:
    for holder in scene.holders:
        pod = holder.pod
        if pod.gpu_groups and pod.devices and pod.node in boards:
            boards[pod.node].names.update(zip(pod.gpu_groups, pod.devices, strict=False))


def judge_devices(scene: Scene, now: Load, end: Load, final_boards: FinalBoards) -> Iterator[Violation]:
    """Devices match the request, exist, are distinct, and none is given more than once over."""
    faults = list(_mismatches(scene))
    if faults:
        yield from faults
        return
    given = {arrival.node.name for arrival in scene.come if arrival.entry.devices}
    final = given | {name for name in {a.node.name for a in scene.come} - given if _is_crowded(scene, name, end)}
    # Where no pod leaves, what holds finally holds now.
    leaving = scene.leaving()
    left = {holder.pod.node for holder in scene.holders if not stays(holder, leaving)} & final
    at_once = left & {arrival.node.name for arrival in scene.come if arrival.at_once}
    texts = {name: _fault(board, now) for name, board in set_boards(scene, at_end=False, only=at_once).items()}
    boards = final_boards() if final else {}
    for name in (name for name in scene.concerned if name in final):
        text = _fault(boards[name], end)
        waiting = f"{texts.get(name)} while victims and releasing pods still hold theirs" if texts.get(name) else ""
        if text or waiting:
            yield Violation("devices", name, f"node {name}: {text or waiting}")


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


def _is_crowded(scene: Scene, name: str, load: Load) -> bool:
    """True where the reservation pods of all devices of the node would not find slots beside its pods."""
    row = load.index[name]
    return bool(load.used[row, PODS] + scene.nodes[name].gpus > load.allocatable[row, PODS])


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
