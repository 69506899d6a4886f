"""From raw objects to a snapshot: the one way in, for both files and the cluster."""

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kai_solver.domain import Constraints, Gang, Node, Pod, Policy, Queue, Snapshot, flat_gang
from kai_solver.domain.object_limits import MOST_UNOFFERED
from kai_solver.errors import InputError
from kai_solver.kubeobjects import names, shards
from kai_solver.kubeobjects.access import no_spares_text
from kai_solver.kubeobjects.anchors import anchored
from kai_solver.kubeobjects.bare import read_bare
from kai_solver.kubeobjects.bindings import read_bindings
from kai_solver.kubeobjects.budgets import read_budgets
from kai_solver.kubeobjects.claims import TEMPLATE, ClaimBook, read_claim_book
from kai_solver.kubeobjects.constraints import ConstraintReader
from kai_solver.kubeobjects.grouping import Surroundings
from kai_solver.kubeobjects.kainvidia import GROUP, read_nvidia
from kai_solver.kubeobjects.manifests import TEMPLATES, manifest_pods
from kai_solver.kubeobjects.membership import Membership, assign
from kai_solver.kubeobjects.nodes import NodeReading, RawNode, read_nodes
from kai_solver.kubeobjects.notices import Notices, namespaced_key, object_name, read_each
from kai_solver.kubeobjects.objects import Object, RawObjects, group_of, kind_of
from kai_solver.kubeobjects.owners import OWNER_KINDS, OwnerIndex
from kai_solver.kubeobjects.ownkeys import warn_of_strays
from kai_solver.kubeobjects.pluginonly import PluginOnly, plugin_only
from kai_solver.kubeobjects.podgroups import GangReader
from kai_solver.kubeobjects.pods import PodReader, RawPod, without_claims
from kai_solver.kubeobjects.priorities import read_priorities
from kai_solver.kubeobjects.queues import read_queues, read_topologies, with_shipped_queue
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.recall import Recall
from kai_solver.kubeobjects.resources import EPHEMERAL, extended_names
from kai_solver.kubeobjects.selectors import Namespaces
from kai_solver.kubeobjects.settings import KubeSettings
from kai_solver.kubeobjects.shards import settings_from_objects
from kai_solver.kubeobjects.shares import consistent, read_reservations, within_room
from kai_solver.kubeobjects.volumes import read_claims
from kai_solver.kubeobjects.zones import RawZones, read_zones
from kai_solver.units import ResourceSchema

_UTILITY_NAMESPACES = (names.RESERVATION_NAMESPACE, names.SCALING_NAMESPACE)
_LISTED = 5


def snapshot_from_objects(
    objects: RawObjects, *, now_s: float, settings: KubeSettings | None = None, recall: Recall | None = None
) -> Snapshot:
    """Read a cluster.

    Parameters
    ----------
    objects
        Raw objects by kind; nothing about them is trusted.
    now_s
        Epoch seconds of the moment that the objects show.
    settings
        Names and thresholds of the scheduler. None: as the Config and SchedulingShard among the objects say, else
        KAI's defaults.
    recall
        Of earlier readings of the same cluster: what did not change since is not read again. The snapshot is the same.

    Returns
    -------
    Snapshot
        With a notice for every object that was set aside or not used in full. Malformed objects never raise.
    """
    recall = recall or Recall()
    return recall.spoilers.read(objects, now_s, lambda found: _read(found, now_s, settings, recall))


