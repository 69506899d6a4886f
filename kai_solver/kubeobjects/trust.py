"""Which values of an object are believed although its author could have written them.

Users may write any label and annotation of their own objects, including those of running pods. In a cluster, a value
that only this scheduler writes is therefore believed only with a signature over the object's uid and the value. Field
managers prove nothing, because any user can name any of them. See ``docs/security.md``.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kai_solver.kubeobjects import names

LEAST_KEY_BYTES = 32
_ID_LENGTH = 8


@dataclass(slots=True, eq=False)
class Signer:
    """Signs values of objects by HMAC-SHA256.

    ``keys``: the newest first, which signs; all of them verify. Without keys nothing is signed, and nothing verifies.
    """

    keys: tuple[bytes, ...] = ()

    def sign(self, uid: str, name: str, value: str) -> str:
        """Signature of one value of the object with this uid; empty without a key or a uid."""
        return _signature(self.keys[0], uid, name, value) if self.keys and uid else ""

    def verifies(self, uid: str, name: str, value: str, signature: str) -> bool:
        """Whether ``signature`` was made with any of the keys."""
        if not uid:
            return False
        stated = signature.encode(errors="replace")
        return any(hmac.compare_digest(_signature(key, uid, name, value).encode(), stated) for key in self.keys)


NO_SIGNER = Signer()
"""Signs nothing and verifies nothing."""


@dataclass(frozen=True, slots=True)
class Trust:
    """What is believed of labels and annotations.

    Attributes
    ----------
    strict
        In a cluster. Otherwise (files, cases), there is no signer, and all values are believed.
    guarded
        Annotations that admission lets only cluster components write: believed without a signature.
    signer
        Verifies the others.
    """

    strict: bool = False
    guarded: frozenset[str] = frozenset()
    signer: Signer = NO_SIGNER

    def stated(self, annotations: Mapping[str, str], name: str) -> str:
        """An annotation that only exports write, into files, and no scheduler into a cluster; empty if not believed."""
        value = annotations.get(name, "")
        return value if value and not self.strict else ""

    def signed(self, annotations: Mapping[str, str], name: str, uid: str) -> str:
        """An annotation that this scheduler signs; empty if it is not believed."""
        value = annotations.get(name, "")
        if not value or not self.strict or name in self.guarded:
            return value
        mark = names.SIGNATURES.get(name, "")
        is_ours = bool(mark) and self.signer.verifies(uid, name, value, annotations.get(mark, ""))
        return value if is_ours else ""


def signatures(values: Sequence[tuple[str, str]], uid: str, signer: Signer) -> tuple[tuple[str, str], ...]:
    """Annotations with the signatures of those of ``values`` (name, value) that are to be signed."""
    signed = (
        (names.SIGNATURES[name], signer.sign(uid, name, value)) for name, value in values if name in names.SIGNATURES
    )
    return tuple((name, signature) for name, signature in signed if signature)


def _signature(key: bytes, uid: str, name: str, value: str) -> str:
    """``<id of the key>.<HMAC>``; JSON keeps the three parts apart, whatever characters they have."""
    text = json.dumps([uid, name, value]).encode()
    return f"{hashlib.sha256(key).hexdigest()[:_ID_LENGTH]}.{hmac.new(key, text, hashlib.sha256).hexdigest()}"
