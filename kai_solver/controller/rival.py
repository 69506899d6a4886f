"""KAI's own scheduler, at work on the same pods: two that decide about them would undo each other's work."""

import re
import threading
import time
from collections.abc import Callable
from typing import Any

import structlog

from kai_solver.cluster.api import Api, ApiError, Object, meta
from kai_solver.cluster.resources import BIND_REQUESTS, LEASES, PODS, SUBJECT_ACCESS_REVIEWS
from kai_solver.controller.settings import ControllerSettings
from kai_solver.errors import InputError
from kai_solver.kubeobjects.raw import Raw

_LOG = structlog.get_logger(__name__)

LOOK_S = 30.0
"""Between looks."""

JUDGED_S = 6.0
"""Seconds without a renewal after which a holder is not at work; KAI's scheduler renews every 5 seconds."""


KAI = "kai-scheduler"
"""Namespace that KAI's documentation installs into; users do not own it."""


_POD_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class Rival:
    """Checks whether KAI's scheduler renews a Lease of the name that it uses, in any namespace.

    Looking twice needs no clock that agrees with the holder's. Users may make Leases of any name in their namespaces:
    in another one than KAI's and ours the holder must be a pod whose account may write BindRequests everywhere.

    Parameters
    ----------
    report
        Called after each look: whether it is at work.
    """

    def __init__(self, api: Api, settings: ControllerSettings, report: Callable[[bool], None] = lambda _: None) -> None:
        self.name = settings.scheduler_name + (f"-{settings.node_pool}" if settings.node_pool else "")
        self.problem = ""
        """That it is at work, and where; empty where it is not, as far as is known."""
        self._api = api
        self._ours = settings.namespace, settings.lease_name
        self._report = report
        self._seen: dict[str, dict[str, Any]] = {}
        self._is_sure = False

    def look(self) -> None:
        """Compare with the last look; `ApiError` where nothing can be seen."""
        found = {str(meta(item).get("namespace")): item for item in self._api.page(LEASES, name=self.name).items}
        held = {namespace: _spec(item) for namespace, item in found.items() if self._is_foreign(namespace, item)}
        live = sorted(name for name, spec in held.items() if self._seen.get(name, spec) != spec)
        live = [name for name in live if self._may_schedule(name, held[name])]
        self._is_sure = not live and held.keys() <= self._seen.keys()
        self._seen = held
        self._say(live[0] if live else "")
        self._report(bool(self.problem))

    def refuse(self, sleep: Callable[[float], object] = time.sleep) -> None:
        """Make sure that it is not at work.

        Raises
        ------
        InputError
            It is.
        """
        self.look()
        if not self._is_sure:
            sleep(JUDGED_S)
            self.look()
        if self.problem:
            cure = "Scale it to 0, give kai-solver another scheduler_name, or run beside it with dry_run"
            raise InputError(self.problem, cure=cure)

    def run(self, stop: threading.Event) -> None:
        """Look again and again until ``stop`` is set; while nothing can be seen the last look holds."""
        while not stop.wait(LOOK_S if self._is_sure else JUDGED_S):
            try:
                self.look()
            except ApiError as error:
                _LOG.warning("cannot see whether KAI's own scheduler is running", lease=self.name, error=str(error))

    def _is_foreign(self, namespace: str, lease: Object) -> bool:
        return bool(_spec(lease).get("holderIdentity")) and (namespace, self.name) != self._ours

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

    def _say(self, namespace: str) -> None:
        problem = f"KAI's own scheduler is running: its Lease {namespace}/{self.name} is renewed" if namespace else ""
        if problem and not self.problem:
            _LOG.error("kai-solver decides nothing until it is stopped", why=problem)
        elif self.problem and not problem:
            _LOG.info("KAI's own scheduler is gone: kai-solver decides again")
        self.problem = problem


def _spec(lease: Object) -> dict[str, Any]:
    spec = lease.get("spec")
    return spec if isinstance(spec, dict) else {}
