"""Plans: what to do this cycle, and why the rest waits. The published format is `instances_io.planfile`.

Plans are never changed, but their entries are not frozen: a cycle makes thousands of them, and a frozen one takes five
times as long to make.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from kai_solver.domain.claims import Allotted
from kai_solver.domain.fit_error import FitError
from kai_solver.domain.numa import ZoneShare


class Action(Enum):
    """What a plan may do for a gang, in KAI's order; also the names of the actions in behaviour cases."""

    ALLOCATE = "allocate"
    CONSOLIDATION = "consolidation"
    RECLAIM = "reclaim"
    PREEMPT = "preempt"
    STALE = "stalegangeviction"

    __hash__ = object.__hash__
    """Each member is one object. Enum's own hash is a call in Python, and every refusal asks for it."""


class Reason(Enum):
    """Why a gang stays pending. The values are published; add, never rename."""

    NOT_READY = "NotReady"
    QUEUE_DOES_NOT_EXIST = "QueueDoesNotExist"
    QUEUE_NOT_LEAF = "QueueNotLeaf"
    SET_ASIDE = "SetAside"
    QUEUE_ON_HOLD = "QueueOnHold"
    OVER_LIMIT = "OverLimit"
    NON_PREEMPTIBLE_OVER_QUOTA = "NonPreemptibleOverQuota"
    PREEMPTION_DELAY = "PreemptionDelayNotElapsed"
    POD_SCHEDULING_ERRORS = "PodSchedulingErrors"
    TOPOLOGY = "TopologyNotSatisfied"
    PLACEMENT = "PlacementNotSatisfied"
    NOT_ENOUGH_RESOURCES = "NotEnoughResources"


@dataclass(frozen=True, slots=True)
class Device:
    """A device given to a pod: its index on the node, the share in thousandths, the uuid where known."""

    index: int
    milli: int
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class GpuLink:
    """The weakest link of the best ring through a pod's GPUs, or of its pair.

    ``kind``: as ``nvidia-smi topo -m`` names it (``NV2``, ``SYS``), empty for one GPU; ``gb_s``: GB/s in one direction.
    """

    kind: str = ""
    gb_s: int = 0


@dataclass(frozen=True, slots=True)
class ClaimGrant:
    """Devices that a pod's resource claim gets, or has: claim (``namespace/name``) and its devices by request."""

    claim: str
    devices: tuple[Allotted, ...] = ()


@dataclass(slots=True, unsafe_hash=True)
class Bind:
    """A pod gets a node.

    ``nominated``: it waits for capacity that is being released. ``zones``: NUMA, if any count. ``link``: of its GPUs,
    where they were chosen by their links; None: any of the node's would do as well, for all that is known.
    """

    pod: str
    gang: str
    node: str
    devices: tuple[Device, ...] = ()
    nominated: bool = False
    action: Action = Action.ALLOCATE
    zones: tuple[ZoneShare, ...] = ()
    claims: tuple[ClaimGrant, ...] = ()
    link: GpuLink | None = None


MoveCause = Literal["room", "drain"]
"""Why pods move: so that others get room, or because their node is to be drained."""


@dataclass(slots=True, unsafe_hash=True)
class Move:
    """A running pod is evicted and takes its named place again elsewhere. ``helps``: the gangs it makes room for.

    ``message``: what its eviction event says; ``link``: as of `Bind`; ``cause`` "drain": it helps no gang.
    """

    pod: str
    gang: str
    source: str
    target: str
    devices: tuple[Device, ...] = ()
    helps: tuple[str, ...] = ()
    action: Action = Action.CONSOLIDATION
    zones: tuple[ZoneShare, ...] = ()
    claims: tuple[ClaimGrant, ...] = ()
    message: str = ""
    link: GpuLink | None = None
    cause: MoveCause = "room"

    @property
    def by(self) -> str:
        """What moves it: the name of its action, or ``drain``."""
        return self.cause if self.cause == "drain" else self.action.value


@dataclass(slots=True, unsafe_hash=True)
class Unmoved:
    """A running pod that has to leave its node, which is to be drained, and finds no place, or may not move."""

    pod: str
    gang: str
    node: str
    message: str


EvictionReason = Literal["reclaim", "preempt", "stale", "drain"]
FOR_NO_GANG: frozenset[EvictionReason] = frozenset({"stale", "drain"})
"""Reasons of evictions that make room for no gang."""


@dataclass(slots=True, unsafe_hash=True)
class Eviction:
    """A running pod loses its place. ``helps``: the gangs it makes room for; empty for `FOR_NO_GANG`."""

    pod: str
    gang: str
    node: str
    reason: EvictionReason
    helps: tuple[str, ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True)
