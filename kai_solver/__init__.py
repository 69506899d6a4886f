"""kai-solver: a batch scheduler for GPU clusters that decides by constraint optimisation."""

__version__ = "0.1.0"
