"""Benchmark sets, ``kai-bench/v1``: stored instances, and specifications of clusters that are drawn from a seed."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from kai_solver.instances_io.fields import Seconds, Strict

Share = Annotated[float, Field(ge=0, le=1)]
Nodes = Annotated[int, Field(ge=1, le=100_000)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Gpus = Annotated[int, Field(ge=1, le=64)]


class LoadedDoc(Strict):
    """A cluster in full use: whole GPUs, racks, queues in three levels, and more demand than there is room.

    Nodes have 8 GPUs, 128 cores and 1 TiB; ``rackNodes`` of them are a rack, ``blockRacks`` racks a block.
    """

    kind: Literal["loaded"]
    nodes: Nodes
    gangs: Count
    """Pending gangs."""
    running_pods: Count | None = None
    """Pods that run: those that hold GPUs, and so many without GPUs that it comes to this. Default: 6 a node."""
    queues: int = Field(default=0, ge=0, le=10_000)
    """Queues of all three levels (8, 32 and 160 of 200); default: one for every 25 nodes, at least 20."""
    rack_nodes: Nodes = 25
    block_racks: Nodes = 10
    used: Share = 0.97
    """Of the GPUs."""
    over_quota: Share = 0.5
    """Of the leaf queues."""
    gpus: dict[int, Share] = Field(default_factory=lambda: {1: 0.5, 2: 0.15, 4: 0.15, 8: 0.2})
    """GPUs of a pod (1, 2, 4 or 8), by share of the pods that hold GPUs."""
    largest_gang: int = Field(default=64, ge=1, le=1024)
    gang_exponent: float = Field(default=2.0, ge=0, le=10)
    """A gang has k pods with a likelihood of k to the minus this."""
    bound: Share = 0.4
    """Of the gangs: they must be in one rack."""
    non_preemptible: Share = 0.2
    """Of the GPUs that run, and of the pending gangs."""
    entitled: Share = 0.6
    """Of the pending GPUs: asked for in queues below their quota."""
    contested: Share = 0.3
    """Of the pending GPUs, at least; less is refused."""

    @model_validator(mode="after")
    def _shares_add_up(self) -> "LoadedDoc":
        if abs(sum(self.gpus.values()) - 1) > 1e-6 or not self.gpus.keys() <= {1, 2, 4, 8}:
            raise ValueError("`gpus` must name sizes 1, 2, 4 and 8, and their shares must add up to 1")
        return self


class ReclaimDoc(Strict):
    """Instance b: one-GPU jobs of an over-quota queue on half of every node, and gangs of whole nodes that reclaim."""

    kind: Literal["reclaim"]
    nodes: Nodes
    gangs: Count
    """Pending gangs of 4 pods with 8 GPUs each; 4 of them for every 20 nodes use up what is owed."""


class EmptyDoc(Strict):
    """Instance a: an empty cluster, and as many one-GPU jobs as it has GPUs, from four queues."""

    kind: Literal["empty"]
    nodes: Nodes


class QuietDoc(Strict):
    """A small cluster without contention: jobs on some nodes, and one gang that fits."""

    kind: Literal["quiet"]
    nodes: Nodes = 25
    node_gpus: Gpus = 4
    used: Share = 0.5
    """Of the nodes: they are full."""
    pods: int = Field(default=4, ge=1, le=1024)
    """Of the pending gang; each takes a whole node."""


class CliquesDoc(Strict):
    """Racks that are one NVLink domain each, and gangs of whole trays in segments that each keep to one rack."""

    kind: Literal["cliques"]
    racks: int = Field(default=36, ge=1, le=10_000)
    trays: int = Field(default=18, ge=1, le=144)
    """Nodes of a rack."""
    tray_gpus: Gpus = 4
    block_racks: Nodes = 6
    """Racks of a block, the level above."""
    running: Share = 0.0
    """Of the trays, at most: what runs, with holes where work has ended."""
    asked: Share = 0.0
    """Of the trays: what the pending gangs ask for, each at least 8 trays."""
    segments: dict[int, Share] = Field(default_factory=lambda: {4: 0.25, 8: 0.25, 16: 0.25, 18: 0.25})
    """Pods of a segment, by share of the gangs."""
    largest_gang: int = Field(default=144, ge=8, le=144)
    """Pods; a gang has 8, 16, 18, ... of them, a multiple of its segments."""
    clique_pods: int = Field(default=0, ge=0, le=144)
    """Pods of one more gang that must be in one rack, of a queue that is owed them."""


GeneratorDoc = Annotated[LoadedDoc | ReclaimDoc | EmptyDoc | QuietDoc | CliquesDoc, Field(discriminator="kind")]


class RealDoc(Strict):
    """What clusters have beside their work, added to an instance, drawn from the entry's seed.

    CoreDNS, DaemonSets with host ports on every node, a control plane, taints, and three kinds of nodes are always
    added; what takes room is added with it, so that as much of the work finds room as before.
    """

    preferring: Share = 0.1
    """Of the gangs: they prefer nodes with pods of their own, or of their app."""
    sharing: Share = 0.05
    """Of the gangs, among those with one GPU a pod: they ask for half of it."""
    cordoned: Share = 0.02
    """Of the nodes: so many more, at least one, are cordoned."""
    zoned: Share = 0.1
    """Of the nodes: a pool whose kubelets align GPUs with NUMA zones (policy ``restricted``)."""


BENCH_FORMAT = "kai-bench/v1"


Figure = Literal[
    "decide", "first-plan", "cold", "steady", "build", "check", "load", "load-memory", "memory", "link-growth",
    "admission-gap", "work-gap", "gpus-gap", "disruption-gap", "unproven", "unsettled", "pending", "evicted", "moved",
    "evicted-work",
]  # fmt: skip
"""What can be held against a limit. Times are seconds, gaps are shares, memory is MiB, the others are counts.