def _read(objects: RawObjects, now_s: float, settings: KubeSettings | None, recall: Recall) -> Snapshot:
    settings = settings or settings_from_objects(objects)
    notices = Notices((*settings.notices, *objects.notices))
    nodes = read_nodes(objects.nodes, settings, notices, recall.nodes)
    nvidia = read_nvidia(objects.other, nodes.gpu_milli, notices)
    settings = replace(settings, policy=nvidia.policy(settings.policy, notices))
    objects = replace(objects, pods=(*objects.pods, *manifest_pods(objects, notices)))
    labels = read_each("Namespace", objects.namespaces, notices, lambda raw: raw.strings("metadata.labels"))
    _name_unused(objects, notices)
    zones = _zones(objects, settings, notices)
    book = read_claim_book(objects, settings, notices)
    priorities = read_priorities(objects.priority_classes, settings, notices)
    around = Surroundings(settings, labels, frozenset(nvidia.queues), frozenset(priorities.classes))
    has_zones = settings.numa and bool(objects.node_resource_topologies)
    offers = plugin_only(book, nodes, settings)
    recall.begin(
        (around, priorities, nvidia.guarded, nodes.has_single_mig, nodes.sharing, nodes.not_shared, has_zones, offers)
    )
    pods = _read_pods(objects, nodes, Namespaces(labels), settings, now_s, notices, book, offers, recall)
    reader = GangReader(priorities, settings, notices, now_s, frozenset(nvidia.guarded), recall)
    _name_strays(objects, pods, nodes, reader, notices, recall)
    ours, foreign = _by_scheduler(pods, settings, notices)
    membership = assign(ours, objects.pod_groups, OwnerIndex.of(objects.other, objects.pods), reader, around)
    schema = _schema(pods, nodes, settings.policy)
    finish = _Finish(schema, nodes, notices, recall, settings, _without_row(pods, schema, settings.policy))
    queues = _queues(objects, nvidia.queues, membership, settings, notices)
    gangs, foreign_load = anchored(finish.gangs(membership)), finish.load((*foreign, *membership.loose))
    recall.end()
    return Snapshot(
        now_s=now_s,
        schema=finish.schema,
        nodes=tuple(finish.nodes_with(zones)),
        queues=queues,
        gangs=gangs,
        topologies=read_topologies(objects.topologies, notices),
        foreign=foreign_load,
        policy=settings.policy,
        budgets=read_budgets(objects.disruption_budgets, pods, notices),
        notices=notices.all(),
        claims=book.finish(),
    )


def _queues(
    objects: RawObjects, quotas: Mapping[str, Queue], membership: Membership, settings: KubeSettings, notices: Notices
) -> tuple[Queue, ...]:
    """Queues, those of quota objects among them; KAI's default queue where no object is one."""
    queues = read_queues(objects.queues, settings, notices, quotas)
    if objects.queues:
        return queues
    return with_shipped_queue(queues, (gang.queue for gang in membership.gangs.values()), settings, notices)


def _read_pods(
    objects: RawObjects,
    nodes: NodeReading,
    namespaces: Namespaces,
    settings: KubeSettings,
    now_s: float,
    notices: Notices,
    book: ClaimBook,
    offers: PluginOnly,
    recall: Recall,
) -> list[RawPod]:
    """All pods that can be read, KAI's utility pods excepted: what they hold, the shared pods hold already."""
    bindings = read_bindings(objects.bind_requests, notices, settings.policy.gpu_resources)
    known = nodes.nodes.keys() | nodes.elsewhere
    reader = PodReader(
        bindings={key: binding for key, binding in bindings.items() if binding.node in known},
        reservations=read_reservations(recall.unremembered(objects.pods), notices),
        constraints=ConstraintReader(read_claims(objects, notices), namespaces, settings, notices, recall.constraints),
        nodes=nodes,
        settings=settings,
        now_s=now_s,
        notices=notices,
        has_zones=settings.numa and bool(objects.node_resource_topologies),
        claims=book,
        plugin_only=offers,
    )

    def read(raw: Raw) -> RawPod | None:
        if raw.text("metadata.namespace") in _UTILITY_NAMESPACES:
            return None
        try:
            return recall.read(raw, namespaced_key(raw), reader)
        except InputError as error:
            if not settings.trust.strict or not raw.text("spec.nodeName"):
                raise
            # A running pod holds its node whatever its users write on it, or other pods would be bound there in vain.
            notices.warn(f"Pod {namespaced_key(raw)}", f"{error}. It counts as if it did not say so")
            return reader.read(without_claims(raw))

    again, load = functools.partial(recall.known, reader=reader), functools.partial(read_bare, read=reader.read)
    found = list(read_each("Pod", objects.pods, notices, read, namespaced_key, again, load).values())
    if settings.trust.strict:
        return within_room(found, nodes.nodes, notices)
    return consistent(found, nodes.nodes, notices)


