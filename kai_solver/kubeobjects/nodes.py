"""Nodes: what they offer, and whether anything new may be placed there."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kai_solver.domain import Node, NumaTopology, Policy, Taint, paid_gpu_milli
from kai_solver.domain.gpus import GPU_REPLICAS, MIG_STRATEGY, MIXED, SINGLE, has_single_mig, is_mig_enabled
from kai_solver.domain.object_limits import MOST_GPUS
from kai_solver.errors import InputError, printable
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.maintenance import read_drain_at_s
from kai_solver.kubeobjects.notices import Notices, read_each
from kai_solver.kubeobjects.objects import Object
from kai_solver.kubeobjects.ownkeys import strays
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.resources import Amounts, read_amounts, without_gpus
from kai_solver.kubeobjects.settings import KubeSettings, in_pool
from kai_solver.links import TOPOLOGY_ANNOTATION, topology_problem
from kai_solver.units import MILLI, ResourceSchema, mig_slices, parse_whole, shared_gpu_resource

_MIB = 2**20
_TIB_IN_MIB = 2**20
_MEMORY_STEP_MIB = 100
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class RawNode:
    """A node before the schema of the snapshot is known.

    ``gpus``: devices, those too that failed; ``strays``: what is wrong with annotations of ours.
    """

    name: str
    amounts: Amounts
    gpus: int
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    schedulable: bool
    gpu_uuids: tuple[str, ...]
    gpu_topology: str = ""
    drain_at_s: float | None = None
    strays: tuple[str, ...] = ()

    def finish(self, schema: ResourceSchema, numa: NumaTopology | None = None) -> Node:
        """The node with its vector; resources outside the schema play no part."""
        amounts = {name: amount for name, amount in self.amounts.items() if name in schema.names}
        return Node(
            name=self.name,
            allocatable=schema.vector(amounts),
            gpus=self.gpus,
            gpu_memory_mib=gpu_memory_mib(self.labels.get(names.GPU_MEMORY_LABEL, "")),
            labels=self.labels,
            taints=self.taints,
            schedulable=self.schedulable,
            gpu_uuids=self.gpu_uuids,
            numa=numa,
            gpu_topology=self.gpu_topology,
            drain_at_s=self.drain_at_s,
        )


@dataclass(frozen=True, slots=True)
class NodeReading:
    """Nodes of our pool, and the names of those in other pools.

    ``sharing``: labels of the nodes that offer replicas of time-sliced GPUs, each set of replicas once;
    ``not_shared``: names of those with GPUs of a resource by which no shared device can be held.
    """

    nodes: dict[str, RawNode]
    elsewhere: frozenset[str]
    has_single_mig: bool = False
    sharing: tuple[dict[str, str], ...] = ()
    not_shared: tuple[str, ...] = ()

    def paid_gpu_milli(self, amounts: Amounts, node: str, policy: Policy) -> int:
        """GPUs that a queue pays for MIG slices and shared GPUs of a pod on ``node`` (empty: it waits)."""
        if not any("/" in name for name in amounts):
            return 0
        on = self.nodes.get(node)
        return paid_gpu_milli(amounts, on.labels if on is not None else None, self.sharing, policy)

    @property
    def gpu_milli(self) -> int:
        """Thousandths of whole GPUs on schedulable nodes."""
        return sum(node.amounts.get("gpu", 0) for node in self.nodes.values() if node.schedulable)


@dataclass(slots=True)
class NodeRecall:
    """Nodes of the last reading by the identity of their objects, which are kept here and so cannot be another's."""

    settings: KubeSettings | None = None
    read: dict[int, tuple[object, RawNode]] = field(default_factory=dict)
    _schema: ResourceSchema | None = None
    _finished: dict[str, tuple[RawNode, Node]] = field(default_factory=dict)

    def of(self, settings: KubeSettings) -> dict[int, tuple[object, RawNode]]:
        """What still gives the same."""
        return self.read if settings == self.settings else {}

    def finish(self, node: RawNode, schema: ResourceSchema) -> Node:
        """`RawNode.finish` without zones, the very same object while nothing about the node changed."""
        if schema != self._schema or len(self._finished) > 2 * len(self.read):
            self._schema, self._finished = schema, {}
        known = self._finished.get(node.name)
        if known is None or known[0] is not node:
            known = self._finished[node.name] = node, node.finish(schema)
        return known[1]


def read_nodes(
    objects: tuple[Object, ...], settings: KubeSettings, notices: Notices, recall: NodeRecall | None = None
) -> NodeReading:
    """Read all nodes; broken and doubled ones are set aside with a notice.

    One node takes about 0.2 ms to read; those of ``recall`` that had no notice are not read again.
    """
    recall = recall or NodeRecall()
    old, fresh = recall.of(settings), dict[int, tuple[object, RawNode]]()

    def known(value: object) -> tuple[str, RawNode] | None:
        found = old.get(id(value))
        if found is None:
            return None
        fresh[id(value)] = found
        return found[1].name, found[1]

    def read(raw: Raw) -> RawNode:
        before, node = notices.count, _node(raw, settings, notices)
        if notices.count == before:
            fresh[id(raw.value)] = raw.value, node
        return node

    nodes = read_each("Node", objects, notices, read, known=known)
    recall.settings, recall.read = settings, fresh
    elsewhere = {n.name for n in nodes.values() if not in_pool(n.labels, settings)}
    if elsewhere:
        notices.warn("Nodes", f"{len(elsewhere)} nodes of other node pools take no part")
    ours = {n: node for n, node in nodes.items() if n not in elsewhere}
    single = any(has_single_mig(node.labels) for node in ours.values())
    held_by = shared_gpu_resource(settings.policy.gpu_resources)
    not_shared = tuple(n for n, node in ours.items() if node.amounts.get("gpu") and not node.amounts.get(held_by))
    return NodeReading(ours, frozenset(elsewhere), single, _sharing(ours.values(), settings, notices), not_shared)


