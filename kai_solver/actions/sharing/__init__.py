"""Victims assigned to the admissions of a finished cycle, where it is known what leaves and what is admitted."""

from kai_solver.actions.sharing.share import BY_WEIGHT, Tries, share_out
from kai_solver.actions.sharing.victims import Shared, VictimGroup

__all__ = ["BY_WEIGHT", "Shared", "Tries", "VictimGroup", "share_out"]
