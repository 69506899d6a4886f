"""From claims to amounts: every set of devices that must be counted becomes a resource (see ``rows``).

GPUs of claims are GPUs of their node and of the queue (docs/kai-behaviour.md#accounting); only where a request may not
take any of them, its set is a resource of its own beside that. What is done here is taken off again by ``raised``.
"""

from dataclasses import dataclass, field, replace

from kai_solver.claims.demand import Demand, Wish
from kai_solver.claims.extended import with_extended_claims
from kai_solver.claims.isolating import without_spoilers
from kai_solver.claims.matching import DeviceTable
from kai_solver.claims.survey import Consumer, Keeping, Use, refusals, survey
from kai_solver.domain import (
    Allotted,
    Claim,
    Claims,
    Constraints,
    Gang,
    GpuRequest,
    Lowered,
    Node,
    Notice,
    Pod,
    PodAffinityTerm,
    PodStatus,
    Requirement,
    Snapshot,
)
from kai_solver.domain.gpus import shares_elsewhere
from kai_solver.units import GPU, MILLI, ResourceSchema

_NODE_NAME = "metadata.name"
_LABEL = "claim.kai-solver/"


def raised(snapshot: Snapshot) -> Snapshot:
    """``snapshot`` as it was before ``lower``; pods keep what has happened to them since."""
    claims = snapshot.claims
    if claims is None or claims.lowered is None:
        return snapshot
    was = claims.lowered
    size = was.schema.size

    def pod_of(pod: Pod) -> Pod:
        old = was.pods.get(pod.key)
        if old is None:
            return replace(pod, request=pod.request[:size])
        asked = {"request": old.request, "gpu": old.gpu, "quota_gpu_milli": old.quota_gpu_milli}
        devices = old.devices if pod.claims else pod.devices  # Those of claims follow from the claims.
        terms = {"constraints": old.constraints, "labels": old.labels, "claims": old.claims, "devices": devices}
        return replace(pod, **asked, **terms, claims_gpus=False)  # type: ignore[arg-type]

    return replace(
        snapshot,
        schema=was.schema,
        nodes=was.nodes,
        gangs=tuple(replace(gang, pods=tuple(pod_of(pod) for pod in gang.pods)) for gang in snapshot.gangs),
        foreign=tuple(pod_of(pod) for pod in snapshot.foreign if pod.key not in was.holders),
        claims=replace(claims, claims=was.claims, lowered=None),
    )


def lower(snapshot: Snapshot) -> Snapshot:
    """``snapshot`` with its claims turned into amounts, node terms, and reasons why pods must wait.

    Claims, classes and devices that make it fail with an unexpected error are left out, with a notice.
    """
    try:
        return _lowered(snapshot)
    except Exception as error:
        return without_spoilers(snapshot, _lowered, error)


def _lowered(snapshot: Snapshot) -> Snapshot:
    snapshot = raised(snapshot)
    claims = snapshot.claims
    if claims is None:
        if not any(pod.claims for gang in snapshot.gangs for pod in gang.pods):
            return snapshot
        claims = Claims()  # Claims that do not exist are to be told.
    DeviceTable.known(claims).begin()
    without, made = with_extended_claims(snapshot, claims)
    return _Lowering(snapshot, without, claims, made).run()


@dataclass(slots=True)
class _Change:
    """What claims add to one pod."""

    wishes: list[Wish] = field(default_factory=list)
    held: list[Allotted] = field(default_factory=list)
    plain: dict[str, int] = field(default_factory=dict)
    nodes: list[tuple[str, ...]] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    affinity: list[PodAffinityTerm] = field(default_factory=list)
    quota_gpus: int = 0
    has_gpus: bool = False


