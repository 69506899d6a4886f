"""The scenario format, ``kai-scenario/v1``: a cluster, what arrives in it, what fails, and for how long to watch."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from kai_solver.instances_io.fields import LARGEST_COUNT, Amount, Millis, Seconds, Strict, Whole
from kai_solver.instances_io.history_schema import HistoryReadingDoc
from kai_solver.instances_io.native_schema import NodeDoc, PolicyDoc, QueueDoc, TopologyConstraintDoc, TopologyDoc
from kai_solver.units import MILLI

SCENARIO_FORMAT = "kai-scenario/v1"

NotNegative = Annotated[Seconds, Field(ge=0)]
Positive = Annotated[Seconds, Field(gt=0)]
MOST_PODS = 10_000
"""Of one job."""

Pods = Annotated[int, Field(ge=1, le=MOST_PODS)]
Weight = Annotated[float, Field(ge=0, le=1e9)]


class ClusterDoc(Strict):
    """The cluster: in place, or ``file`` (an instance of any kind, whose gangs take no part), or openb's nodes."""

    file: str = ""
    """Path of an instance, relative to the scenario."""
    openb_nodes: str = ""
    """Path of a node list of the openb trace, relative to the scenario."""
    nodes: tuple[NodeDoc, ...] = ()
    queues: tuple[QueueDoc, ...] = ()
    topologies: tuple[TopologyDoc, ...] = ()
    policy: PolicyDoc = PolicyDoc()


class ArrivalsDoc(Strict):
    """When jobs arrive: ``poisson`` and ``regular`` by ``perHour``, ``batch`` all at ``start``."""

    process: Literal["poisson", "regular", "batch"] = "poisson"
    per_hour: float = Field(default=60.0, gt=0, le=1e9)
    start: NotNegative = 0.0
    end: NotNegative | None = None
    """No arrivals from here on; default: the scenario's duration."""

    @model_validator(mode="after")
    def _time_goes_on(self) -> "ArrivalsDoc":
        if self.end is not None and self.end < self.start:
            raise ValueError(f"arrivals end at {self.end:g} s, before they start at {self.start:g} s")
        return self


class RuntimeDoc(Strict):
    """Run times at full strength: ``fixed``, ``exponential`` (of that mean) or ``lognormal`` (of that median)."""

    distribution: Literal["fixed", "exponential", "lognormal"] = "lognormal"
    typical: Positive
    """The time itself, the mean, or the median."""
    sigma: float = Field(default=1.0, ge=0, le=10)
    """Of the logarithm, for ``lognormal``."""
    at_least: NotNegative = 1.0
    at_most: Positive = 1e9

    @model_validator(mode="after")
    def _leaves_room(self) -> "RuntimeDoc":
        if self.at_most < self.at_least:
            raise ValueError(f"no run time is both `atLeast` {self.at_least:g} s and `atMost` {self.at_most:g} s")
        return self


