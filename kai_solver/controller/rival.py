"""KAI's own scheduler, at work on the same pods: two that decide about them would undo each other's work."""

import threading
import time
from collections.abc import Callable
from typing import Any

import structlog

from kai_solver.cluster.api import Api, ApiError, Object, meta
from kai_solver.cluster.resources import LEASES
from kai_solver.controller.settings import ControllerSettings
from kai_solver.errors import InputError

_LOG = structlog.get_logger(__name__)

LOOK_S = 30.0
"""Between looks."""

JUDGED_S = 6.0
"""Who has not renewed within so long is not at work; KAI's scheduler renews every 5 seconds."""


class Rival:
    """Looks whether somebody renews a Lease of the name that KAI's scheduler uses, in whatever namespace.

    Looking twice needs no clock that agrees with the holder's.

    Parameters
    ----------
    tell
        Told of each look: whether it is at work.
    """

    def __init__(self, api: Api, settings: ControllerSettings, tell: Callable[[bool], None] = lambda _: None) -> None:
        self.name = settings.scheduler_name + (f"-{settings.node_pool}" if settings.node_pool else "")
        self.problem = ""
        """That it is at work, and where; empty where it is not, as far as is known."""
        self._api = api
        self._ours = settings.namespace, settings.lease_name
        self._tell = tell
        self._seen: dict[str, dict[str, Any]] = {}
        self._is_sure = False

    def look(self) -> None:
        """Compare with the last look; `ApiError` where nothing can be seen."""
        found = {str(meta(item).get("namespace")): item for item in self._api.page(LEASES, name=self.name).items}
        held = {namespace: _spec(item) for namespace, item in found.items() if self._is_theirs(namespace, item)}
        live = sorted(name for name, spec in held.items() if self._seen.get(name, spec) != spec)
        self._is_sure = not live and held.keys() <= self._seen.keys()
        self._seen = held
        self._say(live[0] if live else "")
        self._tell(bool(self.problem))

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
        """Look now and then until told to stop; while nothing can be seen the last look holds."""
        while not stop.wait(LOOK_S if self._is_sure else JUDGED_S):
            try:
                self.look()
            except ApiError as error:
                _LOG.warning("cannot see whether KAI's own scheduler is at work", lease=self.name, error=str(error))

    def _is_theirs(self, namespace: str, lease: Object) -> bool:
        return bool(_spec(lease).get("holderIdentity")) and (namespace, self.name) != self._ours

    def _say(self, namespace: str) -> None:
        problem = f"KAI's own scheduler is at work: its Lease {namespace}/{self.name} is renewed" if namespace else ""
        if problem and not self.problem:
            _LOG.error("nothing is decided any more", why=problem)
        elif self.problem and not problem:
            _LOG.info("KAI's own scheduler is gone: deciding goes on")
        self.problem = problem


def _spec(lease: Object) -> dict[str, Any]:
    spec = lease.get("spec")
    return spec if isinstance(spec, dict) else {}
