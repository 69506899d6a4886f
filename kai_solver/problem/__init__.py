"""From a snapshot to integers: shapes of pods, indices, masks, charges, eviction units."""

from kai_solver.problem.gangs import GangShape, Leaf, TreeNode
from kai_solver.problem.memo import Memo
from kai_solver.problem.problem import Problem, build_problem
from kai_solver.problem.shapes import Shape

__all__ = ["GangShape", "Leaf", "Memo", "Problem", "Shape", "TreeNode", "build_problem"]
