"""Which pods gangs wait for."""

from dataclasses import replace

from kai_solver.cluster.evicting import Departure
from kai_solver.controller.awaited import Awaited, Waiting, waiting_gangs
from kai_solver.domain import Action, Bind, Plan
from tests.support.builders import a_cluster, a_gang, a_node, a_queue

G, H = Waiting("n/g", frozenset({"x", "y"}), is_whole=True), Waiting("n/h", frozenset({"x"}), is_whole=True)
NODES = {"a": "x", "b": "x", "c": "y"}


def leaving(name: str, *helps: str) -> Departure:
    return Departure("n", name, f"uid-{name}", "n/victims", "q", "reclaim", helps=helps)


def node_of(key: str, uid: str) -> str:
    name = key.removeprefix("n/")
    return NODES.get(name, "") if uid == f"uid-{name}" else ""


def waited_for(*departures: Departure, by: tuple[Waiting, ...] = (G,)) -> Awaited:
    awaited = Awaited()
    awaited.renew(departures, by, node_of)
    return awaited


def test_a_gang_waits_until_the_last_pod_has_left() -> None:
    awaited = waited_for(leaving("a", "n/g"), leaving("b", "n/g"), leaving("c", "n/g"))
    assert [awaited.gone(f"uid-{name}") for name in "abc"] == [True, True, False]
    assert not awaited


def test_a_pod_that_is_the_last_for_one_of_its_gangs_is_news() -> None:
    awaited = waited_for(leaving("a", "n/g", "n/h"), leaving("b", "n/g"), by=(G, H))
    assert not awaited.gone("uid-a"), "n/h waits for no other"


def test_other_pods_are_news_whenever_they_leave() -> None:
    awaited = waited_for(leaving("a"), leaving("b", "n/g"), leaving("c", "n/g"))
    assert len(awaited) == 2
    assert not awaited.gone("uid-a"), "it leaves for no gang"
    assert not awaited.gone("uid-of-another")
    assert awaited.gone("uid-b")
    assert not awaited.gone("uid-b"), "it has left once"


def test_a_pod_is_news_if_another_gang_has_a_promise_on_its_node() -> None:
    awaited = waited_for(leaving("a", "n/g"), leaving("c", "n/g"), by=(G, H))
    assert not awaited.gone("uid-a"), "n/h may start"


def test_a_gang_that_can_start_in_part_waits_for_no_last_pod() -> None:
    awaited = waited_for(leaving("a", "n/g"), leaving("b", "n/g"), by=(replace(G, is_whole=False),))
    assert not awaited.gone("uid-a")


def test_the_newest_plan_says_which_gangs_wait_and_where() -> None:
    awaited = waited_for(leaving("a", "n/g"), leaving("b", "n/g"), leaving("c", "n/g"))
    awaited.renew((), (replace(G, nodes=frozenset({"x"})),), node_of)
    assert awaited.gone("uid-a")
    assert not awaited.gone("uid-b"), "the gang no longer waits for its place on y"
    awaited = waited_for(leaving("a", "n/g"), leaving("b", "n/g"))
    awaited.renew((leaving("a", "n/h"),), (H,), node_of)
    assert not awaited.gone("uid-a"), "it leaves for n/h now, and for that alone"
    awaited = waited_for(leaving("a", "n/g"), leaving("b", "n/g"))
    awaited.renew((), (), node_of)
    assert not awaited


def test_pods_that_no_watch_told_of_are_forgotten() -> None:
    awaited = waited_for(leaving("a", "n/g"), leaving("b", "n/g"), leaving("d", "n/g"))
    assert len(awaited) == 2, "d is on no node that is known"
    awaited.renew((), (G,), lambda key, _uid: "x" if key == "n/b" else "")
    assert not awaited.gone("uid-b")
    awaited = waited_for(leaving("a", "n/g"))
    awaited.clear()
    assert not awaited


def test_only_gangs_that_need_all_their_promised_places_are_whole() -> None:
    gangs = [a_gang("all", pods=2), a_gang("some", pods=2, need=1), a_gang("now")]
    snapshot = a_cluster([a_node("x", 8)], gangs, [a_queue("q", 8)])
    binds = tuple(
        Bind(pod.key, gang.key, "x", action=Action.RECLAIM, nominated=gang.name != "now")
        for gang in gangs
        for pod in gang.pods
    )
    found = {one.gang: one.is_whole for one in waiting_gangs(snapshot, Plan(binds=binds))}
    assert found == {gangs[0].key: True, gangs[1].key: False}
