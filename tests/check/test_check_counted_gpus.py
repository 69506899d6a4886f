"""Whole GPUs are counted: against a count by hand, on random nodes and plans."""

from collections import Counter
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import Bind, Pod, Snapshot
from tests.check.support import bind, evict, plan
from tests.support.builders import a_cluster, a_gang, a_node

GPUS = 3


@dataclass(frozen=True)
class Tenant:
    """A running pod: how many GPUs, which if that is known, and whether it leaves."""

    gpus: int
    devices: tuple[int, ...]
    leaves: bool


@dataclass(frozen=True)
class Comer:
    """A pod that comes: the GPUs that it is given, and whether it waits for them."""

    devices: tuple[int, ...]
    waits: bool


indices = st.lists(st.integers(0, GPUS - 1), min_size=1, max_size=2, unique=True).map(tuple)
tenants = st.one_of(
    st.builds(lambda devices, leaves: Tenant(len(devices), devices, leaves), indices, st.booleans()),
    st.builds(Tenant, st.integers(1, 2), st.just(()), st.booleans()),
)
comers = st.builds(Comer, indices, st.booleans())


def is_wrong(staying: list[Tenant], coming: list[Comer]) -> bool:
    """A given GPU that two pods have, or too few GPUs for pods of which it is unknown which they have."""
    given = Counter(device for comer in coming for device in comer.devices)
    taken = given + Counter(device for tenant in staying for device in tenant.devices)
    unknown = sum(tenant.gpus for tenant in staying if not tenant.devices)
    return any(taken[device] > 1 for device in given) or unknown > GPUS - len(taken)


@given(st.lists(tenants, max_size=4), st.lists(comers, min_size=1, max_size=2))
def test_no_gpu_is_given_that_another_pod_has_or_may_need(running: list[Tenant], coming: list[Comer]) -> None:
    gangs = [a_gang("v", *(tenant.gpus for tenant in running), on="n0", need=0)] if running else []
    gangs = [replace(gang, pods=tuple(map(knowing, gang.pods, running))) for gang in gangs]
    gangs += [a_gang(f"g{i}", len(comer.devices)) for i, comer in enumerate(coming)]
    here: Snapshot = a_cluster([a_node("n0", gpus=GPUS), a_node("n1", gpus=GPUS)], gangs)
    binds: list[Bind] = [bind(f"g{i}", 0, "n0", *one.devices, nominated=one.waits) for i, one in enumerate(coming)]
    victims = tuple(evict("v", i, "n0", "g0") for i, tenant in enumerate(running) if tenant.leaves)
    found = {violation.rule for violation in check_plan(here, plan(*binds, evictions=victims))}
    at_end = is_wrong([tenant for tenant in running if not tenant.leaves], coming)
    at_once = [comer for comer in coming if not comer.waits]
    now = bool(victims and at_once) and is_wrong(running, at_once)
    assert ("devices" in found) == (at_end or now)


def knowing(pod: Pod, tenant: Tenant) -> Pod:
    return replace(pod, devices=tenant.devices)
