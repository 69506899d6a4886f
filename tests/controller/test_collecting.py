"""Cycles of references do not stay, although the thresholds of the collector are high."""

import gc
import threading
import weakref

from kai_solver.controller.collecting import collect_until
from tests.controller.replicas import until


class Thing:
    """Holds itself."""

    def __init__(self) -> None:
        self.itself = self


def test_cycles_of_references_are_collected_while_it_runs() -> None:
    stop = threading.Event()
    gc.disable()
    try:
        found = weakref.ref(Thing())
        assert found() is not None
        worker = threading.Thread(target=collect_until, args=(stop, 0.01))
        worker.start()
        until(lambda: found() is None)
    finally:
        gc.enable()
        stop.set()
    worker.join(10)
    assert not worker.is_alive()
