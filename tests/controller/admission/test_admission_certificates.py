"""Certificates: made, kept, renewed in time, the same for all replicas; given ones are read as they are."""

import base64
import copy
from pathlib import Path
from typing import Any, NoReturn

import pytest
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from kai_solver.cluster.api import ApiError, Object
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, Resource
from kai_solver.controller.admission.certificates import Bundle, given_bundle, make_bundle, why_renew
from kai_solver.controller.admission.keeping import SecretKeeper, trust
from kai_solver.errors import InputError

NAMES = ("hook.kai-solver.svc", "hook.kai-solver.svc.cluster.local")
DAY_S = 86_400.0
NOW_S = 1_790_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = NOW_S

    def __call__(self) -> float:
        return self.now


def keeper(api: MemoryApi, clock: Clock, names: tuple[str, ...] = NAMES) -> SecretKeeper:
    return SecretKeeper(api, "kai-solver", "tls", names, 90, clock)


def test_a_new_one_holds_for_its_names_and_its_days() -> None:
    bundle = make_bundle(NAMES, 90, NOW_S)
    assert why_renew(bundle, NAMES, NOW_S) == ""
    assert why_renew(bundle, NAMES, NOW_S + 59 * DAY_S) == ""
    assert why_renew(bundle, NAMES, NOW_S + 61 * DAY_S) == "it expires soon"
    assert "other.svc" in why_renew(bundle, (*NAMES, "other.svc"), NOW_S)
    certificate = x509.load_pem_x509_certificate(bundle.certificate)
    assert certificate.not_valid_before_utc.timestamp() == NOW_S - 3600, "clocks may be behind"


def test_what_does_not_fit_together_is_made_anew() -> None:
    one, other = make_bundle(NAMES, 90, NOW_S), make_bundle(NAMES, 90, NOW_S)
    assert why_renew(Bundle(one.certificate, other.key, one.authorities), NAMES, NOW_S) == "its key does not match"
    assert "authority" in why_renew(Bundle(one.certificate, one.key, other.authorities), NAMES, NOW_S)
    assert "cannot be read" in why_renew(Bundle(b"", b"", b""), NAMES, NOW_S)
    assert "cannot be read" in why_renew(Bundle(b"x", one.key, one.authorities), NAMES, NOW_S)


def test_names_of_any_length_can_be_certified() -> None:
    names = (f"{'s' * 63}.{'n' * 63}.svc",)
    assert why_renew(make_bundle(names, 1, NOW_S), names, NOW_S) == ""


def test_it_is_made_once_and_kept() -> None:
    api, clock = MemoryApi(), Clock()
    first = keeper(api, clock).current()
    assert keeper(api, clock).current() == first
    secret = api.get(SECRETS, "kai-solver", "tls")
    assert set(secret["data"]) == {"tls.crt", "tls.key", "ca.crt"}
    assert "PRIVATE KEY" not in base64.b64decode(secret["data"]["ca.crt"]).decode()


def test_it_is_renewed_in_time_and_the_former_authority_is_still_trusted() -> None:
    api, clock = MemoryApi(), Clock()
    first = keeper(api, clock).current()
    clock.now += 61 * DAY_S
    second = keeper(api, clock).current()
    assert second.certificate != first.certificate
    assert second.authorities.endswith(first.authorities)
    assert why_renew(Bundle(first.certificate, first.key, second.authorities), NAMES, NOW_S) == ""
    for _ in range(6):
        clock.now += 61 * DAY_S
        last = keeper(api, clock).current()
    assert len(x509.load_pem_x509_certificates(last.authorities)) == 2, "what no longer holds is dropped"


def test_another_service_name_makes_another() -> None:
    api, clock = MemoryApi(), Clock()
    first = keeper(api, clock).current()
    assert keeper(api, clock, ("new.kai-solver.svc",)).current() != first


def test_of_two_replicas_that_begin_at_once_both_serve_the_same() -> None:
    class Late(MemoryApi):
        """Another replica writes between this one's reading and its writing."""

        rival: Any = None

        def get(self, resource: Resource, namespace: str, name: str) -> Object:
            rival, self.rival = self.rival, None
            try:
                return super().get(resource, namespace, name)
            finally:
                if rival is not None:
                    seen.append(rival.current())

    api, clock = Late(), Clock()
    seen: list[Bundle] = []
    for _ in range(2):  # once when there is none, once when it is to be renewed
        api.rival = keeper(api, clock)
        assert keeper(api, clock).current() == seen[-1]
        clock.now += 61 * DAY_S
    assert seen[0] != seen[1]


def test_a_broken_secret_of_ours_is_repaired() -> None:
    api, clock = MemoryApi(), Clock()
    keeper(api, clock).current()
    api.patch(SECRETS, "kai-solver", "tls", {"data": {"tls.key": "no base64!"}})
    assert why_renew(keeper(api, clock).current(), NAMES, clock()) == ""


def test_a_secret_of_another_is_left_alone() -> None:
    api, clock = MemoryApi(), Clock()
    api.create(SECRETS, "kai-solver", {"metadata": {"name": "tls"}, "data": {"tls.crt": ""}})
    before = api.get(SECRETS, "kai-solver", "tls")
    with pytest.raises(InputError, match="not ours"):
        keeper(api, clock).current()
    assert api.get(SECRETS, "kai-solver", "tls") == before


