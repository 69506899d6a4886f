"""A solver model: which rules, in which order, how searched. Files in ``models/`` are read by ``modelfiles``."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kai_solver.domain.plan import Action
from kai_solver.units import UNLIMITED

ACTIONS = (Action.ALLOCATE, Action.CONSOLIDATION, Action.RECLAIM, Action.PREEMPT, Action.STALE)

RULES = {
    "ports": "host_ports",
    "tenants": "one_tenant",
    "affinity": "pod_relations",
    "spread": "pod_relations.spread",
    "placement": "workload_spread",
    "budgets": "disruption_budgets",
    "gpurows": "gpu_rows",
    "spares": "spares",
    "numa": "numa_zones",
    "usercaps": "user_caps",
    "stop": "stopped_queues",
    "maintenance": "maintenance",
}
"""Optional rules that ship, in the order in which they are asked: the name of each, which is that of its constraint
family, and of its package (or module of one) ``kai_solver.rules.<package>``."""

RULE_GROUP = "kai_solver.rules"
"""Entry points of rules of other packages."""

_ROWS_IN_ORDER = (
    "gang",
    "subgroup",
    "capacity",
    "numa",
    "limit",
    "quota",
    "entitlement",
    "priority",
    "topology",
    "units",
    "moves",
    "affinity",
    "spread",
    "ports",
    "placement",
    "budgets",
    "tenants",
    "spares",
    "gpurows",
)
"""Families of the core and of rules whose rows keep their order: another one changes what CP-SAT proves in its time."""

FAMILIES = (*_ROWS_IN_ORDER, *(name for name in RULES if name not in _ROWS_IN_ORDER))
"""Constraint families of the CP-SAT model that ship with kai-solver, of the core and of rules; more by entry points."""

STAGES = ("disruption", "preference", "links", "victim-order")
"""Objective stages of a model that names none."""

SEATING = ("links",)
"""Of all stages those that no CP-SAT model of the disruption has: by them seats are chosen."""

OPTIONAL_STAGES = ("leftover", "disruption-gpus")
"""Stages that ship as well, for models that name them (more by entry points)."""

DISRUPTING = ("disruption", "disruption-gpus")
"""Those of the stages that are about evicted and moved pods."""


@dataclass(frozen=True, slots=True)
class StageSpec:
    """One objective stage: its name (an entry point), its part of the budget, and where it may stop."""

    name: str
    share: float = 0.25
    gap: float = 0.0


@dataclass(frozen=True, slots=True)
class UsualPod:
    """A kind of pod that usually arrives: what one asks for, and how many there are of it, relative to the others.

    ``models``: GPU models (the node label ``nvidia.com/gpu.product``) on which it may run; empty: any.
    """

    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...] = ()
    pods: float = 1.0


CpSatValue = int | float | bool | str | list[int | float | bool | str]
"""A value of one of CP-SAT's own parameters; an enum by its number."""


@dataclass(frozen=True, slots=True)
class SearchSpec:
    """How CP-SAT is asked.

    Attributes
    ----------
    enabled
        False: greedy and bounds only.
    workers
        Search workers of the child; 1 is deterministic with ``deterministic``.
    deterministic
        Deterministic time instead of wall time; same objective and bounds in every run.
    question_s
        Longest time for one oracle question, seconds (deterministic seconds where deterministic).
    questions_share
        Part of the budget for oracle questions; the rest is for the stages.
    presolve
        ``light``, ``default``, ``none`` or ``auto`` (by size).
    chains
        Insertions that the chain search tries in one cycle at most, on large clusters; 0: none.
    parameters
        Of CP-SAT itself, by their names in OR-tools; they come after, and so instead of, what the above says.
    """

    enabled: bool = True
    workers: int = 2
    deterministic: bool = False
    question_s: float = 0.5
    questions_share: float = 0.5
    presolve: str = "auto"
    memory_mib: int = 4096
    chains: int = 0
    parameters: Mapping[str, CpSatValue] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class MovesSpec:
    """What a move costs, and how many there may be.

    Attributes
    ----------
    checkpoint_s, restart_s
        Seconds of its work that a moved pod loses: what it has run, but no more than ``checkpoint_s`` (since its last
        checkpoint), and ``restart_s`` until it works again.
    per_gang
        Gangs that may move for one gang by consolidation in the chain search; -1: as many as the cluster's policy says.
        The lesser counts.
    per_cycle
        Pods that may be elsewhere in one cycle by the chain search, those included that moved before; -1: any number.
    """

    checkpoint_s: float = 240.0
    restart_s: float = 60.0
    per_gang: int = -1
    per_cycle: int = -1

    @property
    def are_limited(self) -> bool:
        """Whether there may be only so many moves: chains count theirs, and actions count none."""
        return not self.per_cycle == self.per_gang == UNLIMITED


@dataclass(frozen=True, slots=True)
class SolverModel:
    """A model as the engine uses it.

    Attributes
    ----------
    actions
        Actions that are run, in order.
    admission
        ``rank``: by policy order, no gang is traded for a later one; ``max-gpus``: within a priority stratum, most
        GPUs served.
    usual
        Pods that usually arrive, by which the stage ``leftover`` prices what is left; empty: those of the snapshot.
    budget_s
        Default budget of a cycle, seconds.
    hash
        Of the file's content, first 12 hex digits of SHA-256: recorded in every plan.
    """

    name: str
    summary: str = ""
    actions: tuple[Action, ...] = ACTIONS
    admission: str = "rank"
    families: tuple[str, ...] = FAMILIES
    stages: tuple[StageSpec, ...] = tuple(StageSpec(name) for name in STAGES)
    search: SearchSpec = field(default_factory=SearchSpec)
    usual: tuple[UsualPod, ...] = ()
    moves: MovesSpec = field(default_factory=MovesSpec)
    budget_s: float = 2.0
    hash: str = ""

    @property
    def disrupting(self) -> tuple[str, ...]:
        """Its stages about evicted and moved pods, in order."""
        return tuple(stage.name for stage in self.stages if stage.name in DISRUPTING)

    @property
    def evicts_by_gpus(self) -> bool:
        """True where the GPUs of evicted pods count in place of the work that they lose."""
        return "disruption-gpus" in self.disrupting

    @property
    def counts_links(self) -> bool:
        """True where nodes and devices are chosen by the links between GPUs."""
        return any(stage.name == "links" for stage in self.stages)

    @property
    def prices_leftover(self) -> bool:
        """True where capacity that is left over is priced by the demand that usually arrives."""
        return any(stage.name == "leftover" for stage in self.stages)
