"""From a snapshot to integers: shapes of pods, indices, masks, charges, eviction units."""

from kai_solver.reduction.gangs import GangShape, Leaf, TreeNode
from kai_solver.reduction.memo import Memo
from kai_solver.reduction.problem import Problem, build_problem
from kai_solver.reduction.shapes import Shape
from kai_solver.reduction.spares import SpareRule, Spares

__all__ = ["GangShape", "Leaf", "Memo", "Problem", "Shape", "SpareRule", "Spares", "TreeNode", "build_problem"]
