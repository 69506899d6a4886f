"""The groupers there are: ours, and those of other packages."""

from functools import lru_cache
from importlib.metadata import EntryPoint

from kai_solver.errors import InputError
from kai_solver.errors.extensions import entry_points
from kai_solver.kubeobjects.grouping.batch import JobGrouper
from kai_solver.kubeobjects.grouping.deployment import DeploymentGrouper
from kai_solver.kubeobjects.grouping.grove import GroveGrouper
from kai_solver.kubeobjects.grouping.jobid import JobIdGrouper
from kai_solver.kubeobjects.grouping.jobset import JobSetGrouper
from kai_solver.kubeobjects.grouping.knative import KnativeGrouper
from kai_solver.kubeobjects.grouping.kubeflow import KubeflowGrouper
from kai_solver.kubeobjects.grouping.lws import LeaderWorkerSetGrouper
from kai_solver.kubeobjects.grouping.model import PodGrouper
from kai_solver.kubeobjects.grouping.plain import DefaultGrouper
from kai_solver.kubeobjects.grouping.platforms import AmlGrouper, RunaiJobGrouper
from kai_solver.kubeobjects.grouping.ray import RayGrouper
from kai_solver.kubeobjects.grouping.spark import SparkGrouper

ENTRY_POINTS = "kai_solver.pod_groupers"

BUILT_IN: tuple[PodGrouper, ...] = (
    JobIdGrouper(),
    SparkGrouper(),
    LeaderWorkerSetGrouper(),
    JobSetGrouper(),
    KubeflowGrouper(),
    GroveGrouper(),
    RayGrouper(),
    KnativeGrouper(),
    DeploymentGrouper(),
    AmlGrouper(),
    RunaiJobGrouper(),
    JobGrouper(),
    DefaultGrouper(),
)


@lru_cache(maxsize=1)
def groupers() -> tuple[PodGrouper, ...]:
    """All groupers, the one that is asked first in front.

    Raises
    ------
    InputError
        An entry point cannot be loaded or makes no grouper.
    """
    return by_priority((*BUILT_IN, *(_load(point) for point in entry_points(group=ENTRY_POINTS))))


def by_priority(found: tuple[PodGrouper, ...]) -> tuple[PodGrouper, ...]:
    """Highest priority first; names decide ties, so that the order is the same everywhere."""
    return tuple(sorted(found, key=lambda grouper: (-grouper.priority, grouper.name)))


def _load(point: EntryPoint) -> PodGrouper:
    try:
        grouper = point.load()()
    except Exception as error:
        cure = "Correct or uninstall the package that brings it"
        raise InputError(
            f"the pod grouper {point.value!r} cannot be used: {error}", field=ENTRY_POINTS, cure=cure
        ) from error
    if not isinstance(grouper, PodGrouper):
        raise InputError(
            f"{point.value!r} makes no pod grouper", field=ENTRY_POINTS, cure="See the protocol PodGrouper"
        )
    return grouper