class Blocker:
    """One element of what blocks a gang.

    Attributes
    ----------
    kind
        ``resource``, ``domain``, ``queue-limit``, ``queue-quota``, ``fair-share``, ``rule``, ``pods``,
        ``placement``, ...
    need, have
        In the words of users (``8 GPUs``).
    where
        The domain, or the kind of nodes, that it is about; empty where it is about all.
    resource, short
        What there is too little of, and how much more would do, in that resource's base unit (thousandths, bytes);
        empty and 0 for rules.
    """

    kind: str
    name: str
    need: str
    have: str
    where: str = ""
    resource: str = ""
    short: int = 0


@dataclass(frozen=True, slots=True)
class AtMost:
    """Of ``gangs`` that wait, at most ``most`` can run beside all that the plan admits; which of them is open."""

    gangs: int
    most: int


ProofState = Literal["proven", "unknown", "unasked"]


@dataclass(frozen=True, slots=True)
class Proof:
    """Whether it is proven that no allowed plan runs the gang beside others that are admitted.

    Attributes
    ----------
    state
        ``unknown``: the budget ended; ``unasked``: the model has no oracle that could say.
    minimal
        Without any one element of ``blocking``, what is left of it proves nothing; else it is the smallest set that was
        found.
    beside
        Which others: ``earlier``, those admitted before it; ``plan``, all that the plan admits, since some action was
        asked once more at the end.
    at_most
        Of a gang without a proof of its own: what is proven of it and others together. All gangs of a plan that have it
        are counted in it.
    """

    state: ProofState
    method: str = ""
    blocking: tuple[Blocker, ...] = ()
    minimal: bool = False
    beside: Literal["earlier", "plan"] = "earlier"
    at_most: AtMost | None = None


@dataclass(slots=True, unsafe_hash=True)
class Pending:
    """A gang (or the surplus of one) that gets nothing this cycle, and why.

    ``message`` is for people; ``fit_errors`` are the parts of KAI's own texts, on which tools match.
    """

    gang: str
    reason: Reason
    message: str
    proof: Proof
    fit_errors: tuple[FitError, ...] = ()


@dataclass(frozen=True, slots=True)
class Stage:
    """One objective stage: its value, the proven bound, whether they meet. Smaller is better for all stages.

    ``stake``: how large the value could be, for work and GPUs that may be evicted; 0 for other stages.
    """

    name: str
    value: float
    bound: float
    optimal: bool
    stake: float = 0.0

    @property
    def gap(self) -> float | None:
        """`relative_gap` of the stage."""
        return relative_gap(self.value, self.bound, self.stake)


STAKE_PART = 0.01
"""Part of the stake below which a bound is not what a distance is measured by: near 0 every distance would be large."""


def relative_gap(value: float, bound: float, stake: float = 0.0) -> float | None:
    """Distance of value and bound as a part of the bound, or of a hundredth of the stake where that is more.

    None where the two say nothing about each other: the bound and the stake are 0, or the signs differ.
    """
    if value == bound:
        return 0.0
    least = max(abs(bound), STAKE_PART * stake)
    return abs(value - bound) / least if least and value * bound >= 0 else None


Source = Literal["bound", "greedy", "cp-sat"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of one cycle.

    Attributes
    ----------
    admitted
        Gangs that get pods, in the order in which they were admitted, with the action that admitted them.
        A gang may appear more than once (surplus pods one by one).
    source
        ``bound``: greedy's plan, and bounds prove that nothing better exists; ``greedy``: greedy's plan, not proven;
        ``cp-sat``: the solver improved on greedy's plan.
    timing_s
        Seconds by phase; ``decide`` is from the snapshot in memory to the checked plan, ``first-plan`` to the first
        plan that the checker passed, which stands if later ones are refused. ``presolve``, ``first``,
        ``best`` and ``proof`` are sums over the solver's questions: from asking one to its first word, its first and
        best solution, its proof.
    notes
        What the engine wants people to know (solver crashed, budget ended, ...).
    unmoved
        Pods that stay on a node that is to be drained, and why.
    unclaimed
        Why no bounds are claimed of what is evicted, although they were searched; else empty.
    """

    binds: tuple[Bind, ...] = ()
    moves: tuple[Move, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    pending: tuple[Pending, ...] = ()
    admitted: tuple[tuple[str, Action], ...] = ()
    stages: tuple[Stage, ...] = ()
    source: Source = "greedy"
    timing_s: dict[str, float] = field(default_factory=dict)
    model: str = ""
    model_hash: str = ""
    seed: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unclaimed: str = ""
    unmoved: tuple[Unmoved, ...] = ()
