"""Cycles of references do not stay, although the thresholds of the collector are high."""

import gc
import threading
import weakref

import pytest

from kai_solver.controller import collecting
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


def test_what_is_free_after_a_collection_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: done.append("collected"))
    monkeypatch.setattr(collecting, "give_heap_back", lambda: done.append("given back"))
    stop = threading.Event()
    worker = threading.Thread(target=collect_until, args=(stop, 0.01))
    worker.start()
    until(lambda: len(done) >= 4)
    stop.set()
    worker.join(10)
    assert done[:4] == 2 * ["collected", "given back"]
