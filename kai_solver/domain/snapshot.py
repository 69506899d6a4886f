"""A cluster at one moment, in plain terms: the input of a cycle."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from kai_solver.domain.budgets import DisruptionBudget
from kai_solver.domain.claims import Claims
from kai_solver.domain.cluster import Node, Topology
from kai_solver.domain.gangs import Gang
from kai_solver.domain.placement import Strategy
from kai_solver.domain.plan import Action
from kai_solver.domain.pods import Pod
from kai_solver.domain.queues import Queue
from kai_solver.errors import InputError, printable
from kai_solver.units import GPU_RESOURCES, SHARED_GPU_RESOURCES, ResourceSchema


@dataclass(frozen=True, slots=True)
class Policy:
    """What the cluster's owner decided. Defaults are KAI's (docs/kai-behaviour.md#cycle), better ones are said so.

    Attributes
    ----------
    gpu_placement, cpu_placement
        Pack or spread over nodes, for pods with and without GPUs.
    gpu_sharing_placement
        Pack shared GPUs on devices or spread them over devices.
    max_consolidation_gangs
        Gangs that may be moved for one; -1 unlimited (ours; KAI in production: 16), 0 none.
    consolidating_reclaim
        Victims that find another place in the same cycle are moved, and are not charged as reclaimed.
    staleness_grace_s
        How long a gang may run below its minimum before it is evicted; negative never.
    saturation_multiplier
        Of the reclaimer's saturation against its siblings' (KAI: ``relcaimerSaturationMultiplier``), at least 1.
    k_value
        Weight of past usage in the division of the surplus.
    non_preemptible_priority
        Priority from which work is non-preemptible where it does not say.
    reclaim_min_runtime_s, preempt_min_runtime_s, reclaim_resolve
        Defaults of the queues' minimum run times, and how reclaim looks them up.
    full_hierarchy
        False: every non-root queue hangs under one unlimited parent.
    gpu_resources, shared_gpu_resources
        Names of whole GPUs, the first for messages; and of replicas of time-sliced ones.
    restrict_node_scheduling
        Pods with GPUs only on nodes labelled gpu-worker, others only on cpu-worker; GPUs of other nodes are not
        shared out (docs/kai-behaviour.md#predicates).
    stuck_in_releasing_s
        A pod that is deleted for longer holds its place, and nothing waits for it (docs/kai-behaviour.md#pod-states).
    drain_lead_s
        How long before a node is drained work that must leave it is moved, beside the time that its pods take to end
        (docs/operating.md#maintenance; KAI has no such rule).
    disabled_actions
        Actions that never run, whatever the model names (docs/kai-behaviour.md#shard).
    """

    gpu_placement: Strategy = "binpack"
    cpu_placement: Strategy = "binpack"
    gpu_sharing_placement: Strategy = "binpack"
    max_consolidation_gangs: int = -1
    consolidating_reclaim: bool = True
    staleness_grace_s: float = 60.0
    saturation_multiplier: float = 1.0
    k_value: float = 1.0
    non_preemptible_priority: int = 100
    reclaim_min_runtime_s: float = 0.0
    preempt_min_runtime_s: float = 0.0
    reclaim_resolve: Literal["lca", "queue"] = "lca"
    full_hierarchy: bool = True
    gpu_resources: tuple[str, ...] = GPU_RESOURCES
    shared_gpu_resources: tuple[str, ...] = SHARED_GPU_RESOURCES
    restrict_node_scheduling: bool = False
    stuck_in_releasing_s: float = 120.0
    drain_lead_s: float = 600.0
    disabled_actions: frozenset[Action] = frozenset()

    def staleness_grace_of(self, gang: Gang) -> float:
        """Seconds for which the gang may run below its minimum, its own or the cluster's; negative: for ever."""
        return self.staleness_grace_s if gang.staleness_grace_s is None else gang.staleness_grace_s

    def enabled(self, actions: Iterable[Action]) -> tuple[Action, ...]:
        """Those of ``actions`` that may run, in their order."""
        return tuple(action for action in actions if action not in self.disabled_actions)

    def refuse_disabled(self, asked: Iterable[Action], field: str) -> None:
        """Refuse actions that are asked for in ``field`` and may not run.

        Raises
        ------
        InputError
            Names the first of them.
        """
        for action in asked:
            if action in self.disabled_actions:
                cure = "Leave it out, or enable it there (disabledActions; a KAI snapshot: config.actions)"
                raise InputError(f"the policy of the instance disables {action.value}", field=field, cure=cure)


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that an importer could not use as it stood.

    ``kind`` is ``warning`` (used, but not all of it) or ``set-aside`` (the object takes no part).
    """

    kind: Literal["warning", "set-aside"]
    object: str
    text: str

    def __post_init__(self) -> None:
        """Names and texts of foreign objects are shown in one line."""
        for name in ("object", "text"):
            if not getattr(self, name).isprintable():
                object.__setattr__(self, name, printable(getattr(self, name)))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is. Names are unique per kind; order is the importer's and carries no meaning.

    Attributes
    ----------
    now_s
        Epoch seconds of the moment; every age is measured from it.
    foreign
        Pods of other schedulers and of ours without a gang that hold resources: fixed load.
    notices
        What was set aside or not honoured on import, shown to the user.
    claims
        Devices by resource claim; None where there are none.
    budgets
        Disruption budgets of the pods of gangs; other pods that they match are never evicted by a plan.
    refused
        Keys of pods whose eviction was refused lately, for whatever reason: they are not tried again yet.
    """

    now_s: float
    schema: ResourceSchema
    nodes: tuple[Node, ...]
    queues: tuple[Queue, ...]
    gangs: tuple[Gang, ...]
    topologies: tuple[Topology, ...] = ()
    foreign: tuple[Pod, ...] = ()
    policy: Policy = field(default_factory=Policy)
    notices: tuple[Notice, ...] = ()
    name: str = ""
    claims: Claims | None = None
    budgets: tuple[DisruptionBudget, ...] = ()
    refused: frozenset[str] = frozenset()

    @property
    def stand_ins(self) -> frozenset[str]:
        """Keys of foreign pods that stand for claims which outlive their pods; tenants are the pods that use them."""
        lowered = self.claims.lowered if self.claims is not None else None
        return lowered.holders if lowered is not None else frozenset()