def test_a_secret_that_changes_all_the_time_is_given_up() -> None:
    class Busy(MemoryApi):
        def create(self, *_: Any, **__: Any) -> Object:
            raise ApiError(409, "AlreadyExists")

    with pytest.raises(ApiError, match="keeps changing"):
        keeper(Busy(), Clock()).current()


# -- given ones --------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str, str]:
    made = make_bundle(NAMES, 90, NOW_S)
    paths = tuple(str(tmp_path / name) for name in ("crt", "key", "ca"))
    for path, content in zip(paths, (made.certificate, made.key, made.authorities), strict=True):
        Path(path).write_bytes(content)
    return paths  # type: ignore[return-value]


def test_given_ones_are_read_as_they_are_now(files: tuple[str, str, str]) -> None:
    first = given_bundle(*files)
    assert given_bundle(files[0], files[1]).authorities == b""
    other = make_bundle(NAMES, 90, NOW_S)
    Path(files[0]).write_bytes(other.certificate)
    with pytest.raises(InputError, match="not the key"):
        given_bundle(*files)
    Path(files[1]).write_bytes(other.key)
    assert given_bundle(*files) != first


def test_files_that_cannot_be_used_are_named(files: tuple[str, str, str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.pem"):
        given_bundle(str(tmp_path / "none.pem"), files[1])
    with pytest.raises(InputError, match="not PEM"):
        given_bundle(files[0], "")


def test_a_key_of_a_kind_that_is_not_known_is_named(
    files: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object) -> NoReturn:
        raise UnsupportedAlgorithm("Curve 1.3.132.0.1 is not supported")

    monkeypatch.setattr(serialization, "load_pem_private_key", unknown)
    with pytest.raises(InputError, match=r"Curve 1\.3\.132\.0\.1 is not supported"):
        given_bundle(*files)
    assert "Curve" in why_renew(make_bundle(NAMES, 90, NOW_S), NAMES, NOW_S), "ours is made again"


# -- whom the API server trusts ----------------------------------------------------------------------------------------


def configuration(name: str, *services: tuple[str, str]) -> Object:
    hooks = [
        {
            "name": f"h{i}.kai-solver.dev",
            "clientConfig": {"service": {"namespace": n, "name": s, "path": "/validate"}, "caBundle": "b2xk"},
            "failurePolicy": "Ignore",
        }
        for i, (n, s) in enumerate(services)
    ]
    return {"metadata": {"name": name}, "webhooks": [*hooks, {"name": "url", "clientConfig": {"url": "https://x"}}]}


def test_our_webhooks_get_our_authorities_and_no_others_do() -> None:
    api = MemoryApi()
    api.create(VALIDATING_WEBHOOKS, "", configuration("ours", ("kai-solver", "hook"), ("kai", "hook")))
    api.create(MUTATING_WEBHOOKS, "", configuration("ours", ("kai-solver", "hook")))
    api.create(VALIDATING_WEBHOOKS, "", configuration("validating-kai-admission", ("kai-solver", "hook")))
    before = copy.deepcopy(api.get(VALIDATING_WEBHOOKS, "", "validating-kai-admission"))
    assert trust(api, "ours", "kai-solver", "hook", b"new") == []
    first, theirs, url = api.get(VALIDATING_WEBHOOKS, "", "ours")["webhooks"]
    assert first["clientConfig"]["caBundle"] == base64.b64encode(b"new").decode()
    assert first["failurePolicy"] == "Ignore"
    assert theirs["clientConfig"]["caBundle"] == "b2xk"
    assert url["clientConfig"] == {"url": "https://x"}
    assert api.get(MUTATING_WEBHOOKS, "", "ours")["webhooks"][0]["clientConfig"]["caBundle"] != "b2xk"
    assert api.get(VALIDATING_WEBHOOKS, "", "validating-kai-admission") == before


def test_what_is_right_is_not_written_again() -> None:
    api = MemoryApi()
    api.create(VALIDATING_WEBHOOKS, "", configuration("ours", ("kai-solver", "hook")))
    api.create(MUTATING_WEBHOOKS, "", configuration("ours"))
    trust(api, "ours", "kai-solver", "hook", b"new")
    version = api.page(VALIDATING_WEBHOOKS).resource_version
    assert trust(api, "ours", "kai-solver", "hook", b"new") == []
    assert api.page(VALIDATING_WEBHOOKS).resource_version == version


def test_a_configuration_that_is_missing_is_told_and_spares_the_other() -> None:
    api = MemoryApi()
    api.create(MUTATING_WEBHOOKS, "", configuration("ours", ("kai-solver", "hook")))
    (problem,) = trust(api, "ours", "kai-solver", "hook", b"new")
    assert problem.startswith("ValidatingWebhookConfiguration ours: 404")
    assert api.get(MUTATING_WEBHOOKS, "", "ours")["webhooks"][0]["clientConfig"]["caBundle"] != "b2xk"