def _zones(objects: RawObjects, settings: KubeSettings, notices: Notices) -> Mapping[str, RawZones]:
    """NUMA zones by node, where the settings have them heeded."""
    if not settings.numa:
        return {}
    return read_zones(objects.node_resource_topologies, settings.policy.gpu_resources, notices)


def _name_unused(objects: RawObjects, notices: Notices) -> None:
    """Objects of kinds that neither make pods nor say anything to a scheduler, kind by kind."""
    used = TEMPLATES.keys() | {TEMPLATE}
    owning = functools.cache(lambda: _owner_kinds(objects.pods))  # rarely needed, and all pods are looked at
    unused: dict[str, list[str]] = defaultdict(list)
    for value in objects.other:
        kind = kind_of(value)
        group = group_of(value.get("apiVersion")) if kind else ""
        if kind in used or (group, kind) in OWNER_KINDS or group in (GROUP, shards.GROUP):
            continue
        if kind not in owning():
            unused[kind or "Object"].append(object_name(kind, Raw(value)).removeprefix(f"{kind} "))
    for kind, found in unused.items():
        notices.warn(kind, f"kai-solver does not use such objects: {_listed(found)}")


def _name_strays(
    objects: RawObjects,
    pods: Iterable[RawPod],
    nodes: NodeReading,
    reader: GangReader,
    notices: Notices,
    recall: Recall,
) -> None:
    """Annotations of ours that say nothing where they stand."""
    of_nodes = [("Node", f"Node {node.name}", node.strays) for node in nodes.nodes.values() if node.strays]
    of_pods = [("Pod", f"Pod {pod.key}", pod.strays) for pod in pods if pod.strays]
    facts = (reader.facts(value) for value in objects.pod_groups)
    of_groups = [("PodGroup", f"PodGroup {one.key}", one.strays) for one in facts if one is not None and one.strays]

    def remember(value: object, find: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
        return recall.made(f"strays {id(value)}", (value,), notices, find)

    warn_of_strays(objects, (*of_nodes, *of_pods, *of_groups), notices, remember)


def _owner_kinds(pods: Iterable[Object]) -> set[str]:
    kinds: set[str] = set()
    for value in pods:
        try:
            kinds.update(owner.text("kind") for owner in Raw(value).items("metadata.ownerReferences"))
        except InputError:
            continue  # said where pods are read
    return kinds


def _listed(found: list[str]) -> str:
    return ", ".join(found[:_LISTED]) + (f" and {len(found) - _LISTED} more" if len(found) > _LISTED else "")


def _only_held(gang: Gang, pods: tuple[Pod, ...], queue: str) -> Gang:
    """A gang that is set aside while its pods run: they count in ``queue`` and may be evicted, and no more start.

    Otherwise a PodGroup that its users break would protect running pods from reclaim. A readable PodGroup keeps its
    preemptibility.
    """
    rules = Constraints(blocked=(f"its PodGroup is set aside: {gang.set_aside}",))
    plain = tuple(
        replace(pod, podset="default", constraints=pod.constraints if pod.status.holds_resources else rules)
        for pod in pods
    )
    return replace(gang, pods=plain, root=flat_gang(1), set_aside="", queue=queue)


def _by_scheduler(
    pods: Iterable[RawPod], settings: KubeSettings, notices: Notices
) -> tuple[list[RawPod], list[RawPod]]:
    """Our pods and those of other schedulers.

    Only a manifest that has not passed an API server can lack a scheduler; it is taken as ours.
    """
    ours, foreign, unnamed = [], [], []
    for pod in pods:
        if pod.scheduler in ("", settings.scheduler_name):
            ours.append(pod)
        else:
            foreign.append(pod)
        if not pod.scheduler:
            unnamed.append(pod.key)
    if unnamed:
        text = f"name no scheduler and are taken as ours: {_listed(unnamed)}. In a cluster, set schedulerName"
        notices.warn("Pods", text)
    return ours, foreign


def _without_row(pods: Iterable[RawPod], schema: ResourceSchema, policy: Policy) -> frozenset[str]:
    """Resources that pods request, no node offers, and the schema has no row for: there are too many of them."""
    asked = {name for pod in pods for name, amount in pod.amounts.items() if amount}
    return frozenset(asked.difference(schema.names, policy.gpu_resources, (EPHEMERAL,)))


def _schema(pods: Iterable[RawPod], nodes: NodeReading, policy: Policy) -> ResourceSchema:
    requested, offered = [pod.amounts for pod in pods], [node.amounts for node in nodes.nodes.values()]
    return ResourceSchema.with_extended(extended_names(requested, offered, policy.gpu_resources))


@dataclass(frozen=True, slots=True)
class _Finish:
    """Turns pods into domain pods, once the schema is known; drops those that stand nowhere."""

    schema: ResourceSchema
    nodes: NodeReading
    notices: Notices
    recall: Recall
    settings: KubeSettings
    without_row: frozenset[str] = frozenset()

    def nodes_with(self, zones: Mapping[str, RawZones]) -> Iterator[Node]:
        """All nodes; one that cannot be finished is set aside."""
        for name, node in self.nodes.nodes.items():
            try:
                yield self.node(node, zones.get(name))
            except Exception as error:
                self.notices.set_aside(f"Node {name}", error)

    def node(self, node: RawNode, zones: RawZones | None) -> Node:
        """The node with its vector and its NUMA zones."""
        if zones is None:
            return self.recall.nodes.finish(node, self.schema)
        ignored, again = self.settings.numa_ignored, self.settings.numa_reconstruct
        return node.finish(self.schema, zones.finish(self.schema, ignored, reconstruct=again))

    def gangs(self, membership: Membership) -> tuple[Gang, ...]:
        """Gangs with their pods, in the order of the PodGroups."""
        assigned, unwritten = membership.assigned, membership.unwritten
        since_s, strict = membership.stated_creation_s, self.settings.trust.strict
        found: list[Gang] = []
        for key, gang in membership.gangs.items():
            try:
                asks_pods = strict or key in unwritten
                judged = key not in membership.unjudged
                found.append(
                    self._gang(gang, assigned.get(key, []), since_s.get(key), asks_pods=asks_pods, is_judged=judged)
                )
            except Exception as error:
                text = self.notices.set_aside(f"PodGroup {key}", error)
                pods = tuple(filter(None, (self._part(pod) for pod, _ in assigned.get(key, []))))
                found.append(replace(gang, pods=pods, set_aside=text, root=flat_gang(1)))
        return tuple(found)

    def load(self, pods: Iterable[RawPod]) -> tuple[Pod, ...]:
        """Pods of other schedulers, as far as they hold resources of our nodes."""
        return tuple(filter(None, (self._part(pod) for pod in pods if pod.status.holds_resources)))

    def _part(self, pod: RawPod) -> Pod | None:
        """The pod, where it takes part."""
        try:
            return self._finished(pod) if self._stands(pod) else None
        except Exception as error:
            self.notices.set_aside(f"Pod {pod.key}", error)
            return None

    def _finished(self, pod: RawPod, podset: str = "default") -> Pod:
        if self.without_row and not self.without_row.isdisjoint(pod.amounts):
            name = min(self.without_row & pod.amounts.keys())
            text = f"no node offers {name}, and pods ask for more than {MOST_UNOFFERED} such resources"
            rules = replace(pod.constraints, blocked=(*pod.constraints.blocked, text))
            return replace(pod, constraints=rules).finish(self.schema, podset)
        return self.recall.finish(pod, self.schema, podset)

    def _gang(
        self,
        gang: Gang,
        assigned: list[tuple[RawPod, str]],
        since_s: float | None,
        *,
        asks_pods: bool,
        is_judged: bool,
    ) -> Gang:
        """``since_s``: when it came to be, as its PodGroup states; ``asks_pods``: they say when it began.

        ``is_judged``: admission saw where its queue is named.
        """
        standing = [entry for entry in assigned if self._stands(entry[0])]
        pods = tuple(self._finished(pod, podset) for pod, podset in standing)
        lost = (
            None if len(standing) == len(assigned) else next((pod for pod, _ in assigned if self._is_lost(pod)), None)
        )
        if lost is not None and not gang.set_aside:
            reason = f"its pod {lost.key} runs on node {lost.node!r}, which does not exist"
            self.notices.set_aside(f"PodGroup {gang.key}", f"{reason}. Export that node too")
            gang = replace(gang, set_aside=reason)
        if gang.set_aside and self.settings.trust.strict and any(pod.status.is_active for pod in pods):
            why = self.settings.access.keeps_from_queue(gang.queue, gang.namespace, is_judged=is_judged)
            may_use = gang.queue and not why
            return _only_held(gang, pods, gang.queue if may_use else self.settings.default_queue)
        if lost is not None:
            return replace(gang, pods=pods)
        gang = self._permitted(gang, is_active=any(pod.status.is_active for pod in pods), is_judged=is_judged)
        running = (pod.raw for pod, _ in assigned if pod.status.is_active) if asks_pods else ()
        created = () if since_s is None else tuple(pod.order[1] for pod, _ in assigned if pod.order[1])
        return self.recall.gathered(gang, pods, running, since_s, created)

    def _permitted(self, gang: Gang, *, is_active: bool, is_judged: bool) -> Gang:
        """The gang without what its namespace may not use.

        A gang that runs in a queue that it may not use counts in the default queue: set aside, it could not be evicted.
        """
        access = self.settings.access
        if gang.may_use_spares and access.keeps_from_spares(gang.namespace):
            self.notices.warn(f"PodGroup {gang.key}", no_spares_text(gang.namespace))
            gang = replace(gang, may_use_spares=False)
        why = access.keeps_from_queue(gang.queue, gang.namespace, is_judged=is_judged)
        if not why or gang.set_aside:
            return gang
        if is_active:
            self.notices.warn(f"PodGroup {gang.key}", f"{why}: it counts in queue {self.settings.default_queue}")
            return replace(gang, queue=self.settings.default_queue)
        cure = "Name another queue" if is_judged else "Name another queue, or name it on the pods if you may use it"
        self.notices.set_aside(f"PodGroup {gang.key}", f"{why}. {cure}")
        return replace(gang, set_aside=why)

    def _stands(self, pod: RawPod) -> bool:
        """Whether the pod takes part: it waits, is finished, or holds resources of a node of ours."""
        if not pod.status.holds_resources or pod.node in self.nodes.nodes:
            return True
        if self._is_lost(pod):
            self.notices.set_aside(f"Pod {pod.key}", f"runs on node {pod.node!r}, which does not exist. Export it too")
        elif not pod.node:
            self.notices.warn(f"Pod {pod.key}", "is being deleted before it got a node: it takes no part")
        return False

    def _is_lost(self, pod: RawPod) -> bool:
        known = pod.node in self.nodes.nodes or pod.node in self.nodes.elsewhere
        return pod.status.holds_resources and bool(pod.node) and not known
