"""Which gangs wait for which pods to leave: a promised gang starts when the last of its pods' places is free.

A cycle after each pod that leaves would find, again and again, that the gang still waits. So a pod that leaves is news
for a gang only if it is the last one.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable

from kai_solver.cluster.evicting import Departure


class Awaited:
    """Pods that leave, by uid, and how many each gang still waits for. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[str, Departure] = {}
        self._left: Counter[str] = Counter()

    def add(self, departures: Iterable[Departure]) -> None:
        """These pods will leave. Those that leave for no gang are not waited for."""
        with self._lock:
            for departure in departures:
                if departure.helps and departure.uid and departure.uid not in self._pods:
                    self._pods[departure.uid] = departure
                    self._left.update(departure.helps)

    def gone(self, uid: str) -> bool:
        """The pod has left; True if it left for gangs, each of which waits for other pods still."""
        with self._lock:
            departure = self._removed(uid)
            return departure is not None and all(self._left[gang] for gang in departure.helps)

    def keep(self, is_there: Callable[[str, str], bool]) -> None:
        """Forget the pods that are not there any more, by key and uid: no watch may have told that they left."""
        with self._lock:
            for uid, departure in list(self._pods.items()):
                if not is_there(departure.key, uid):
                    self._removed(uid)

    def clear(self) -> None:
        """No gang waits for a pod."""
        with self._lock:
            self._pods.clear()
            self._left.clear()

    def __len__(self) -> int:
        return len(self._pods)

    def _removed(self, uid: str) -> Departure | None:
        departure = self._pods.pop(uid, None)
        for gang in departure.helps if departure is not None else ():
            self._left[gang] -= 1
            if not self._left[gang]:
                del self._left[gang]
        return departure
