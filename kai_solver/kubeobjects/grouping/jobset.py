"""JobSets: one gang, a part per replicated job, a leaf per replica (docs/kai-behaviour.md#batch-minimum, #kinds)."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.grouping.model import Group, Member, Part, named_after
from kai_solver.kubeobjects.grouping.read import natural, stated_minimum
from kai_solver.kubeobjects.owners import Owner
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.tree import check_number

_GROUP = "jobset.x-k8s.io"
NAME = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"

MOST_REPLICAS = 10_000
"""Replicas of one replicated job that are accepted."""


@dataclass(frozen=True, slots=True)
class _ReplicatedJob:
    """Replicas of a job, the pods that each needs at once, and the topology (name, levels) that each keeps to."""

    name: str
    replicas: int
    needed: int
    topology: tuple[str, str, str] = ("", "", "")

    def leaf(self, index: int) -> Part:
        """One replica."""
        return Part(_leaf(self.name, index), self.needed, None, self.name, *self.topology)


class JobSetGrouper:
    """All replicated jobs at once; one after another where the set starts them in order."""

    name = "jobset"
    priority = 800
    heeds_status = False

    def claim(self, member: Member) -> str | None:
        """Pods below a JobSet, or with its labels where only their Job is known."""
        if member.top is not None and member.is_of(_GROUP, "JobSet"):
            return named_after(member.top.name, member.top.uid, "JobSet")
        name = member.pod.labels.get(NAME)
        return named_after(name, "", "JobSet") if name and member.is_known_by_labels else None

    def group(self, members: Sequence[Member]) -> Group:
        """From the set's spec where it is there, else by the pods that are.

        Raises
        ------
        InputError
            A minimum is no positive number (KAI's pod grouper refuses such a set too), or there are too many replicas.
        """
        owner = members[0].owner_of_kind("JobSet")
        jobs = _stated(owner) or _counted(members)
        check_number(sum(1 + job.replicas for job in jobs))
        parts: list[Part] = []
        for job in jobs:
            parts.append(Part(job.name, min_subgroup=job.replicas))
            parts += [job.leaf(index) for index in range(job.replicas)]
        podsets = {member.pod.key: _leaf_of(member) for member in members}
        return Group(parts=tuple(parts), min_subgroup=_at_once(owner, len(jobs)), podsets=podsets)


def _stated(owner: Owner | None) -> list[_ReplicatedJob]:
    if owner is None:
        return []
    return [_replicated(raw) for raw in owner.raw.items("spec.replicatedJobs")]


def _replicated(raw: Raw) -> _ReplicatedJob:
    annotations = raw.strings("template.metadata.annotations")
    needed = stated_minimum(annotations) or raw.count("template.spec.parallelism", 1)
    topology, required, preferred = (annotations.get(name, "") for name in names.TOPOLOGIES)
    levels = (topology, required, preferred) if topology else ("", "", "")
    return _ReplicatedJob(raw.required("name"), raw.count("replicas", 1, MOST_REPLICAS), needed, levels)


def _counted(members: Sequence[Member]) -> list[_ReplicatedJob]:
    """Replicas by the highest index seen, pods by the fullest replica."""
    seen: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for member in members:
        seen[_job(member)][_index(member)] += 1
    return [_ReplicatedJob(name, max(jobs) + 1, max(jobs.values())) for name, jobs in sorted(seen.items())]


def _at_once(owner: Owner | None, jobs: int) -> int:
    stated = stated_minimum(owner.annotations) if owner else None
    if stated:
        return min(stated, jobs)
    in_order = owner is not None and owner.raw.text("spec.startupPolicy.startupPolicyOrder") == "InOrder"
    return 1 if in_order else jobs


def _leaf_of(member: Member) -> str:
    return _leaf(_job(member), _index(member))


def _leaf(job: str, index: int) -> str:
    return f"{job}-replica-{index}"


def _job(member: Member) -> str:
    return member.pod.labels.get(REPLICATED_JOB) or "job"


def _index(member: Member) -> int:
    index = natural(member.pod.labels.get(JOB_INDEX, "")) or 0
    return min(index, MOST_REPLICAS - 1)