def _sharing(nodes: Iterable[RawNode], settings: KubeSettings, notices: Notices) -> tuple[dict[str, str], ...]:
    found: dict[str, dict[str, str]] = {}
    for node in nodes:
        if any(node.amounts.get(name) for name in settings.policy.shared_gpu_resources):
            replicas = node.labels.get(GPU_REPLICAS, "")
            found.setdefault(replicas, {GPU_REPLICAS: replicas})
            if not replicas:
                text = f"shares GPUs and has no label {GPU_REPLICAS}: each share is charged as a whole GPU"
                notices.warn(f"Node {node.name}", text)
    return tuple(found.values())


def gpu_memory_mib(label: str) -> int:
    """Memory of one device from its label; 0 where unknown.

    KAI rounds down to full hundreds and takes values of 1 TiB (in MiB) and more for bytes
    (docs/kai-behaviour.md#fractions).
    """
    value = parse_whole(label, 18) or 0
    if value >= _TIB_IN_MIB:
        value //= _MIB
    return value // _MEMORY_STEP_MIB * _MEMORY_STEP_MIB


def _node(raw: Raw, settings: KubeSettings, notices: Notices) -> RawNode:
    labels, annotations = raw.strings("metadata.labels"), raw.strings("metadata.annotations")
    name, amounts = raw.required("metadata.name"), _allocatable(raw, labels, settings)
    uuids, gpus = printable(annotations.get(names.OWN_GPU_UUIDS, "")), _devices(raw, amounts, settings)
    return RawNode(
        name=name,
        amounts=amounts,
        gpus=gpus,
        labels=labels,
        taints=tuple(_taint(taint) for taint in raw.items("spec.taints")),
        schedulable=not raw.flag("spec.unschedulable") and _is_ready(raw),
        gpu_uuids=tuple(filter(None, uuids.split(","))),
        gpu_topology=_gpu_topology(name, annotations.get(TOPOLOGY_ANNOTATION, ""), gpus, notices),
        drain_at_s=read_drain_at_s(annotations, f"Node {name}", notices),
        strays=strays(annotations, "Node"),
    )


def _gpu_topology(name: str, text: str, gpus: int, notices: Notices) -> str:
    """What the node says of its links; nothing, with a notice, where that cannot be used."""
    problem = topology_problem(text, gpus) if text else ""
    if problem:
        notices.warn(f"Node {name}", f"annotation {TOPOLOGY_ANNOTATION}: {problem}: it is left out")
    return "" if problem else text


def _allocatable(raw: Raw, labels: dict[str, str], settings: KubeSettings) -> Amounts:
    """Allocatable amounts: with MIG and the strategy ``mixed`` slices only, else whole devices only.

    Source: docs/kai-behaviour.md#mig. Where a label does not say whether MIG is enabled, slices do: more than 0, since
    a node goes on to list those that it had.
    """
    offered = raw.get("status.allocatable") or raw.get("status.capacity")
    names_of_gpus = settings.policy.gpu_resources
    amounts = read_amounts(offered, names_of_gpus)
    enabled = is_mig_enabled(labels, (name for name, amount in amounts.items() if amount))
    strategy = labels.get(MIG_STRATEGY, "")
    if enabled and strategy == MIXED:
        return without_gpus(amounts, names_of_gpus)
    if not enabled or strategy == SINGLE:
        return {name: amount for name, amount in amounts.items() if not mig_slices(name)}
    return amounts


def _devices(raw: Raw, amounts: Amounts, settings: KubeSettings) -> int:
    """GPUs that the node has: of a device plugin's those too that failed, which ``amounts`` does not offer.

    Where it offers none at all it is not known whether they are still its own (DRA may have taken over).
    """
    offered = amounts.get("gpu", 0)
    if not offered:
        return 0
    named = settings.policy.gpu_resources
    present = {name: amount for name, amount in raw.get("status.capacity").fields() if name in named}
    number = max(offered, sum(amount.quantity() for amount in present.values()) * MILLI) // MILLI
    if number > MOST_GPUS:
        cure = "Check what its device plugin reports"
        raise InputError(f"{number:,} GPUs; at most {MOST_GPUS:,} are read", field="status.allocatable", cure=cure)
    return number


def _taint(raw: Raw) -> Taint:
    effect = raw.required("effect")
    if effect not in _EFFECTS:
        raise InputError(
            f"{effect!r} is not a taint effect", field=raw.path, cure=f"Write one of {', '.join(_EFFECTS)}"
        )
    return Taint(raw.required("key"), raw.text("value"), effect)  # type: ignore[arg-type]


def _is_ready(raw: Raw) -> bool:
    """A node without a Ready condition (a manifest) is ready."""
    for condition in raw.items("status.conditions"):
        if condition.text("type") == "Ready":
            return condition.text("status") == "True"
    return True
