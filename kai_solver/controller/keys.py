"""The keys by which this scheduler recognizes its own annotations: a Secret that all its replicas share.

A new key is added regularly, and signs as soon as all replicas must have seen it; the last ones still verify. If the
Secret is lost, values signed by its keys are ignored and worked out again. Deleting the Secret replaces all keys at
once.
"""

import base64
import binascii
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from kai_solver import __version__
from kai_solver.cluster.api import Api, ApiError, Object, meta, version_of
from kai_solver.cluster.resources import SECRETS
from kai_solver.controller.own_secrets import OURS, own_secret
from kai_solver.errors import InputError
from kai_solver.kubeobjects.stored import noted_format, notes
from kai_solver.kubeobjects.trust import LEAST_KEY_BYTES, Signer

_LOG = structlog.get_logger(__name__)

LOOK_S = 60.0
RETRY_S = 5.0
ROTATED_S = 90 * 86_400.0
"""A new key is added when the newest has this age."""

SEEN_S = 5 * LOOK_S
"""All replicas have seen a key of this age: it may sign."""

MOST_KEYS = 8


@dataclass(slots=True)
class SigningKeys:
    """Keeps the keys of ``signer`` as the Secret has them.

    Attributes
    ----------
    may_write
        Whether this replica may make and renew the Secret: the leader, and never in a dry run.
    is_settled
        Whether the Secret was read, or is known not to exist: signed values can then be distinguished from others.
    problem
        Why no keys outlast this process; empty if some do.
    """

    api: Api
    namespace: str
    name: str
    signer: Signer
    may_write: Callable[[], bool]
    clock: Callable[[], float] = time.time
    is_settled: bool = False
    problem: str = ""
    _own: bytes = field(default_factory=lambda: os.urandom(LEAST_KEY_BYTES))
    """Of this process alone: signs while there is no Secret."""

    def __post_init__(self) -> None:
        """Be able to sign from the start."""
        self.signer.keys = (self._own,)

    def run(self, stop: threading.Event) -> None:
        """Read the Secret regularly, until ``stop`` is set."""
        while not stop.is_set():
            try:
                self.refresh()
                problem = ""
            except (ApiError, InputError) as error:
                problem = str(error)
                self.is_settled |= isinstance(error, InputError) or not error.is_passing
            except Exception:
                self.is_settled = True  # decisions go on without old signatures; the keeper reports the error
                raise
            if problem and problem != self.problem:
                _LOG.warning("no signing keys that outlast this process", error=problem, cure=_CURE)
            self.problem = problem
            stop.wait(LOOK_S if len(self.signer.keys) > 1 else RETRY_S)

    def refresh(self) -> None:
        """Read the existing keys; create the Secret, or add a key to it, if that is due and allowed.

        Raises
        ------
        ApiError
            The Secret can neither be read nor written.
        InputError
            The Secret was not created by kai-solver, or by a newer version in a format that is not known.
        """
        secret = own_secret(self.api, self.namespace, self.name, setting="signing_secret", cure="Name another")
        if number := noted_format(meta(secret).get("annotations") if secret else None):
            problem = f"Secret {self.namespace}/{self.name} has format {number}, which a newer kai-solver wrote"
            raise InputError(problem, field="signing_secret", cure="Upgrade, or name another")
        keys, now_s = _keys_of(secret), self.clock()
        if self.may_write() and (not keys or max(keys) < now_s - ROTATED_S):
            fresh = {int(now_s): os.urandom(LEAST_KEY_BYTES)}
            kept = dict(sorted(keys.items(), reverse=True)[: MOST_KEYS - 1])
            if self._write(secret, fresh, gone=keys.keys() - kept.keys()):
                keys = kept | fresh
        self.signer.keys = (*_in_order(keys, now_s), self._own)
        self.is_settled = True

    def _write(self, secret: Object, fresh: dict[int, bytes], gone: set[int]) -> bool:
        """Whether it was written; False if another replica was faster: the Secret is read again."""
        data: Object = {str(at): base64.b64encode(key).decode() for at, key in fresh.items()}
        try:
            if secret:
                change = {"metadata": {"resourceVersion": version_of(secret)}}
                self.api.patch(
                    SECRETS, self.namespace, self.name, {**change, "data": data | {str(at): None for at in gone}}
                )
            else:
                noted = {"labels": OURS, "annotations": notes(__version__)}
                metadata = {"name": self.name, "namespace": self.namespace, **noted}
                self.api.create(SECRETS, self.namespace, {"metadata": metadata, "type": "Opaque", "data": data})
        except ApiError as error:
            if error.is_conflict:
                return False
            raise
        return True


_CURE = "Let the scheduler get, create and patch this Secret (files/rbac/sign.yaml of the chart)"


def _keys_of(secret: Object) -> dict[int, bytes]:
    """Keys by the epoch second at which they were made; what is none is left out."""
    data, found = secret.get("data"), {}
    for name, text in data.items() if isinstance(data, dict) else ():
        try:
            key = base64.b64decode(text, validate=True)
        except (binascii.Error, TypeError, ValueError):
            continue
        if len(key) >= LEAST_KEY_BYTES and str(name).isdecimal() and len(str(name)) <= 12:
            found[int(name)] = key
    return found


def _in_order(keys: dict[int, bytes], now_s: float) -> list[bytes]:
    """The key that signs first: the newest that all replicas have seen, or the oldest where none is so old."""
    newest = sorted(keys, reverse=True)
    signing = next((at for at in newest if at <= now_s - SEEN_S), newest[-1] if newest else None)
    return [keys[at] for at in sorted(newest, key=lambda at: at != signing)]