``decide``: median with a warm engine; ``first-plan``: until the first plan that the checker passed; ``cold``: the
engine's first cycle; ``steady``: cycles on what the plan before made of the cluster, with 1% of the gangs exchanged.
``load``, ``load-memory``: until the instance is in memory, and the most that takes (of an entry ``asSnapshot``).
``link-growth``: how much more CPU time a cycle takes, as a share, when nodes are the entry's ``product``.
``admission-gap``: GPUs of gangs whose answer is ``unknown``, of the GPUs pending. ``work-gap``: the
gap of the evicted work (`Stage.gap`, the worst stratum); ``gpus-gap``: of the evicted GPUs (model ``least-gpus``);
``disruption-gap``: the worst of evicted work or GPUs, gangs broken, pods evicted, pods moved. ``unproven``: pending
gangs without a proof of their own; ``unsettled``: pending gangs beyond the largest number of them that is proven to
have to wait. ``evicted-work``: of all strata, as the stages count it.
"""


class PeerPointDoc(Strict):
    """What another scheduler reached on the same instance, for the picture of `course`."""

    name: str = Field(min_length=1)
    seconds: Annotated[Seconds, Field(gt=0)]
    pending: Count
    """Gangs that it left pending."""
    evicted_work: float = Field(ge=0)


class CheckDoc(Strict):
    """A limit: the figure may not be above it."""

    figure: Figure
    limit: float = Field(ge=0)
    budget: Annotated[Seconds, Field(gt=0)] = 2.0
    model: str = "default"
    says: str = ""
    """What this is, in the words of the requirement that sets the limit."""
    measured: float | None = None
    """What was measured, on the day and machine that the set names."""


class EntryDoc(Strict):
    """One instance of a set: a ``file`` beside the set, or what a generator makes."""

    name: str = Field(min_length=1, max_length=100, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
    says: str = ""
    """What it is, for people."""
    file: str = ""
    """Path of an instance of any kind, relative to the set."""
    generate: GeneratorDoc | None = None
    real: RealDoc | None = None
    """Add what clusters have beside their work."""
    as_snapshot: bool = False
    """Write what is generated as a KAI snapshot first, with all that objects of a cluster carry, and read that."""
    seeds: tuple[Count, ...] = Field(default=(1,), min_length=1)
    """Of the generator, and of what is added; each is an instance."""
    product: str = ""
    """Product of the library of links that nodes with as many GPUs are taken to be for ``link-growth``."""
    peer: str = ""
    """What others reach, for people."""
    peer_points: tuple[PeerPointDoc, ...] = ()
    """The same as points in time."""
    checks: tuple[CheckDoc, ...] = ()
    """Limits. Without any, the model ``default`` is measured with 2 s."""

    @model_validator(mode="after")
    def _one_source(self) -> "EntryDoc":
        if bool(self.file) == (self.generate is not None):
            raise ValueError("give either `file` or `generate`")
        return self

    @model_validator(mode="after")
    def _snapshot_of_generated(self) -> "EntryDoc":
        if self.as_snapshot and self.generate is None:
            raise ValueError("`asSnapshot` needs `generate`: a file is what it is")
        if not self.as_snapshot and any(check.figure == "load-memory" for check in self.checks):
            raise ValueError("`load-memory` needs `asSnapshot`")
        return self

    @model_validator(mode="after")
    def _product_for_links(self) -> "EntryDoc":
        if not self.product and any(check.figure == "link-growth" for check in self.checks):
            raise ValueError("`link-growth` needs a `product`")
        return self


class SlopeDoc(Strict):
    """How a time grows with the number of nodes: the slope of its logarithm over theirs, by least squares."""

    name: str
    entries: tuple[str, ...] = Field(min_length=2)
    figure: Literal["decide", "build", "check", "steady"] = "decide"
    budget: Annotated[Seconds, Field(gt=0)] = 2.0
    model: str = "greedy-only"
    limit: float = Field(gt=0)
    peer: str = ""
    measured: float | None = None


class MeasuredDoc(Strict):
    """When and where the ``measured`` figures of a set were taken."""

    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    machine: str


class BenchDoc(Strict):
    """A benchmark set."""

    format: Literal["kai-bench/v1"]
    name: str = Field(min_length=1, max_length=100)
    says: str = ""
    measured: MeasuredDoc | None = None
    cycles: int = Field(default=3, ge=1, le=100)
    """Measured cycles of each instance, each with a seed of its own for the solver; figures are medians."""
    entries: tuple[EntryDoc, ...] = Field(min_length=1)
    slopes: tuple[SlopeDoc, ...] = ()

    @model_validator(mode="after")
    def _names_are_known(self) -> "BenchDoc":
        names = [entry.name for entry in self.entries]
        if len(set(names)) < len(names):
            raise ValueError("two entries have one name")
        unknown = {name for slope in self.slopes for name in slope.entries} - set(names)
        if unknown:
            raise ValueError(f"slopes name entries that do not exist: {', '.join(sorted(unknown))}")
        return self


def bench_schema() -> dict[str, Any]:
    """JSON Schema of a benchmark set."""
    schema = BenchDoc.model_json_schema(by_alias=True, mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
