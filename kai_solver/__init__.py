"""kai-solver: a batch scheduler for GPU clusters that decides by constraint optimisation.

What Python programs may use is here, and in ``docs/python.md`` with an example each::

    import kai_solver

    solution = kai_solver.solve("cluster.yaml")
    print(solution.frame("pending"))

All of it is imported when it is first used: the command line needs little of it, and waits for none.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

__all__ = [
    "Comparison",
    "Explanations",
    "Finding",
    "Findings",
    "InputError",
    "Instance",
    "KaiSolverError",
    "LimitExceededError",
    "ModelFileError",
    "Simulation",
    "Solution",
    "__version__",
    "compare",
    "explain",
    "load",
    "simulate",
    "solve",
    "validate",
]


def __getattr__(name: str) -> Any:
    """A public name, when it is first used (PEP 562). ``__init__.pyi`` says the same to type checkers and editors."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = import_module(f"{__name__}.{'errors' if name.endswith('Error') else 'library'}")
    return globals().setdefault(name, getattr(room, name))


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted({*globals(), *__all__})
