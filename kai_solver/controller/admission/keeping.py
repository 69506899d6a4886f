"""Where our own certificate is kept: a Secret that all replicas share, and the caBundle of our configurations."""

import base64
import binascii
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kai_solver.cluster.api import Api, ApiError, Object, version_of
from kai_solver.cluster.resources import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, Resource
from kai_solver.controller.admission.certificates import Bundle, make_bundle, why_renew
from kai_solver.controller.own_secrets import OURS, own_secret

_KEYS = ("tls.crt", "tls.key", "ca.crt")
_TRIES = 3
_CURE = "Name another, or give certificate files"


@dataclass(frozen=True, slots=True)
class SecretKeeper:
    """Our certificate in a Secret: made once, renewed in time, the same for all replicas.

    Of several that write at once one wins, by the Secret's resourceVersion; the others take what it wrote.
    """

    api: Api
    namespace: str
    name: str
    dns_names: Sequence[str]
    days: int
    clock: Callable[[], float] = time.time

    def current(self) -> Bundle:
        """The certificate to serve now, made or renewed where that is due.

        Raises
        ------
        ApiError
            The Secret can neither be read nor written.
        InputError
            The Secret is not ours.
        """
        for _ in range(_TRIES):
            secret = own_secret(self.api, self.namespace, self.name, setting="admission.secret", cure=_CURE)
            bundle = _bundle_of(secret)
            if not why_renew(bundle, self.dns_names, self.clock()):
                return bundle
            fresh = make_bundle(self.dns_names, self.days, self.clock(), bundle.authorities)
            if self._write(secret, fresh):
                return fresh
        raise ApiError(409, "Conflict", f"Secret {self.namespace}/{self.name} keeps changing")

    def _write(self, secret: Object, bundle: Bundle) -> bool:
        """Whether it was written; False where another replica was quicker."""
        metadata = {"name": self.name, "namespace": self.namespace, "labels": OURS}
        parts = (bundle.certificate, bundle.key, bundle.authorities)
        data = {key: base64.b64encode(part).decode() for key, part in zip(_KEYS, parts, strict=True)}
        try:
            if secret:
                change = {"metadata": {"resourceVersion": version_of(secret)}, "data": data}
                self.api.patch(SECRETS, self.namespace, self.name, change)
            else:
                self.api.create(
                    SECRETS, self.namespace, {"metadata": metadata, "type": "kubernetes.io/tls", "data": data}
                )
        except ApiError as error:
            if error.is_conflict:
                return False
            raise
        return True


def _bundle_of(secret: Object) -> Bundle:
    """What a Secret holds; nothing usable where it is empty or malformed."""
    data = secret.get("data")
    parts = [data.get(key, "") if isinstance(data, dict) else "" for key in _KEYS]
    try:
        return Bundle(*(base64.b64decode(part, validate=True) for part in parts))
    except (binascii.Error, TypeError, ValueError):
        return Bundle(b"", b"")


def trust(api: Api, name: str, namespace: str, service: str, authorities: bytes) -> list[str]:
    """Write ``authorities`` into the webhook configurations of this name that call our service, where it differs.

    Returns why it was not done, where it was not. Webhooks that call another service are left as they are.
    """
    return [
        problem
        for resource in (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS)
        if (problem := _trust_in(api, resource, name, (namespace, service), authorities))
    ]


def _trust_in(api: Api, resource: Resource, name: str, ours: tuple[str, str], authorities: bytes) -> str:
    wanted = base64.b64encode(authorities).decode()
    try:
        found = api.get(resource, "", name)
        stated = found.get("webhooks")
        hooks = [_trusting(hook, ours, wanted) for hook in stated] if isinstance(stated, list) else []
        if hooks != (stated or []):
            version = version_of(found)
            api.patch(resource, "", name, {"metadata": {"resourceVersion": version}, "webhooks": hooks})
    except ApiError as error:
        return f"{resource.kind} {name}: {error}"
    return ""


def _trusting(hook: Object, ours: tuple[str, str], wanted: str) -> Object:
    config = hook.get("clientConfig") or {}
    service = config.get("service") or {}
    if (service.get("namespace"), service.get("name")) != ours:
        return hook
    return hook | {"clientConfig": config | {"caBundle": wanted}}
