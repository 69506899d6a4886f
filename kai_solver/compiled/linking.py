"""What compiled kernels keep so that others can be linked to them, and need no more once all are loaded."""

from typing import Any

from kai_solver import compiled


def forget_linking() -> None:
    """Let LLVM forget the text of loaded kernels: 17 MiB (28 November 2026). They run as before.

    numba keeps it for functions that are compiled later and call them. There are none.
    """
    dispatchers: list[Any] = list(compiled._compiled.values())  # noqa: SLF001 - of this package
    for dispatcher in dispatchers:
        for result in dispatcher.overloads.values():
            if getattr(result.library, "_shared_module", None) is not None:
                result.library._shared_module = None  # noqa: SLF001 - nothing of numba does it
