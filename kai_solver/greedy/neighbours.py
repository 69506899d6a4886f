"""Who is beside whom when a cycle begins, as far as rules and wishes between pods go."""

from kai_solver.domain import PodStatus
from kai_solver.predicates import PodAffinityIndex
from kai_solver.reduction import Problem


def neighbours(problem: Problem, *, leaving: bool) -> PodAffinityIndex | None:
    """State of rules and wishes between pods; None where no pod has any. ``leaving``: count those that leave too."""
    if not any(shape.constraints.speaks_of_pods for shape in problem.shapes.shapes):
        return None
    index = PodAffinityIndex(problem.nodes, problem.predicates)
    for number, pod in enumerate(problem.pods):
        stays = leaving or pod.status is not PodStatus.RELEASING
        if problem.pod_node[number] >= 0 and pod.status.holds_resources and stays:
            index.place(pod, problem.pod_node[number])
    return index
