"""Devices for requests on one node: a bipartite matching by augmenting paths, the same for the same input."""

from collections.abc import Sequence

from kai_solver.claims.matching import Bits, devices_in


def seat(wishes: Sequence[Bits]) -> list[int] | None:
    """A device of its own for every wish (a set of devices), in the order given; None where there are too few.

    The first wishes get the first devices that leave room for the others.
    """
    taken: dict[int, int] = {}
    for number in range(len(wishes)):
        if not _place(wishes, number, taken, set()):
            return None
    by_wish = {wish: device for device, wish in taken.items()}
    return [by_wish[number] for number in range(len(wishes))]


def _place(wishes: Sequence[Bits], start: int, taken: dict[int, int], tried: set[int]) -> bool:
    """Augment from ``start``, without recursion: a node may have hundreds of devices."""
    came_from: dict[int, int] = {}
    front = [start]
    while front:
        wish = front.pop(0)
        for device in devices_in(wishes[wish]):
            if device in tried:
                continue
            tried.add(device)
            came_from[device] = wish
            if device not in taken:
                _shift(device, came_from, taken, start)
                return True
            front.append(taken[device])
    return False


def _shift(device: int, came_from: dict[int, int], taken: dict[int, int], start: int) -> None:
    """Along the path back to ``start``, every wish takes the device that was found for it."""
    while True:
        wish = came_from[device]
        previous = next((d for d, w in taken.items() if w == wish), None)
        taken[device] = wish
        if wish == start or previous is None:
            return
        del taken[previous]
        device = previous
