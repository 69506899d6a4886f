"""Where a pod may run, and beside which pods, as Kubernetes states it."""

from dataclasses import dataclass, fields
from typing import Literal


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression of a node or label selector: key, operator (In, NotIn, Exists, ...), values."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()


NodeTerm = tuple[Requirement, ...]
"""Requirements that must all hold. The key ``metadata.name`` stands for the node's name."""


@dataclass(frozen=True, slots=True)
class Toleration:
    """As in Kubernetes; the empty key with ``Exists`` tolerates everything, the empty effect every effect."""

    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """(Anti-)affinity to pods whose labels match, inside one value of ``topology_key``.

    ``namespaces`` empty means the pod's own namespace; ``("*",)`` means all.
    """

    selector: tuple[Requirement, ...]
    topology_key: str
    namespaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """A ``topologySpreadConstraint``: how unevenly matching pods of the namespace may lie over the domains.

    Attributes
    ----------
    max_skew
        Most matching pods of a domain less those of the emptiest one.
    min_domains
        With fewer domains than this the emptiest counts as empty.
    honours_affinity, honours_taints
        Whether nodes that the pod's node affinity, or taints, keep it from count as domains
        (``nodeAffinityPolicy`` and ``nodeTaintsPolicy``; the defaults are Kubernetes').
    """

    selector: tuple[Requirement, ...]
    topology_key: str
    max_skew: int = 1
    min_domains: int = 1
    honours_affinity: bool = True
    honours_taints: bool = False


@dataclass(frozen=True, slots=True)
class Alone:
    """Within one value of the node label ``topology_key`` no pod with the same rule and another ``tenant``.

    Follows from the rule of a topology (`OneTenant`); no pod asks for it. ``level``: of the domains, for people.
    """

    topology_key: str
    tenant: str
    level: str = ""


class _Hashed:
    """Holds a hash outside the fields: copies and pickles omit it, as texts hash differently in other processes."""

    __slots__ = ("_hash",)
    _hash: int


@dataclass(frozen=True, slots=True)
class Constraints(_Hashed):
    """Where a pod may run. Equal constraints are one object where an importer interns them (cheap classes).

    Attributes
    ----------
    node_terms
        Conjunction of disjunctions: for every entry at least one of its terms must hold (node selector, required
        node affinity and each volume's node affinity are one entry each).
    preferred
        (weight, term) of preferred node affinity.
    preferred_pods
        (weight, term) of preferred pod affinity; a negative weight is preferred anti-affinity.
    spread, preferred_spread
        Spread that must hold (``DoNotSchedule``), and that should (``ScheduleAnyway``).
    blocked
        Reasons, in words, why no node can take the pod until something else changes (a missing claim, a
        missing ConfigMap). Empty for most.
    alone
        The pod's tenant, by the label of each domain that one tenant uses at a time.
    may_use_spares
        Nodes that domains keep free are open to the pod; said only where a topology keeps some.
    closed_until_s
        Nodes that are to be drained at this time or before (`Node.drain_at_s`) take no new pod like it; None: all do.
    """

    node_terms: tuple[tuple[NodeTerm, ...], ...] = ()
    preferred: tuple[tuple[int, NodeTerm], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity: tuple[PodAffinityTerm, ...] = ()
    anti_affinity: tuple[PodAffinityTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    host_ports: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    preferred_pods: tuple[tuple[int, PodAffinityTerm], ...] = ()
    preferred_spread: tuple[SpreadConstraint, ...] = ()
    alone: tuple[Alone, ...] = ()
    may_use_spares: bool = False
    closed_until_s: float | None = None

    def __hash__(self) -> int:
        """Computed once: with hundreds of terms it takes as long as a placement, and tables need it often."""
        try:
            return self._hash
        except AttributeError:
            found = hash(tuple(getattr(self, name) for name in _FIELDS))
            object.__setattr__(self, "_hash", found)
            return found

    @property
    def binds_pods(self) -> bool:
        """True where the pod may be kept off a node by the pods that are elsewhere."""
        return bool(self.affinity or self.anti_affinity or self.spread or self.host_ports or self.alone)

    @property
    def speaks_of_pods(self) -> bool:
        """True where the places of other pods matter at all, be it for a preference."""
        return bool(self.binds_pods or self.preferred_pods or self.preferred_spread)


_FIELDS = tuple(found.name for found in fields(Constraints))

NO_CONSTRAINTS = Constraints()
