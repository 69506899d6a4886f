"""Explanations of a running controller, asked for over HTTP."""

import http.client
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from kai_solver.cluster.rest import bearer_token
from kai_solver.errors import InputError
from kai_solver.explaining import Explanation, QueueLine

PATIENCE_S = 60.0
"""Of a large cluster the first question about a decision computes the whole answer."""

FORWARD = "kubectl --namespace kai-solver port-forward deployment/kai-solver 8082"
_WITHOUT = (
    "the kubeconfig holds no token (a certificate cannot be shown through port-forward): "
    "kubectl create token ACCOUNT > FILE, then --token-file FILE"
)
_HERE = ("localhost", "127.0.0.1", "::1")


def ask(server: str, pod: str, token_file: Path | None = None) -> dict[str, Any]:
    """The document of a pod, ``namespace/name`` or its name alone.

    ``token_file`` holds the bearer token to show; without one it is that of the kubeconfig, which only this machine,
    where ``port-forward`` listens, or a server over TLS gets to see.

    Raises
    ------
    InputError
        The controller cannot be reached, or says why it has no answer.
    """
    namespace, _, name = pod.rpartition("/")
    query = urllib.parse.urlencode({"namespace": namespace, "pod": name})
    return _document(fetch(server, f"/explain?{query}", token_file), server)


def fetch(server: str, path: str, token_file: Path | None = None) -> bytes:
    """What a controller answers at ``path``; ``token_file`` as for `ask`.

    Raises
    ------
    InputError
        The controller cannot be reached, or says why it has no answer.
    """
    address = f"{server.rstrip('/')}{path}"
    if not _is_address(address):
        raise InputError(f"{server!r} is not the address of a controller", cure="Write http://localhost:8082")
    token = _token(server, token_file)
    request = urllib.request.Request(address)  # noqa: S310 - the scheme is looked at
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310 - the scheme is looked at
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        cure = _WITHOUT if error.code == 401 and not token else ""
        raise InputError(error.read().decode(errors="replace").strip() or str(error), cure=cure) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        reason = getattr(reason, "strerror", None) or reason
        cure = f"Make its address of answers reachable: {FORWARD}"
        raise InputError(f"the controller at {server} does not answer: {reason}", cure=cure) from error


def _is_address(text: str) -> bool:
    """Whether it is a URL of HTTP with a host, and with a number as port, if any."""
    try:
        parts = urllib.parse.urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def explanation_of(document: dict[str, Any]) -> Explanation:
    """The explanation that a document was made of.

    Raises
    ------
    InputError
        It is of another version, or none.
    """
    try:
        lines = tuple(QueueLine.of_document(entry) for entry in document["queues"])
        return TypeAdapter(Explanation).validate_python(document | {"queues": lines})
    except (KeyError, TypeError, ValidationError) as error:
        raise InputError(
            f"the controller answers in another form: {error}", cure="Use the kai-solver of its version, or --json"
        ) from error


def _token(server: str, token_file: Path | None) -> str:
    if token_file is not None:
        try:
            return token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"cannot be read: {getattr(error, 'strerror', None) or error}",
                file=str(token_file),
                cure="Name a readable file",
            ) from error
    parts = urllib.parse.urlsplit(server)
    return bearer_token() if parts.scheme == "https" or parts.hostname in _HERE else ""


def _document(body: bytes, server: str) -> dict[str, Any]:
    found = orjson.loads(body)
    if not isinstance(found, dict):
        raise InputError(f"{server} is not a controller of kai-solver: it does not answer with an explanation")
    return found
