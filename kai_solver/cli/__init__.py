"""The command line. Nothing heavy is imported before a command runs: ``--help`` answers at once."""

import sys

from kai_solver.cli.exits import Exit


def main() -> None:
    """Entry point of ``kai-solver`` and ``python -m kai_solver``."""
    try:
        from kai_solver.cli.app import app

        app(prog_name="kai-solver")
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): not an error of ours. Nothing may be flushed to it at exit.
        sys.stdout = None
        sys.exit(Exit.FINE)
