"""Keys that sign annotations: made once, shared by replicas, renewed, and worked around where they are lost."""

import base64
import threading
from typing import Any

import pytest

from kai_solver.cluster.api import ApiError
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import SECRETS
from kai_solver.controller.keys import MOST_KEYS, ROTATED_S, SEEN_S, SigningKeys
from kai_solver.errors import InputError
from kai_solver.kubeobjects.trust import Signer


class Bench:
    def __init__(self) -> None:
        self.api, self.now_s = MemoryApi(), 1_000_000.0

    def keys(self, *, writes: bool = True) -> SigningKeys:
        return SigningKeys(self.api, "sys", "keys", Signer(), lambda: writes, lambda: self.now_s)

    def ready(self, *, writes: bool = True) -> Signer:
        keys = self.keys(writes=writes)
        keys.refresh()
        assert keys.is_settled
        return keys.signer

    def secret(self) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(SECRETS, "sys", "keys")["data"]
        return found


def test_what_one_replica_signs_the_others_and_the_next_process_verify() -> None:
    bench = Bench()
    signature = bench.ready().sign("uid", "name", "value")
    assert bench.ready().verifies("uid", "name", "value", signature)
    assert bench.ready(writes=False).verifies("uid", "name", "value", signature)
    assert len(bench.secret()) == 1


def test_a_replica_that_may_not_write_makes_nothing_and_knows_itself() -> None:
    bench = Bench()
    signer = bench.ready(writes=False)
    assert signer.verifies("u", "n", "v", signer.sign("u", "n", "v"))
    assert not bench.ready(writes=False).verifies("u", "n", "v", signer.sign("u", "n", "v"))
    assert bench.api.page(SECRETS).items == []


def test_a_lost_secret_is_made_again_and_what_it_signed_is_not_believed() -> None:
    bench = Bench()
    signature = bench.ready().sign("u", "n", "v")
    bench.api.delete(SECRETS, "sys", "keys")
    assert not bench.ready().verifies("u", "n", "v", signature)


def test_keys_are_renewed_and_former_ones_still_verify() -> None:
    bench = Bench()
    signer = bench.ready()
    signatures = [signer.sign("u", "n", "v")]
    for _ in range(MOST_KEYS + 2):
        bench.now_s += ROTATED_S + 1
        bench.ready()
        bench.now_s += SEEN_S + 1
        signatures.append(bench.ready().sign("u", "n", "v"))
    assert len(bench.secret()) == MOST_KEYS
    assert len(set(signatures)) == len(signatures)
    verified = [bench.ready(writes=False).verifies("u", "n", "v", signature) for signature in signatures]
    assert verified == [False] * 3 + [True] * MOST_KEYS


def test_a_new_key_signs_only_when_every_replica_must_know_it() -> None:
    bench = Bench()
    behind = bench.ready(writes=False)
    bench.ready()
    keys = bench.keys(writes=False)
    keys.refresh()
    behind = keys.signer
    bench.now_s += ROTATED_S + 1
    leader = bench.ready()
    assert len(bench.secret()) == 2
    assert behind.verifies("u", "n", "v", leader.sign("u", "n", "v")), "it has not looked since"


@pytest.mark.parametrize("data", [{"x": "!"}, {"1": "c2hvcnQ="}, {"nan": base64.b64encode(b"k" * 32).decode()}, None])
def test_what_is_no_key_is_left_out(data: dict[str, str] | None) -> None:
    bench = Bench()
    labels = {"app.kubernetes.io/managed-by": "kai-solver"}
    bench.api.create(SECRETS, "sys", {"metadata": {"name": "keys", "labels": labels}, "data": data})
    signer = bench.ready()
    assert signer.verifies("u", "n", "v", signer.sign("u", "n", "v"))
    assert len(signer.keys) == 2


def test_a_secret_of_another_is_neither_used_nor_changed() -> None:
    bench = Bench()
    bench.api.create(
        SECRETS, "sys", {"metadata": {"name": "keys"}, "data": {"1": base64.b64encode(b"k" * 32).decode()}}
    )
    keys = bench.keys()
    with pytest.raises(InputError, match="is not ours"):
        keys.refresh()
    assert list(bench.secret()) == ["1"]


def test_an_unexpected_error_keeps_no_cycle_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = Bench().keys()

    def fail(*_: Any) -> None:
        raise RuntimeError("unexpected")

    monkeypatch.setattr(MemoryApi, "get", fail)
    with pytest.raises(RuntimeError):
        keys.run(threading.Event())
    assert keys.is_settled


@pytest.mark.parametrize(("status", "is_settled"), [(403, True), (500, False)])
def test_cycles_wait_for_keys_only_while_the_answer_may_still_come(status: int, is_settled: bool) -> None:
    class Refusing(MemoryApi):
        def get(self, *_: Any, **__: Any) -> Any:
            stop.set()
            raise ApiError(status, "Refused", "no")

    stop = threading.Event()
    keys = SigningKeys(Refusing(), "sys", "keys", Signer(), lambda: True)
    keys.run(stop)
    assert keys.is_settled == is_settled
    assert keys.problem
