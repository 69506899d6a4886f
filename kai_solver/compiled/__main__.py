"""``python -m kai_solver.compiled``: compile all kernels at the lowest priority, beside a process that goes on."""

import os
import sys

from kai_solver.compiled import compile_all
from kai_solver.errors import InputError

if __name__ == "__main__":
    os.nice(19)
    try:
        compile_all()
    except InputError as error:
        sys.exit(str(error))
