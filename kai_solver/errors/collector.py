"""Python's cyclic garbage collector, which looks for what reference counts do not free: a walk over all objects."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Pause the collector while the block runs, and spare it a walk over what the block made.

    A cycle makes many small objects and no reference cycles (`tests/engine/test_garbage.py`), so reference counts free
    them; nor does the reading of a file. Collections in the midst of a cycle cost a quarter of its time at 4,000 gangs
    (2026-11-21), the first one after it 0.26 s at 5,000 nodes, and those while 5,000 nodes and 44,000 pods were read a
    third of it (2026-11-22). Freezing and thawing puts all objects into the oldest generation.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.freeze()
            gc.unfreeze()
            gc.enable()
