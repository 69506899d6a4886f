"""How the parts of a replica are connected: each is made here, once, with what it needs of the others."""

import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path

import structlog
from prometheus_client import Counter

from kai_solver import __version__
from kai_solver.cluster.api import Api, meta
from kai_solver.cluster.assumed import Assumed
from kai_solver.cluster.binding import Binder, GangPlacement, Placement
from kai_solver.cluster.contact import Contact
from kai_solver.cluster.evicting import Evictor, Rates
from kai_solver.cluster.fairpool import FairPool
from kai_solver.cluster.fenced import FencedApi
from kai_solver.cluster.identity import Identity
from kai_solver.cluster.lease import Lease, LeaseTimes
from kai_solver.cluster.owner_resolver import OwnerResolver
from kai_solver.cluster.patience import LOOK_S
from kai_solver.cluster.promises import Promises
from kai_solver.cluster.resources import NODES, PODS, PRIORITY_CLASSES, Resource
from kai_solver.cluster.store import Store
from kai_solver.cluster.timing import TimedApi
from kai_solver.cluster.view import WATCHED, View
from kai_solver.controller.apart import Apart
from kai_solver.controller.compiling import Compiling
from kai_solver.controller.deciding import Decider
from kai_solver.controller.endings import Endings
from kai_solver.controller.gauges import ClusterGauges
from kai_solver.controller.keys import SigningKeys
from kai_solver.controller.loop import Pace, Reporter, Scheduler
from kai_solver.controller.policy import ClusterPolicy
from kai_solver.controller.preparing import NO_SHARES, Preparing, preparing
from kai_solver.controller.quarantine import Quarantine
from kai_solver.controller.reporting.deciding import Shadow
from kai_solver.controller.reporting.reporters import LogReporter, MetricReporter, Reporters
from kai_solver.controller.reporting.setup import make_status_reporter
from kai_solver.controller.reporting.status_reporter import StatusReporter
from kai_solver.controller.rival import Rival
from kai_solver.controller.settings import ControllerSettings
from kai_solver.controller.shields import Shields
from kai_solver.controller.usage import PastUsage
from kai_solver.domain import Notice
from kai_solver.engine.progress import Fault
from kai_solver.kubeobjects import KubeSettings, names
from kai_solver.kubeobjects.stored import notes
from kai_solver.kubeobjects.trust import NO_SIGNER, Signer, Trust
from kai_solver.metrics import Metrics
from kai_solver.shadow.recordings import Recorder

_LOG = structlog.get_logger(__name__)

ASKED_S = 10.0
"""Time limit of an answer for a thread that sends all requests, one after the other."""

Clock = Callable[[], float]
Fence = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Pools:
    """Threads: one for each write, eviction, gang that is being bound, pod or gang that waits for something."""

    writes: Executor
    gangs: Executor
    waits: Executor
    patient: Executor
    evictions: Executor

    def close(self) -> None:
        """Begin nothing new."""
        for pool in (self.gangs, self.evictions, self.patient, self.writes, self.waits):
            pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class Known:
    """What a replica knows: the cluster as it is watched, and what was done and is not seen yet."""

    store: Store
    assumed: Assumed
    promises: Promises
    owners: OwnerResolver

    @property
    def kinds(self) -> tuple[Resource, ...]:
        """All kinds that are listed and watched."""
        return (*WATCHED, *self.owners.kinds)

    @property
    def missing(self) -> tuple[str, ...]:
        """Kinds that no decision is made without and that were not listed yet."""
        kinds = WATCHED if self.is_enough() else self.kinds
        return tuple(kind.name for kind in kinds if not self.store.is_synced((kind,)))

    def notices(self) -> tuple[Notice, ...]:
        """What of the cluster cannot be known."""
        return (*self.store.notices(), *self.owners.notices)

    def is_enough(self) -> bool:
        """Whether each kind was listed once, and the owners of the pods are known, as far as they can be."""
        return self.store.is_synced(WATCHED) and self.owners.is_settled()


@dataclass(frozen=True, slots=True)
class Parts:
    """Its parts; ``status_reporter`` is None where nothing may be written; ``over``: nothing may any more.

    ``recorder``: of a dry run that stores its decisions; else None.
    """

    api: Api
    contact: Contact
    known: Known
    policy: ClusterPolicy
    past_usage: PastUsage
    metrics: Metrics
    lease: Lease
    identity: Identity
    fence: Fence
    decider: Decider
    preparing: Preparing
    rival: Rival
    keys: SigningKeys
    scheduler: Scheduler
    status_reporter: StatusReporter | None
    pools: Pools
    over: threading.Event
    recorder: Recorder | None


