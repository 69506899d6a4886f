"""The webhook as a whole: routes to rules, answers over TLS, and the thread that keeps its certificate right."""

import ssl
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from kai_solver.cluster.api import Api
from kai_solver.cluster.store import Store
from kai_solver.controller.admission.certificates import Bundle, given_bundle
from kai_solver.controller.admission.device_access import device_access, hide_from_new_ephemeral
from kai_solver.controller.admission.filling import Wishes, filled, json_patch, wants_runtime_class, wants_share
from kai_solver.controller.admission.keeping import SecretKeeper, trust
from kai_solver.controller.admission.lookup import Lookup
from kai_solver.controller.admission.podgroups import pod_group_verdict
from kai_solver.controller.admission.pods import PodPolicy, pod_verdict
from kai_solver.controller.admission.queues import queue_verdict
from kai_solver.controller.admission.review import Asked, Decision, answered, unread
from kai_solver.controller.admission.rights import Rights
from kai_solver.controller.admission.topologies import topology_verdict
from kai_solver.controller.admission.verdict import FINE, Verdict, warn
from kai_solver.controller.serving import PostRoute, Server
from kai_solver.controller.settings import ControllerSettings
from kai_solver.errors import InputError, KaiSolverError
from kai_solver.errors.barrier import caught
from kai_solver.kubeobjects import KubeSettings, names
from kai_solver.kubeobjects.raw import Raw
from kai_solver.metrics import Metrics

_LOG = structlog.get_logger(__name__)

LOOK_S = 60.0
"""How often the Secret or the files are looked at, and the caBundle is put right where it was reset."""

RETRY_S = 5.0
ENABLED = "enabled"
"""Value of the namespace's label."""

_KINDS = {
    "pods": "Pod",
    "queues.scheduling.run.ai": "Queue",
    "podgroups.scheduling.run.ai": "PodGroup",
    "topologies.kai.scheduler": "Topology",
}