class JobDefaultsDoc(Strict):
    """What workloads of every kind say of their jobs."""

    name: str = Field(min_length=1, max_length=200, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
    queue: str | dict[str, Weight]
    """A queue, or queues by weight: each job draws one."""
    priority: Whole = 50
    preemptible: bool | None = None
    """Default: below the policy's ``nonPreemptiblePriority``."""
    checkpoint: Positive | None = None
    """Work is saved each time so much of it is done; without it an interrupted job starts from the beginning."""
    restart: NotNegative = 0.0
    """A job that starts again holds its GPUs so long before it works."""
    preemption_delay: NotNegative = 0.0


class GenerateDoc(JobDefaultsDoc):
    """Jobs drawn at random, from a stream of random numbers of this workload's own."""

    kind: Literal["generate"]
    count: int | None = Field(default=None, ge=0, le=LARGEST_COUNT)
    """Jobs; default: as many as arrive."""
    arrivals: ArrivalsDoc = ArrivalsDoc()
    runtime: RuntimeDoc
    pods: Pods | dict[Pods, Weight] = 1
    """Pods of a job, or counts by weight."""
    gpus: float | dict[float, Weight] = 1
    """GPUs of a pod: a whole number, or a part of one; or such by weight."""
    gang: bool = True
    """All pods or none; false: every pod may run alone (replicas of a service)."""
    min_pods: int | None = Field(default=None, ge=0, le=LARGEST_COUNT)
    """Of an elastic gang: it works with so many, and grows to all."""
    cpu: Millis = 4000
    memory: Amount = 16 * 2**30
    """Of each pod, beside its GPUs."""
    topology: TopologyConstraintDoc | None = None


class OpenbDoc(JobDefaultsDoc):
    """Requests of the openb trace, one pod a job, with the trace's times or its arrival files."""

    kind: Literal["openb"]
    pods: str
    """Path of the pod list, relative to the scenario."""
    arrivals: str = ""
    """Path of a list of pod names in order of arrival; they then come as ``process`` says."""
    process: ArrivalsDoc | None = None
    """When they come; default: at the trace's own times."""
    first: int | None = Field(default=None, ge=0, le=LARGEST_COUNT)
    """Take the first so many only."""
    time_scale: float = Field(default=1.0, gt=0, le=1e6)
    """The trace's times of arrival are multiplied by this."""
    longest: Positive | None = None
    """Longer run times of the trace are cut to this first: a few last for months, and a load would be made of those."""
    load: float | None = Field(default=None, gt=0, le=100)
    """Stretch run times until GPU seconds asked for are this share of the cluster's, from first to last arrival."""
    stretch: float = Field(default=1.0, gt=0, le=1e6)
    """Run times are multiplied by this, where no ``load`` is given."""


class SwfDoc(JobDefaultsDoc):
    """A log in the Standard Workload Format; a processor counts as ``gpusPerProcessor`` GPUs."""

    kind: Literal["swf"]
    file: str
    """Relative to the scenario."""
    gpus_per_processor: int = Field(default=1, ge=1, le=MILLI)
    gpus_per_pod: int = Field(default=8, ge=1, le=MILLI)
    """Larger jobs have several pods, a gang."""
    queues: dict[int, str] = Field(default_factory=dict)
    """Queue by the log's own queue number; others go to ``queue``."""
    first: int | None = Field(default=None, ge=0, le=LARGEST_COUNT)
    time_scale: float = Field(default=1.0, gt=0, le=1e6)
    stretch: float = Field(default=1.0, gt=0, le=1e6)
    cpu: Millis = 4000
    memory: Amount = 16 * 2**30


class HistoryDoc(JobDefaultsDoc, HistoryReadingDoc):
    """Jobs of one's own history: a CSV file with a mapping of its columns, or finished Jobs and PodGroups.

    ``queue`` gets the jobs of queues that the cluster does not have.
    """

    kind: Literal["history"]
    file: str
    """Relative to the scenario."""
    first: int | None = Field(default=None, ge=0, le=LARGEST_COUNT)
    time_scale: float = Field(default=1.0, gt=0, le=1e6)
    stretch: float = Field(default=1.0, gt=0, le=1e6)


WorkloadDoc = Annotated[GenerateDoc | HistoryDoc | OpenbDoc | SwfDoc, Field(discriminator="kind")]


class OutageDoc(Strict):
    """A node fails ``at`` a time and is back after ``lasts``."""

    node: str
    at: NotNegative
    lasts: Positive


class RandomFailuresDoc(Strict):
    """Nodes fail at random (exponential times): every node every ``meanBetween``, for ``meanRepair``."""

    mean_between: Positive
    mean_repair: Positive


class FailuresDoc(Strict):
    """What fails, by name and at random."""

    outages: tuple[OutageDoc, ...] = ()
    random: RandomFailuresDoc | None = None


class ScenarioDoc(Strict):
    """A scenario."""

    format: Literal["kai-scenario/v1"]
    name: str = ""
    description: str = ""
    seed: int = Field(default=0, ge=0, le=2**63)
    period: Positive = 1.0
    """Seconds from cycle to cycle."""
    duration: Positive | None = None
    """Where the simulation ends; default: when nothing more can happen."""
    releasing: NotNegative = 5.0
    """How long an evicted or moved pod holds its place."""
    gpu_hour_price: float = Field(default=2.0, ge=0, le=1e9)
    """Of a GPU for an hour, for the price of what is held and idle."""
    cluster: ClusterDoc
    workloads: tuple[WorkloadDoc, ...] = ()
    failures: FailuresDoc = FailuresDoc()


def scenario_schema() -> dict[str, Any]:
    """JSON Schema of a scenario file."""
    schema = ScenarioDoc.model_json_schema(by_alias=True, mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