def wire(api: Api, settings: ControllerSettings, reporters: tuple[Reporter, ...], clock: Clock) -> Parts:
    """Make all parts; nothing runs yet. ``reporters`` get cycles beside logs, metrics and the cluster."""
    metrics = Metrics(namespace=settings.metrics_namespace)
    metrics.build_info.labels(__version__, version("ortools")).set(1)
    contact = Contact()
    contact.on_return = api.hang_up
    metrics.api_silent.set_function(lambda: contact.silent_s)
    api = TimedApi(api, lambda verb, seconds: metrics.api_seconds.labels(verb).observe(seconds), contact=contact)
    known = _known(api, settings)
    identity = Identity(f"{settings.namespace}.{settings.lease_name}")
    lease = _lease(api, settings, identity, clock)
    over = threading.Event()
    fence = functools.partial(_may_act, lease, metrics, over, settings.dry_run or not settings.leadership.enabled)
    acting, rest = FencedApi(api, fence), functools.partial(_rest, fence, over)
    before = preparing(acting, known.store, settings, fence, rest, known.assumed.expected)
    shields = Shields(known.store, settings.evictions)
    evictor = Evictor(acting, known.assumed, fence, _rates(settings), clock, budgets_count=shields.count)
    keys = _keys(api.within(ASKED_S), settings, fence, clock)
    policy = ClusterPolicy(known.store, kube_settings(settings, keys.signer), settings)
    past_usage = PastUsage(lambda: policy().past_usage, metrics, clock)
    view = _view(known, before, evictor, policy, shields, past_usage)
    quarantine = Quarantine(clock, report=metrics.quarantined.set)
    compiling = Compiling(metrics.compiled.set, may_compile=settings.compile_kernels)
    note_fault = functools.partial(_note_fault, metrics)
    decider = Decider(settings.model, settings.budget, note_fault, quarantine.slow, compiling=compiling)
    sizes = {**dict(settings.workers), "patient": settings.workers.waits, "evictions": settings.workers.writes}
    shared = {name: FairPool(sizes.pop(name), name, _namespace) for name in ("waits", "patient")}
    pools = Pools(**shared, **{name: ThreadPoolExecutor(size, name) for name, size in sizes.items()})
    report, pool = Reporters(), settings.node_pool or "default"
    has_node = functools.partial(_has_node, known.store)
    steps, way = before.steps, before.way
    binder = Binder(
        acting, known.assumed, pools.writes, fence, report.bound, steps, pools.waits, has_node, way, clock, rest
    )
    binder.patient, binder.comes_back = pools.patient, functools.partial(_comes_back, known.store)
    status_reporter = None
    if not settings.dry_run:
        status_reporter = _status_reporter(acting, known.store, settings, fence, binder, decider, view, clock)
    stored, recorder = settings.recording, None
    if settings.dry_run and stored.folder:
        recorder = Recorder(Path(stored.folder), stored.file_mib, stored.files)
    shadow = Shadow(functools.partial(known.store.get, PODS), recorder, clock) if settings.dry_run else None
    for reporter in (shields, *_reporters(known, metrics, decider, status_reporter, shadow, clock, pool), *reporters):
        report.add(reporter)
    rival = Rival(api.within(ASKED_S), settings, metrics.beside_kai.set)
    scheduler = Scheduler(
        store=known.store,
        view=view,
        decide=decider,
        binder=binder,
        evictor=evictor,
        promises=known.promises,
        reporter=report,
        fence=fence,
        gangs=pools.gangs,
        evictions=pools.evictions,
        pace=Pace(settings.period, settings.settle, idle_s=settings.idle),
        apart=Apart(settings.namespace, settings.scheduler_name),
        quarantine=quarantine,
        dry_run=settings.dry_run,
        has_group=status_reporter.has_group if status_reporter is not None else lambda _: False,
        knows=lambda: known.is_enough() and keys.is_settled and past_usage.is_settled and not rival.problem,
        signer=keys.signer,
        clock=clock,
    )
    known.owners.wake = scheduler.news.notify
    if status_reporter is not None:
        status_reporter.groups.wake = scheduler.news.notify
    leading = lease, identity, fence
    return Parts(
        api,
        contact,
        known,
        policy,
        past_usage,
        metrics,
        *leading,
        decider,
        before,
        rival,
        keys,
        scheduler,
        status_reporter,
        pools,
        over,
        recorder,
    )


def kube_settings(settings: ControllerSettings, signer: Signer = NO_SIGNER) -> KubeSettings:
    """How the cluster's objects are read; ``signer`` verifies what this scheduler wrote."""
    return KubeSettings(
        scheduler_name=settings.scheduler_name,
        queue_label_key=settings.queue_label_key,
        node_pool_key=settings.node_pool_key,
        node_pool=settings.node_pool,
        default_queue=settings.default_queue,
        no_shares="" if settings.sharing.image or settings.binding == "bindrequest" else NO_SHARES,
        extended_claims=settings.binding == "own",
        groups_pods=settings.grouping == "own",
        trust=Trust(strict=True, guarded=guarded(settings), signer=signer),
        access=settings.access.access(),
    )


def guarded(settings: ControllerSettings) -> frozenset[str]:
    """Annotations of other components; admission lets only those components write them."""
    is_on = settings.admission.enabled and settings.admission.guard
    return frozenset({names.NUMA_OBSERVED}) if is_on else frozenset()


