"""What an explanation consists of; ``document`` is its published JSON form."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kai_solver.domain import Knowing, Proof, QueueVector
from kai_solver.explaining.cures import Cure
from kai_solver.explaining.effects import Effect
from kai_solver.explaining.queue_place import QueuePlace
from kai_solver.reasons.events import Event
from kai_solver.units import QUEUE_RESOURCES

_AMOUNTS = ("quota", "limit", "weight", "usage", "fair_share", "allocated", "non_preemptible", "requested")


@dataclass(frozen=True, slots=True)
class QueueLine:
    """A queue in numbers: (cpu milli, memory bytes, gpu milli) each; -1 is unlimited.

    Attributes
    ----------
    depth
        0 at a root.
    usage
        Past use as a share of capacity, of the resources in the order of the amounts.
    fair_share
        What the division grants at the start of the cycle (docs/kai-behaviour.md#fair-share).
    allocated, non_preemptible
        What its pods have, and the part of it that may not be taken.
    requested
        What it has and waits for.
    """

    name: str
    depth: int
    priority: int
    quota: QueueVector
    limit: QueueVector
    weight: tuple[float, float, float]
    usage: tuple[float, float, float]
    fair_share: QueueVector
    allocated: QueueVector
    non_preemptible: QueueVector
    requested: QueueVector

    def document(self) -> dict[str, Any]:
        """Amounts by resource name."""
        entry: dict[str, Any] = {"name": self.name, "depth": self.depth, "priority": self.priority}
        for key in _AMOUNTS:
            entry[key] = dict(zip(QUEUE_RESOURCES, getattr(self, key), strict=True))
        return entry

    @classmethod
    def of_document(cls, entry: Mapping[str, Any]) -> "QueueLine":
        """The line that `document` wrote.

        Raises
        ------
        KeyError, TypeError
            It is none.
        """
        amounts = {key: tuple(entry[key][resource] for resource in QUEUE_RESOURCES) for key in _AMOUNTS}
        return cls(name=entry["name"], depth=entry["depth"], priority=entry["priority"], **amounts)


@dataclass(frozen=True, slots=True)
class NodeReason:
    """Why so many nodes cannot take a pod: in the words of KAI and in those of Kubernetes."""

    nodes: int
    kai: str
    kubernetes: str


@dataclass(frozen=True, slots=True)
class PodFit:
    """Pods of one request, against every node as the plan leaves it.

    Attributes
    ----------
    waiting, required
        Pods of this kind that wait, and how many of them the gang needs to start.
    room
        How many would fit beside all that the plan places; fewer than ``required`` when that is what blocks.
    nearest
        The admissible node that is least short, in words; empty when none is admissible or one fits.
    at_most
        How many the admissible nodes could hold if nothing else ran, by their capacity.
    beyond
        The most that a node has of what one pod asks more of (``8 GPUs``); empty where a node has enough.
    """

    pods: tuple[str, ...]
    request: str
    waiting: int
    required: int
    room: int
    nodes: int
    fitting_nodes: int
    reasons: tuple[NodeReason, ...] = ()
    nearest: str = ""
    at_most: int = 0
    beyond: str = ""


@dataclass(frozen=True, slots=True)
class DomainRoom:
    """Pods of a part of a gang that a domain takes: ``now``, and if it were ``empty``."""

    domain: str
    now: int
    empty: int


@dataclass(frozen=True, slots=True)
class DomainFit:
    """A part of a gang against the domains of one level.

    Attributes
    ----------
    part
        Name of the subgroup; empty for the whole gang.
    pods
        How many must be in one domain; of a gang that runs, how many lie there.
    text
        One sentence for people.
    best
        Domains with the most room, best first; of a gang that runs, the fewest that would take it now.
    lies, preferred
        Of a gang that runs: in how many domains it lies, and whether one of them is what it prefers.
    """

    part: str
    topology: str
    level: str
    pods: int
    text: str
    best: tuple[DomainRoom, ...]
    lies: int = 0
    preferred: bool = False


@dataclass(frozen=True, slots=True)
class BetterLink:
    """A set of GPUs with a faster weakest link.

    ``when``: ``now``, or if the node were ``empty``. ``gpus`` is empty where any of the node would do.
    """

    node: str
    gpus: tuple[int, ...]
    kind: str
    gb_s: int
    when: Literal["now", "empty"]


@dataclass(frozen=True, slots=True)
class LinkFit:
    """The slowest link between the GPUs of one pod of a gang that has its places.

    Attributes
    ----------
    pods, untold
        How many pods have several whole GPUs, and of how many of them the link is not known.
    between
        What joins their nodes: empty for one node, the name of the clique that they share, or ``network``.
    text
        For people.
    pod, node, gpus, kind, gb_s
        The slowest pod, its node, and the weakest link of the best ring through its GPUs: between which two (none: any
        of the node), what it is, GB/s in one direction. Empty and 0 where none is known.
    known
        How it is known which GPUs the pod has.
    better
        What another place would give, the nearest to be had first; empty: nothing more.
    """

    pods: int
    untold: int
    between: str
    text: str
    pod: str = ""
    node: str = ""
    gpus: tuple[int, ...] = ()
    kind: str = ""
    gb_s: int = 0
    known: Knowing = "unknown"
    better: tuple[BetterLink, ...] = ()


GangState = Literal["pending", "placed", "running", "moved", "evicted"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a gang is where it is after a plan.

    Attributes
    ----------
    queue_source
        What named the queue, in words; empty where the input does not show it.
    reason, message, proof
        Of the plan's ``pending`` entry; empty and None where the gang is not pending.
    place
        Where it stands among the gangs of its queue that wait; None where it does not wait.
    queues
        From the gang's queue up to the root; allocation as the plan leaves it.
    domains
        Where it waits: which domains could hold its parts. Where it runs: in how many it lies, and how few would do.
    link
        The slowest link between the GPUs of a gang that has its places; None where it has no pod with several.
    changes
        What would have to change, one sentence each.
    cures
        Changes that were tried out one by one, and what became of the gang; empty where none was asked for.
    kai, kubernetes
        The message as KAI and as Kubernetes would write it.
    events
        What the plan says to it and its pods, in KAI's words.
    effects
        What the plan does to its pods, and to those of others for it.
    condition
        What its PodGroup's ``status.schedulingConditions`` says; None where it says nothing.
    """

    gang: str
    state: GangState
    queue: str
    queue_source: str = ""
    reason: str = ""
    message: str = ""
    proof: Proof | None = None
    place: QueuePlace | None = None
    queues: tuple[QueueLine, ...] = ()
    fits: tuple[PodFit, ...] = ()
    domains: tuple[DomainFit, ...] = ()
    link: LinkFit | None = None
    changes: tuple[str, ...] = ()
    cures: tuple[Cure, ...] = ()
    kai: str = ""
    kubernetes: str = ""
    events: tuple[Event, ...] = ()
    effects: tuple[Effect, ...] = ()
    condition: dict[str, Any] | None = None

    def document(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "gang": self.gang,
            "state": self.state,
            "queue": self.queue,
            "queue_source": self.queue_source,
            "reason": self.reason,
            "message": self.message,
            "proof": asdict(self.proof) if self.proof else None,
            "place": self.place.document() if self.place else None,
            "queues": [line.document() for line in self.queues],
            "fits": [asdict(fit) for fit in self.fits],
            "domains": [asdict(fit) for fit in self.domains],
            "link": asdict(self.link) if self.link else None,
            "changes": list(self.changes),
            "cures": [asdict(cure) for cure in self.cures],
            "kai": self.kai,
            "kubernetes": self.kubernetes,
            "events": [event.document() for event in self.events],
            "effects": [asdict(effect) for effect in self.effects],
            "condition": self.condition,
        }
