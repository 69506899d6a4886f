"""KAI's own scheduler, at work on the same pods: two that decide about them would undo each other's work."""

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from kai_solver.cluster.api import Api, ApiError, Object, meta
from kai_solver.cluster.lease import spec_of
from kai_solver.cluster.resources import BIND_REQUESTS, LEASES, PODS, SUBJECT_ACCESS_REVIEWS
from kai_solver.controller.settings import ControllerSettings
from kai_solver.errors import InputError
from kai_solver.kubeobjects.raw import Raw

_LOG = structlog.get_logger(__name__)

LOOK_S, WATCH_S = 5.0, 1.0
"""Between looks: while it is away, and while it is, or may be, at work."""

JUDGED_S = 6.0
"""Seconds without a renewal after which a holder is not at work; KAI's scheduler renews every 5 seconds."""


KAI = "kai-scheduler"
"""Namespace that KAI's documentation installs into; users do not own it."""


_POD_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class _Held:
    """A held Lease: its content, and when that last changed, by ``monotonic``; ``is_new``: no change was seen."""

    spec: dict[str, Any]
    changed_s: float
    is_new: bool


class Rival:
    """Checks whether KAI's scheduler renews a Lease of the name that it uses, in any namespace.

    A Lease that was held before the first look is judged after `JUDGED_S`, since only a renewal shows that its holder
    is alive; one that is acquired later has a live holder. No clock needs to agree with the holder's. Users may make
    Leases of any name in their namespaces: in another one than KAI's and ours the holder must be a pod whose account
    may write BindRequests everywhere.

    Parameters
    ----------
    report
        Called after each look: whether it is at work.
    """

    def __init__(
        self,
        api: Api,
        settings: ControllerSettings,
        report: Callable[[bool], None] = lambda _: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = settings.scheduler_name + (f"-{settings.node_pool}" if settings.node_pool else "")
        self.problem = ""
        """That it is at work, or may be, and where; empty where it is not, as far as is known."""
        self._api = api
        self._ours = settings.namespace, settings.lease_name
        self._report = report
        self._monotonic = monotonic
        self._seen: dict[str, _Held] | None = None

    def look(self) -> None:
        """Compare with the looks before; `ApiError` where nothing can be seen."""
        found = {str(meta(item).get("namespace")): item for item in self._api.page(LEASES, name=self.name).items}
        now_s, before, is_first = self._monotonic(), self._seen or {}, self._seen is None
        held = {}
        for namespace, item in found.items():
            spec, known = spec_of(item), before.get(namespace)
            if not self._is_foreign(namespace, item):
                continue
            is_same = known is not None and known.spec == spec
            held[namespace] = known if known is not None and is_same else _Held(spec, now_s, is_first)
        self._seen = held
        recent = sorted(name for name, one in held.items() if now_s - one.changed_s < JUDGED_S)
        working = [name for name in recent if self._may_schedule(name, held[name].spec)]
        sure = [name for name in working if not held[name].is_new]
        if sure:
            self._say(f"KAI's own scheduler is running: its Lease {sure[0]}/{self.name} is renewed")
        elif working:
            within = f"within {JUDGED_S:g} s it is known whether its Lease {working[0]}/{self.name} is renewed"
            self._say(f"KAI's own scheduler may be running: {within}")
        else:
            self._say("")
        self._report(bool(sure))

    def run(self, stop: threading.Event) -> None:
        """Look again and again until ``stop`` is set; while nothing can be seen the last look holds."""
        while not stop.wait(WATCH_S if self.problem else LOOK_S):
            try:
                self.look()
            except ApiError as error:
                _LOG.warning("cannot see whether KAI's own scheduler is running", lease=self.name, error=str(error))

    def _is_foreign(self, namespace: str, lease: Object) -> bool:
        return bool(spec_of(lease).get("holderIdentity")) and (namespace, self.name) != self._ours

    def _may_schedule(self, namespace: str, spec: dict[str, Any]) -> bool:
        """Whether the holder of a Lease has the rights of a scheduler; True if the API server does not say."""
        if namespace in (KAI, self._ours[0]):
            return True
        named = str(spec.get("holderIdentity")).rpartition("_")[0]
        pod = named if _POD_NAME.fullmatch(named) else ""
        try:
            found = Raw(self._api.get(PODS, namespace, pod)) if pod else Raw(None)
            account = found.text("spec.serviceAccountName") or "default"
            groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
            asked = {"verb": "create", "group": BIND_REQUESTS.group, "resource": BIND_REQUESTS.plural}
            user = f"system:serviceaccount:{namespace}:{account}"
            review = {"spec": {"user": user, "groups": groups, "resourceAttributes": asked}}
            is_kai = bool(found) and Raw(self._api.create(SUBJECT_ACCESS_REVIEWS, "", review)).flag("status.allowed")
        except (ApiError, InputError) as error:
            is_kai = not (isinstance(error, ApiError) and error.is_missing)
        if not is_kai:
            _LOG.warning(
                "the holder of a Lease with KAI's name is not a scheduler: the Lease is ignored", namespace=namespace
            )
        return is_kai

    def _say(self, problem: str) -> None:
        if problem and problem != self.problem:
            _LOG.warning("kai-solver decides nothing", why=problem)
        elif self.problem and not problem:
            _LOG.info("KAI's own scheduler is not running: kai-solver decides")
        self.problem = problem
