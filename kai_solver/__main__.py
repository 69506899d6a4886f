"""``python -m kai_solver``."""

from kai_solver.cli import main

if __name__ == "__main__":
    main()