class Judge:
    """Decides reviews.

    Parameters
    ----------
    policy
        How the cluster's scheduler is set up now; its names do not change.
    """

    def __init__(self, settings: ControllerSettings, policy: Callable[[], KubeSettings], lookup: Lookup) -> None:
        stated, kube = settings.admission, policy()
        self._stated = stated
        self._policy = policy
        self._namespace = settings.namespace
        self._lookup = lookup
        self._refuses = stated.queue_typo == "refuse"
        self._rights = Rights(kube, stated.guard, _exempt(settings))
        base = Wishes(kube.scheduler_name, kube.queue_label_key)
        self._spared = base.spared | {settings.namespace}

    def must_read(self) -> bool:
        """Whether there are rules that no user may get around."""
        return self._rights.are_stated or self._policy().block_visible_devices

    def validate(self, asked: Asked) -> Decision:
        """The rules' verdict on a new or changed object; deletion is always allowed.

        Of an object that is being deleted only rights are judged: work may still use its queue.
        """
        if not asked.after:
            return Decision()
        if Raw(asked.after).get("metadata.deletionTimestamp"):
            return Decision(self._may(asked))
        verdict = self._guarded(asked, is_after=True)
        if asked.before and verdict.refusals:
            verdict = verdict.excusing(self._guarded(asked, is_after=False))
        return Decision(verdict + self._may(asked))

    def _may(self, asked: Asked) -> Verdict:
        """Whether the user of the request may write it; of a change only the differences are judged."""
        try:
            return self._rights.verdict(asked, _KINDS.get(asked.resource, ""))
        except InputError as error:
            return warn(error)

    def mutate(self, asked: Asked) -> Decision:
        """What is filled into a new pod, and into new ephemeral containers; never a refusal."""
        if asked.resource != "pods" or not asked.after:
            return Decision()
        if asked.operation == "UPDATE":
            return self._with_ephemeral(asked)
        if asked.operation != "CREATE":
            return Decision()
        kube, labels = self._policy(), self._lookup.namespace_labels(asked.namespace)
        adopts = labels.get(self._stated.namespace_label) == ENABLED
        if not (adopts or kube.block_visible_devices or wants_share(asked.after)):
            return Decision()
        queue = (labels.get(kube.queue_label_key) or self._stated.queue) if adopts else ""
        try:
            runtime_class, verdict = self._runtime_class(asked)
            wishes = Wishes(kube.scheduler_name, kube.queue_label_key, queue, runtime_class, self._spared, adopts)
            after = filled(asked.after, wishes, asked.uid, kube.policy if kube.block_visible_devices else None)
        except InputError as error:
            return Decision(warn(InputError(error.problem, field=error.field, cure="No default was added")))
        patch = tuple(json_patch(asked.after, after))
        return Decision(verdict if patch else FINE, patch)

    def _with_ephemeral(self, asked: Asked) -> Decision:
        kube = self._policy()
        try:
            is_ours = Raw(asked.after).text("spec.schedulerName") == kube.scheduler_name
            if not (is_ours and kube.block_visible_devices):
                return Decision()
            after = hide_from_new_ephemeral(asked.after, asked.before)
        except InputError as error:
            return Decision(warn(InputError(error.problem, field=error.field, cure="No default was added")))
        return Decision(patch=tuple(json_patch(asked.after, after)))

    def _runtime_class(self, asked: Asked) -> tuple[str, Verdict]:
        """The runtime class to fill in; one that does not exist would have the pod refused."""
        name = self._stated.runtime_class
        if not name or not wants_runtime_class(asked.after) or self._lookup.has_runtime_class(name):
            return name, FINE
        return "", warn(f"runtime class {name!r} does not exist, so the pod gets none")

    def _guarded(self, asked: Asked, *, is_after: bool) -> Verdict:
        """The verdict; what cannot even be read is the API server's to refuse."""
        value = asked.after if is_after else asked.before
        try:
            return self._verdict(Raw(value), asked, is_after=is_after)
        except InputError as error:
            return warn(error)

    def _verdict(self, raw: Raw, asked: Asked, *, is_after: bool) -> Verdict:
        match _KINDS.get(asked.resource):
            case "Pod":
                stated = self._stated
                policy = PodPolicy(self._policy(), self._namespace, stated.gpu_sharing, self._refuses)
                verdict = pod_verdict(raw, policy, self._lookup)
                is_ours = raw.text("spec.schedulerName") == policy.kube.scheduler_name
                return verdict + (device_access(raw) if is_ours and policy.kube.block_visible_devices else FINE)
            case "Queue":
                return queue_verdict(
                    raw,
                    self._lookup,
                    refuses_unknown=self._refuses,
                    quota_warnings=self._stated.quota_warnings and is_after,
                )
            case "PodGroup":
                is_new = asked.operation == "CREATE"
                return pod_group_verdict(raw, self._lookup, is_new=is_new, refuses_unknown=self._refuses)
            case "Topology":
                return topology_verdict(raw, Raw(asked.before) if is_after and asked.before else None)
            case _:
                return FINE


def _exempt(settings: ControllerSettings) -> frozenset[str]:
    """Groups of our own accounts, of reservation pods, and of those that the settings name."""
    own = (f"system:serviceaccounts:{settings.namespace}", f"system:serviceaccounts:{names.RESERVATION_NAMESPACE}")
    return frozenset((*own, *settings.admission.guard_groups))


