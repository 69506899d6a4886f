"""The command line. Nothing heavy is imported before a command runs: ``--help`` answers at once."""

import gc
import io
import os
import sys

_COLLECTED_AFTER = (50_000, 20, 20)
"""What the garbage collector waits for. Python's own thresholds make it go through all modules and objects many times,
and it finds nothing, for they are no cycles. It took 0.07 of 0.65 s of CPU of a small solve (23 November 2026), and in
the controller, which reads 4,000 pods in 20 cycles, 1 of 2.7 s of CPU; 0.3 s with these (22 November 2026)."""


def main() -> None:
    """Entry point of ``kai-solver`` and ``python -m kai_solver``."""
    gc.set_threshold(*_COLLECTED_AFTER)
    _prepare_streams()
    try:
        from kai_solver.cli.app import app  # After the line above: the collector runs while this is imported.

        app(prog_name="kai-solver")
    except KeyboardInterrupt:
        sys.exit(130)  # `exits.Exit.INTERRUPTED`, whose import may be what was interrupted
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): not an error of ours. Nothing may be flushed to it at exit.
        sys.stdout = None
        sys.exit()
    finally:
        gc.freeze()  # Python collects again as it ends: 0.25 of 0.84 s of CPU of a small solve (27 November 2026).


def _prepare_streams() -> None:
    """Open the standard streams that the parent closed (``>&-``), to nowhere; else the next file gets their number.

    Characters that the terminal's encoding lacks are escaped, on standard output as Python does on standard error.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free: this one
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
