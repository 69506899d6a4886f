"""A process that compiles, or loads, the tests' kernels and uses them: ``use.py compile_all|load|load_kept [CPU]``.

It prints JSON: what the kernels said, whether they are loaded, how many functions numba compiled, whether numba was
imported. With the name of a CPU it runs as on a machine that has it.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from kai_solver import compiled
from kai_solver.errors import InputError
from kai_solver.errors.barrier import listening


def main(how: str, cpu: str = "") -> dict[str, Any]:
    vars(compiled)["MODULES"] = ("kernels_of_tests",)
    if cpu:
        llvm = importlib.import_module("llvmlite.binding")
        vars(llvm)["get_host_cpu_name"] = lambda: cpu
        vars(llvm)["get_host_cpu_features"] = lambda: llvm.FeatureMap({"avx512f": True})
    errors: list[str] = []
    with listening(lambda where, what, error: errors.append(f"{what}: {error}")):
        try:
            getattr(compiled, how)()
        except InputError as error:
            errors.append(str(error))
    is_numba_there = "numba" in sys.modules
    kernels = importlib.import_module("kernels_of_tests")
    board = kernels.Board(np.array([5, 3, 4]), np.array([2.0, 1.0, 1.5]))
    return {
        "found": [kernels.cheapest(board, need) for need in (2, 4, 5, 6)],
        "loaded": compiled.is_loaded(),
        "cached": compiled.is_cached(),
        "numba": is_numba_there,
        "compiled": compiled_functions() if is_numba_there else 0,
        "errors": errors,
    }


def compiled_functions() -> int:
    """Entries' overloads that were compiled here, and not read: those have metadata."""
    overloads = [one for dispatcher in vars(compiled)["_compiled"].values() for one in dispatcher.overloads.values()]
    return sum(one.metadata is not None for one in overloads)


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