def _keys(api: Api, settings: ControllerSettings, fence: Fence, clock: Clock) -> SigningKeys:
    """A dry run creates no Secret; replicas that do not lead use the leader's."""
    signer = Signer()
    return SigningKeys(
        api, settings.namespace, settings.signing_secret, signer, lambda: fence() and not settings.dry_run, clock
    )


def _known(api: Api, settings: ControllerSettings) -> Known:
    """The owners of a pod matter only if we group pods ourselves."""
    store = Store()
    owners = OwnerResolver(api.within(ASKED_S), store, settings.scheduler_name if settings.grouping == "own" else "")
    promises = Promises(owners.may_create)
    store.listen(promises)
    return Known(store, Assumed(), promises, owners)


def _lease(api: Api, settings: ControllerSettings, identity: Identity, clock: Clock) -> Lease:
    stated = settings.leadership
    times = LeaseTimes(stated.live, stated.renew, stated.retry)
    return Lease(
        api, settings.namespace, settings.lease_name, identity.name, times, wall=clock, notes=notes(__version__)
    )


def _may_act(lease: Lease, metrics: Metrics, over: threading.Event, is_alone: bool) -> bool:
    """The fence: whether this replica may act now."""
    leads = (is_alone or lease.is_held) and not over.is_set()
    metrics.leader.set(leads)
    return leads


def _rest(fence: Fence, over: threading.Event, seconds: float) -> None:
    """Wait; a replica that may not act any more stops waiting."""
    ends_s = time.monotonic() + seconds
    while fence() and (left_s := ends_s - time.monotonic()) > 0:
        over.wait(min(LOOK_S, left_s))


def _has_node(store: Store, name: str) -> bool:
    return store.get(NODES, name) is not None


def _namespace(work: GangPlacement | Placement, *_: object) -> str:
    """The namespace of a gang, or a pod, that waits for something."""
    return work.gang.partition("/")[0] if isinstance(work, GangPlacement) else work.namespace


def _comes_back(store: Store, placement: Placement) -> bool:
    """Whether the pod has a controller."""
    owners = meta(store.get(PODS, placement.key) or {}).get("ownerReferences")
    return any(isinstance(owner, dict) and owner.get("controller") for owner in owners or ())


def _view(
    known: Known,
    before: Preparing,
    evictor: Evictor,
    policy: ClusterPolicy,
    shields: Shields,
    past_usage: PastUsage,
) -> View:
    return View(
        known.store,
        known.assumed,
        known.owners.objects,
        policy,
        overlays=(known.promises.overlay, known.owners.overlay, *before.pods),
        claims=before.claims,
        refused=evictor.protected,
        notices=lambda: (*known.notices(), *past_usage.notices()),
        budgets=shields.counted,
        queues=past_usage.overlay,
    )


def _status_reporter(
    api: Api,
    store: Store,
    settings: ControllerSettings,
    fence: Fence,
    binder: Binder,
    decider: Decider,
    view: View,
    clock: Clock,
) -> StatusReporter:
    """Statuses and events: in the background, only as the leader, and slowly while pods are bound."""
    busy, problem, own = lambda: bool(binder.open), lambda: decider.problem, lambda: view.own_groups
    return make_status_reporter(api, store, settings, fence, busy, problem, own, clock)


def _rates(settings: ControllerSettings) -> Rates:
    return Rates(settings.evictions.per_cycle, settings.evictions.per_queue)


def _reporters(
    known: Known,
    metrics: Metrics,
    decider: Decider,
    status_reporter: StatusReporter | None,
    shadow: Shadow | None,
    clock: Clock,
    pool: str,
) -> Iterator[Reporter]:
    """Reporters of what happens: to logs, metrics, and the cluster."""
    endings = Endings(metrics, known.store)
    known.store.listen(endings)
    yield LogReporter()
    if shadow is not None:
        yield shadow
    classes = functools.partial(_priority_classes, known.store)
    fresh = None if shadow is None else lambda: shadow.fresh
    yield MetricReporter(metrics, clock, classes, pool, lambda: decider.model.actions, fresh)
    yield endings
    totals: dict[Counter, Callable[[], int]] = {
        metrics.assumed_expired: lambda: known.assumed.expired,
        metrics.promises_broken: lambda: known.promises.broken,
    }
    if status_reporter is not None:
        counts = status_reporter.writer.counts
        totals |= {
            metrics.status_writes.labels(outcome.name): functools.partial(getattr, counts, outcome.name)
            for outcome in fields(counts)
        }
        yield status_reporter
    yield ClusterGauges(metrics, lambda: decider.problem, totals)


def _priority_classes(store: Store) -> Mapping[int, str]:
    """Names by value, the first by name of those that share one."""
    found = ((item.get("value"), str(meta(item).get("name"))) for item in store.all(PRIORITY_CLASSES))
    return {value: name for value, name in sorted(found, key=str, reverse=True) if isinstance(value, int)}


def _note_fault(metrics: Metrics, fault: Fault) -> None:
    metrics.fallbacks.labels("solver").inc()
    _LOG.error("the solver failed; the cycle continues without it", error=fault.error)