class _Lowering:
    """One run."""

    def __init__(self, original: Snapshot, snapshot: Snapshot, claims: Claims, made: dict[str, Claim]) -> None:
        self.original = original
        self.snapshot = snapshot
        self.claims = claims
        self.notices: list[Notice] = []
        self.changes: dict[str, _Change] = {}
        self.holders: list[Pod] = []
        self.is_rough = False
        self.uses = survey(snapshot, (*claims.claims, *made.values()))
        self.demand = Demand(snapshot, claims, self.uses)
        self._interned: dict[Constraints, Constraints] = {}

    def run(self) -> Snapshot:
        inferred = self.demand.infer()
        for key, use in self.uses.items():
            if key in inferred:
                use.claim = replace(use.claim, allotted=inferred[key])
        self._block_missing()
        used = [u for u in self.uses.values() if u.holding or u.waiting or u.claim.allotted]
        wishes = {use.claim.key: self.demand.wishes(use.claim) for use in used}
        for use in used:
            self._admit(use, *wishes[use.claim.key])
        for use in used:
            self._charge(use, *wishes[use.claim.key])
        for use in used:
            if self.demand.uses_gpus(use.claim):
                for consumer in (*use.holding, *use.waiting):
                    self._change(consumer.pod).has_gpus = True
        return self._snapshot()

    def _change(self, pod: Pod) -> _Change:
        return self.changes.setdefault(pod.key, _Change())

    # -- claims --------------------------------------------------------------------------------------------------

    def _charge(self, use: Use, wishes: list[Wish], problem: str) -> None:
        if use.keeping is Keeping.UNALLOCATED:
            self._charge_unallocated(use, wishes)
        elif use.keeping is Keeping.PAYER:
            self._charge_payer(use, wishes, problem)
        else:
            self._keep(use)

    def _admit(self, use: Use, wishes: list[Wish], problem: str) -> None:
        """Reasons why pods that wait may not use the claim."""
        is_gpu = self.demand.is_gpu(use.claim)
        for pod_key, text in refusals(use, self.claims.queue_label, is_gpu=is_gpu).items():
            self.changes.setdefault(pod_key, _Change()).blocked.append(text)
        if problem and use.claim.allotted is None and use.waiting:
            self.notices.append(Notice("set-aside", f"resource claim {use.claim.key}", problem))
            for consumer in use.waiting:
                self._change(consumer.pod).blocked.append(f"resource claim {use.claim.key}: {problem}")
        self.is_rough |= any(wish.is_narrowed for wish in wishes)

    def _charge_unallocated(self, use: Use, wishes: list[Wish]) -> None:
        """The first consumer pays and the others are held to its node; it comes first, or they wait."""
        running = [c for c in use.holding if c.pod.node]
        if running:
            self._hold_plainly(use, running[0])
            for consumer in use.waiting:
                self._change(consumer.pod).nodes.append((running[0].pod.node,))
            return
        if not use.waiting:
            return
        able = [c for c in use.waiting if not self._change(c.pod).blocked and not c.pod.constraints.blocked]
        payer = (able or use.waiting)[0]
        self._change(payer.pod).wishes += wishes
        for wish in wishes:
            if wish.nodes is not None:
                self._change(payer.pod).nodes.append(wish.nodes)
        self.is_rough |= len({id(consumer.gang) for consumer in use.waiting}) > 1  # Another could pay.
        if len(use.waiting) > 1:
            label = _LABEL + use.claim.name
            self._change(payer.pod).labels[label] = ""
            term = PodAffinityTerm((Requirement(label, "Exists"),), _NODE_NAME)
            for consumer in use.waiting:
                if consumer.pod.key != payer.pod.key:
                    self._change(consumer.pod).affinity.append(term)

    def _hold_plainly(self, use: Use, consumer: Consumer) -> None:
        """A pod that runs without an allocation: on devices of a plugin, or on unidentified ones."""
        if use.claim.extended:
            plain = self._change(consumer.pod).plain
            plain[use.claim.extended] = plain.get(use.claim.extended, 0) + sum(r.count for r in use.claim.requests)
        else:
            text = "a pod that uses it runs, and its devices are unknown: they count as free"
            self.notices.append(Notice("warning", f"resource claim {use.claim.key}", text))

    def _charge_payer(self, use: Use, wishes: list[Wish], problem: str) -> None:
        change = self._change(use.payer.pod)
        change.held += self._known(use.claim)
        # Running pods cannot move without the others, nor if what they need is unknown.
        if use.is_shared or problem:
            for consumer in use.holding:
                self._change(consumer.pod).nodes.append((consumer.pod.node,))
            self.is_rough = True
        elif self.demand.is_more_than(change.held, wishes):
            self.is_rough = True  # To move it, it would need less than it holds.

    def _keep(self, use: Use) -> None:
        """The claim holds its devices whichever pods leave: a stand-in pod holds them, and the payer pays for GPUs."""
        held = self._known(use.claim)
        node = self.demand.node_of(held)
        for consumer in (*use.holding, *use.waiting):
            if node:
                self._change(consumer.pod).nodes.append((node,))
            elif consumer.pod.status is PodStatus.PENDING:
                text = f"resource claim {use.claim.key} is allocated on devices that no node offers"
                self._change(consumer.pod).blocked.append(text)
        if use.holding or use.waiting:
            self.is_rough = True
            self._change(use.payer.pod).quota_gpus += len(self.demand.gpu_indices(held))
        if node and held:
            self.holders.append(self._holder(use.claim, node, held))

    def _holder(self, claim: Claim, node: str, held: list[Allotted]) -> Pod:
        gpus = self.demand.gpu_indices(held)
        request = (0,) * self.original.schema.size + self.demand.amounts_held(held)
        return Pod(
            namespace=claim.namespace,
            name=f"claim:{claim.name}",
            request=request,
            gpu=GpuRequest(len(gpus)),
            status=PodStatus.RUNNING,
            node=node,
            devices=gpus,
            # The pods that use the claim pay, not the stand-in.
            quota_gpu_milli=-len(gpus) * MILLI,
        )

    def _known(self, claim: Claim) -> list[Allotted]:
        known = [a for a in claim.allotted or () if a.id in self.demand.table.index]
        if len(known) < len(claim.allotted or ()):
            text = "holds devices that no ResourceSlice of a node offers: they are not counted"
            self.notices.append(Notice("warning", f"resource claim {claim.key}", text))
        return known

    def _block_missing(self) -> None:
        for gang in self.snapshot.gangs:
            for pod in gang.pods:
                for key in pod.claims:
                    if key not in self.uses and pod.status is PodStatus.PENDING:
                        name = key.rpartition("/")[2]
                        self._change(pod).blocked.append(f'resourceclaim.resource.k8s.io "{name}" not found')

    # -- the snapshot --------------------------------------------------------------------------------------------

    def _snapshot(self) -> Snapshot:
        schema = ResourceSchema((*self.original.schema.names, *self.demand.row_names))
        before = {pod.key: pod for gang in self.original.gangs for pod in gang.pods}
        before |= {pod.key: pod for pod in self.original.foreign}
        gangs = tuple(self._gang(gang) for gang in self.snapshot.gangs)
        foreign = tuple(self._pod(pod) for pod in self.snapshot.foreign)
        after = [pod for gang in gangs for pod in gang.pods] + list(foreign)
        size = self.original.schema.size
        short = (replace(pod, request=pod.request[:size]) for pod in after)
        lowered = Lowered(
            schema=self.original.schema,
            nodes=self.original.nodes,
            pods={pod.key: before[pod.key] for pod in short if pod != before[pod.key]},
            holders=frozenset(pod.key for pod in self.holders),
            claims=self.claims.claims,
            is_rough=self.is_rough or self.demand.is_rough,
            gpus=self.demand.gpus_by_node(),
        )
        claims = tuple(use.claim for use in self.uses.values())
        return replace(
            self.snapshot,
            schema=schema,
            nodes=tuple(self._node(node) for node in self.snapshot.nodes),
            gangs=gangs,
            foreign=(*foreign, *self.holders),
            notices=tuple(dict.fromkeys((*self.snapshot.notices, *self.demand.notices, *self.notices))),
            claims=replace(self.claims, claims=claims, lowered=lowered),
        )

    def _node(self, node: Node) -> Node:
        allocatable = list(node.allocatable) + list(self.demand.offered(node))
        gpus = self.demand.gpus_on(node.name)
        allocatable[GPU] += gpus * MILLI
        return replace(node, allocatable=tuple(allocatable), gpus=node.gpus + gpus)

    def _gang(self, gang: Gang) -> Gang:
        """The same object if nothing is added, so that caches keyed by identity find it again."""
        pods = tuple(self._pod(pod) for pod in gang.pods)
        is_same = all(one is other for one, other in zip(pods, gang.pods, strict=True))
        return gang if is_same else replace(gang, pods=pods)

    def _pod(self, pod: Pod) -> Pod:
        change = self.changes.get(pod.key)
        wishes = [*(change.wishes if change else ()), *self.demand.plain_wishes(pod)]
        rows = self.demand.amounts(wishes)
        if change is not None:
            held = self.demand.amounts_held(change.held), self.demand.amounts_plain(change.plain)
            rows = tuple(map(sum, zip(rows, *held, strict=True)))
        if rows:
            pod = replace(pod, request=pod.request + rows)
        if change is not None:
            pod = self._changed(pod, change)
        elsewhere = self.demand.no_shares_on
        if pod.gpu.is_shared and elsewhere:
            terms = (*pod.constraints.node_terms, shares_elsewhere(elsewhere))
            pod = replace(pod, constraints=self._intern(replace(pod.constraints, node_terms=terms)))
        return pod

    def _changed(self, pod: Pod, change: _Change) -> Pod:
        held = self.demand.gpu_indices(change.held)
        gpus = sum(w.count for w in change.wishes if w.is_gpu) + len(held) + self.demand.plain_gpus(change.plain)
        blocked = list(change.blocked)
        gpu = pod.gpu
        if gpus and gpu.is_shared:
            blocked.append("a share of a GPU beside GPUs by resource claim is not possible")
        elif gpus:
            if gpu.row:
                text = (
                    "its wish for GPUs in a row is ignored: some are given by claim. Use the constraints of the claim"
                )
                self.notices.append(Notice("warning", f"pod {pod.key}", text))
            gpu = GpuRequest(gpu.devices + gpus)
        waits = pod.status is PodStatus.PENDING
        terms = tuple(((Requirement(_NODE_NAME, "In", nodes),),) for nodes in change.nodes)
        constraints = replace(
            pod.constraints,
            node_terms=(*pod.constraints.node_terms, *dict.fromkeys(terms)),
            affinity=(*pod.constraints.affinity, *change.affinity),
            blocked=(*pod.constraints.blocked, *dict.fromkeys(blocked)) if waits else pod.constraints.blocked,
        )
        return replace(
            pod,
            gpu=gpu,
            devices=held if held and gpu.devices == len(held) else pod.devices if gpu == pod.gpu else (),
            quota_gpu_milli=pod.quota_gpu_milli + change.quota_gpus * MILLI,
            constraints=self._intern(constraints),
            labels={**pod.labels, **change.labels} if change.labels else pod.labels,
            claims_gpus=change.has_gpus,
        )

    def _intern(self, constraints: Constraints) -> Constraints:
        return self._interned.setdefault(constraints, constraints)