class Webhook:
    """Serves `Judge` over TLS.

    Raises
    ------
    InputError
        The address cannot be served on.
    """

    def __init__(
        self,
        api: Api,
        store: Store,
        settings: ControllerSettings,
        policy: Callable[[], KubeSettings],
        metrics: Metrics,
        clock: Callable[[], float] = time.time,
        note_drop: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._api = api
        self._settings = settings
        self._metrics = metrics
        self._lookup = Lookup(api, store)
        self._judge = Judge(settings, policy, self._lookup)
        self._keeper = self._make_keeper(clock)
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._served = Bundle(b"", b"")
        self._problem = "no certificate yet"
        self._stop = threading.Event()
        posts = {
            "/validate": self._route(self._judge.validate, self._judge.must_read),
            "/mutate": self._route(self._judge.mutate),
        }
        too_large = {
            "/validate": lambda head: unread(head, "the review has too many bytes", self._judge.must_read),
        }
        self.server = Server(
            settings.admission.bind_address, {}, posts, too_large=too_large, tls=self._tls, note_drop=note_drop
        )
        self._thread = threading.Thread(target=self._keep, name="certificate", daemon=True)
        self._thread.start()

    def not_ready(self) -> str:
        """What is missing before it can be called; empty where nothing is."""
        return f"admission: {self._problem}" if self._problem else ""

    def close(self) -> None:
        """Answer no more."""
        self._stop.set()
        self.server.close()
        self._lookup.close()
        self._thread.join(RETRY_S)

    def refresh(self) -> None:
        """Serve the certificate that is current, after the callers were configured to trust it.

        Raises
        ------
        KaiSolverError
            There is none that can be served.
        """
        stated = self._settings.admission
        bundle = self._bundle()
        if bundle.authorities:
            for problem in trust(
                self._api, stated.configuration, self._settings.namespace, stated.service, bundle.authorities
            ):
                _LOG.warning("the API server may not trust our certificate", error=problem)
        if bundle != self._served:
            _load(self._tls, bundle)
            self._served = bundle
            _LOG.info("serving a new certificate for admission")

    def _bundle(self) -> Bundle:
        stated = self._settings.admission
        if stated.cert_file:
            return given_bundle(stated.cert_file, stated.key_file, stated.ca_file)
        return self._keeper.current()

    def _make_keeper(self, clock: Callable[[], float]) -> SecretKeeper:
        stated, namespace = self._settings.admission, self._settings.namespace
        names = (f"{stated.service}.{namespace}.svc", f"{stated.service}.{namespace}.svc.cluster.local")
        return SecretKeeper(self._api, namespace, stated.secret, names, stated.certificate_days, clock)

    def _keep(self) -> None:
        while not self._stop.is_set():
            try:
                self.refresh()
                self._problem = ""
            except Exception as error:
                is_usual = isinstance(error, (KaiSolverError, ssl.SSLError, OSError))
                said = str(error) if is_usual else caught("running", "certificate of admission", error)
                self._problem = "" if self._served.certificate else said
                _LOG.warning("admission has no new certificate", error=said)
                self._stop.wait(RETRY_S)
                continue
            self._stop.wait(LOOK_S)

    def _route(self, decide: Callable[[Asked], Decision], must_read: Callable[[], bool] = lambda: False) -> PostRoute:
        """Answers reviews and counts them; a fault of ours is a 500, upon which the API server goes on without us."""

        def counted(asked: Asked) -> Decision:
            began_s, outcome = time.perf_counter(), "error"
            try:
                decision = decide(asked)
                outcome = decision.outcome
            finally:
                kind, operation = _KINDS.get(asked.resource, "other"), asked.operation.lower()
                known = operation if operation in ("create", "update", "delete") else "other"
                self._metrics.admission.labels(kind, known, outcome).inc()
                self._metrics.admission_seconds.observe(time.perf_counter() - began_s)
            if decision.verdict.refusals:
                _LOG.info("refused", kind=kind, namespace=asked.namespace, why=decision.verdict.refusals)
            return decision

        return lambda body: answered(body, counted, must_read)


def _load(tls: ssl.SSLContext, bundle: Bundle) -> None:
    """The library reads certificates from files only; ours are there for a moment, readable by this process alone."""
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        certificate.write_bytes(bundle.certificate)
        key.write_bytes(bundle.key)
        tls.load_cert_chain(certificate, key)
