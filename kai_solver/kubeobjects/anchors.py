"""Pods that others must be near stay where they are: the others come to them (docs/kai-behaviour.md#consolidation)."""

from dataclasses import replace

from kai_solver.domain import Gang, Pod, PodStatus, Requirement
from kai_solver.predicates.pods import SelectorIndex, of_term

_NODE_NAME = "metadata.name"


def anchored(gangs: tuple[Gang, ...]) -> tuple[Gang, ...]:
    """Gangs whose running pods are held to their nodes where a pod that waits must be near them; others unchanged.

    Otherwise a pod whose required affinity and selectors exclude each other would have running pods moved to where it
    may go.
    """
    waiting = (pod for gang in gangs for pod in gang.pods if pod.status is PodStatus.PENDING)
    wanted = SelectorIndex(of_term(term, pod.namespace) for pod in waiting for term in pod.constraints.affinity)
    return tuple(_held(gang, wanted) for gang in gangs) if wanted else gangs


def _held(gang: Gang, wanted: SelectorIndex) -> Gang:
    pods = tuple(_pinned(pod) if pod.node and wanted.speaks_of(pod) else pod for pod in gang.pods)
    is_same = all(one is other for one, other in zip(pods, gang.pods, strict=True))
    return gang if is_same else replace(gang, pods=pods)


def _pinned(pod: Pod) -> Pod:
    here, terms = Requirement(_NODE_NAME, "In", (pod.node,)), pod.constraints.node_terms
    if any(all(here in alternative for alternative in entry) for entry in terms):
        return pod  # it came from an export of what was held already
    return replace(pod, constraints=replace(pod.constraints, node_terms=(*terms, ((here,),))))
