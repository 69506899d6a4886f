"""Jobs of platforms that KAI knows by name: Azure Machine Learning, run:ai (docs/kai-behaviour.md#kinds)."""

from collections.abc import Sequence

from kai_solver.errors import InputError
from kai_solver.kubeobjects.grouping.model import Group, Member, named_after

_NODES = "spec.job.options.envs.AZUREML_NODE_COUNT"


class AmlGrouper:
    """An AmlJob at once."""

    name = "aml"
    priority = 450
    heeds_status = False

    def claim(self, member: Member) -> str | None:
        """Pods whose top owner is an AmlJob."""
        top = member.top
        return named_after(top.name, top.uid, top.kind) if top and top.is_a("amlarc.azureml.com", "AmlJob") else None

    def group(self, members: Sequence[Member]) -> Group:
        """As many as it has nodes; those that are there where the job itself is not.

        Raises
        ------
        InputError
            The job states no number of nodes. KAI's pod grouper refuses it too.
        """
        top = members[0].top
        if top is None or not top.raw:
            return Group(min_member=len(members))
        if not top.raw.get(_NODES):
            raise InputError("is missing", field=_NODES, cure="State the number of nodes")
        return Group(min_member=top.raw.count(_NODES))


class RunaiJobGrouper:
    """A RunaiJob has several replicas, distinguished by the middle of their pods' names; each is a gang."""

    name = "runai-job"
    priority = 440
    heeds_status = False

    def claim(self, member: Member) -> str | None:
        """Pods whose top owner is a RunaiJob."""
        top = member.top
        if top is None or not top.is_a("run.ai", "RunaiJob"):
            return None
        return named_after(member.pod.name.rpartition("-")[0] or member.pod.name, top.uid, top.kind)

    def group(self, members: Sequence[Member]) -> Group:  # noqa: ARG002  (the shape is the same for all)
        """At least one pod."""
        return Group(min_member=1)
