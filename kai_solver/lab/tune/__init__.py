"""Tuning: which values of a model's parameters give better plans in the same time, tested on instances held out."""

from kai_solver.lab.runs.scoring import best_values, score
from kai_solver.lab.tune.space import FORMAT, Space, read_space
from kai_solver.lab.tune.splitting import Split, split
from kai_solver.lab.tune.tuning import TuneProgress, TuneStoppedError, tune
from kai_solver.lab.tune.verdict import Side, TuneVerdict, read_verdict, verdict_text

__all__ = [
    "FORMAT",
    "Side",
    "Space",
    "Split",
    "TuneProgress",
    "TuneStoppedError",
    "TuneVerdict",
    "best_values",
    "read_space",
    "read_verdict",
    "score",
    "split",
    "tune",
    "verdict_text",
]
