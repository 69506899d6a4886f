"""What the checker says queues hold after a plan is what they hold once the plan is done."""

from dataclasses import replace

from kai_solver.check.accounts import Bills, Ledger, grow_tree, ledger_after, ledger_before
from kai_solver.check.scene import set_scene
from kai_solver.domain import Bind, Eviction, Gang, GpuRequest, Move, Plan, Pod, PodStatus, Snapshot
from tests.support.builders import a_cluster, a_gang, a_node, a_pod, a_queue

HALF_OF_A_SMALL_ONE = GpuRequest(1, 0, 20_000)
"""20,000 MiB of a GPU: a half on node ``small``, a quarter on ``large``."""

NODES = (a_node("small", gpu_memory_mib=40_000), a_node("large", gpu_memory_mib=80_000))
QUEUES = (a_queue("a", 4), a_queue("b", 4))


def held(ledger: Ledger) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    return dict(ledger.allocated), dict(ledger.fixed)


def done(gang: Gang, places: dict[str, str]) -> Gang:
    """The gang once its pods named in ``places`` are there; those with no node are gone."""

    def pod_then(pod: Pod) -> Pod:
        if pod.key not in places:
            return pod
        node = places[pod.key]
        return replace(pod, node=node, status=PodStatus.RUNNING if node else PodStatus.SUCCEEDED)

    return replace(gang, pods=tuple(map(pod_then, gang.pods)))


def test_binds_moves_and_evictions_change_what_their_queues_hold() -> None:
    gangs = (
        a_gang("come", a_pod("come-0", 2), a_pod("come-1", HALF_OF_A_SMALL_ONE), queue="a", preemptible=False),
        a_gang("alone", a_pod("alone-0", 2), queue="b"),
        a_gang("moved", a_pod("moved-0", HALF_OF_A_SMALL_ONE, on="small"), queue="b"),
        a_gang("gone", a_pod("gone-0", 1, on="large"), a_pod("gone-1", 3, on="large"), queue="b"),
        a_gang("leaves", a_pod("leaves-0", 1, on="small", status=PodStatus.RELEASING), queue="b"),
    )
    plan = Plan(
        binds=(
            Bind("ns/come-0", "ns/come", "large"),
            Bind("ns/come-1", "ns/come", "large"),
            Bind("ns/alone-0", "ns/alone", "small"),
        ),
        moves=(Move("ns/moved-0", "ns/moved", "small", "large"),),
        evictions=(Eviction("ns/gone-1", "ns/gone", "large", "reclaim", ("ns/come",)),),
    )
    places = {entry.pod: entry.node for entry in plan.binds} | {"ns/moved-0": "large", "ns/gone-1": ""}
    before = a_cluster(NODES, gangs, QUEUES)
    after = a_cluster(NODES, [done(gang, places) for gang in gangs], QUEUES)

    def ledger(snapshot: Snapshot) -> Ledger:
        return ledger_before(set_scene(snapshot, Plan()), grow_tree(snapshot))

    scene = set_scene(before, plan)
    assert held(ledger_after(scene, ledger(before), Bills(scene))) == held(ledger(after))
    assert held(ledger(before)) != held(ledger(after))
