"""Why: pending gangs, lost places, and the queues in numbers. Presents what a plan holds; decides nothing."""

from kai_solver.explaining.aftermath import carried_out
from kai_solver.explaining.comparison import Difference, Placing, PlanFigures, differences, placings, plan_figures
from kai_solver.explaining.cures import Cure, cures
from kai_solver.explaining.domain_lines import DomainLine, domain_lines
from kai_solver.explaining.easing import eased
from kai_solver.explaining.effects import Effect
from kai_solver.explaining.explain import Explainer, explain_gang
from kai_solver.explaining.explanation import Explanation, NodeReason, PodFit, QueueLine
from kai_solver.explaining.gpu_boards import GpuBoard, GpuBoards, Holder
from kai_solver.explaining.names import find_gang
from kai_solver.explaining.queue_lines import fair_share_lines, queue_line

__all__ = [
    "Cure",
    "Difference",
    "DomainLine",
    "Effect",
    "Explainer",
    "Explanation",
    "GpuBoard",
    "GpuBoards",
    "Holder",
    "NodeReason",
    "Placing",
    "PlanFigures",
    "PodFit",
    "QueueLine",
    "carried_out",
    "cures",
    "differences",
    "domain_lines",
    "eased",
    "explain_gang",
    "fair_share_lines",
    "find_gang",
    "placings",
    "plan_figures",
    "queue_line",
]
