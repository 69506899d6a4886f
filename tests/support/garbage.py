"""What is left to the garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def left_to_the_collector() -> Iterator[list[object]]:
    """A list that has, when the block has ended, all objects that only the garbage collector would free."""
    found: list[object] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def ours(found: list[object]) -> set[str]:
    """Names of those that are of our classes, or are functions and classes of ours."""
    things = {type(one).__qualname__ for one in found if type(one).__module__.startswith("kai_solver")}
    defined = (one for one in found if str(getattr(one, "__module__", "")).startswith("kai_solver"))
    return things | {getattr(one, "__qualname__", "") for one in defined}
