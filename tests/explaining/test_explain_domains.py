"""Which domain limits a gang that waits, and where one that runs would lie nearer together."""

from dataclasses import replace

from kai_solver.domain import (
    Gang,
    GpuRequest,
    Node,
    Plan,
    Pod,
    PodSet,
    PodStatus,
    Queue,
    Snapshot,
    SubGroup,
    Topology,
    TopologyConstraint,
    TopologyLevel,
)
from kai_solver.engine import cycle
from kai_solver.explaining import explain_gang
from kai_solver.explaining.explanation import DomainFit
from kai_solver.modelfiles import load_model
from kai_solver.units import MILLI, ResourceSchema

GIB = 2**30
FREE = (-1, -1, -1)
CLIQUE = TopologyConstraint("nvlink", "clique")


def nodes(**cliques: int) -> list[Node]:
    """So many nodes of 4 GPUs in each clique, all of block b."""
    size = (64_000, 64 * GIB, 4 * MILLI, 20)
    return [
        Node(f"{name}-{i}", size, gpus=4, gpu_memory_mib=100, labels={"block": "b", "clique": name})
        for name, count in cliques.items()
        for i in range(count)
    ]


def gang(name: str, leaves: tuple[PodSet, ...], on: tuple[str, ...] = (), gpus: int = 4) -> Gang:
    of = [leaf.name for leaf in leaves for _ in range(leaf.min_member)]
    pods = [
        Pod("ns", f"{name}-{i}", (1000, GIB, 0, 1), GpuRequest(gpus), podset=leaf, order=(0, float(i), ""))
        for i, leaf in enumerate(of)
    ]
    pods = [replace(pod, status=PodStatus.RUNNING, node=on[i]) if on else pod for i, pod in enumerate(pods)]
    return Gang("ns", name, "q", SubGroup(children=leaves), tuple(pods), last_start_s=0.0 if on else None)


def domains_of(name: str, here: list[Node], *gangs: Gang, decided: bool = True) -> tuple[DomainFit, ...]:
    topology = Topology("nvlink", (TopologyLevel("block"), TopologyLevel("clique")))
    snapshot = Snapshot(1000.0, ResourceSchema(), tuple(here), (Queue("q", quota=FREE),), gangs, (topology,))
    plan = cycle(snapshot, load_model("greedy-only")) if decided else Plan()
    return explain_gang(snapshot, plan, f"ns/{name}").domains


def test_the_domain_with_the_most_room_is_named() -> None:
    running = gang("r", (PodSet("w", 2),), ("c0-0", "c1-0"))
    running = replace(running, preemptible=False, priority=100)
    wants = gang("w", (PodSet("w", 3, CLIQUE),))
    [fit] = domains_of("w", nodes(c0=3, c1=2, c2=1), running, wants)
    assert fit.text == (
        "subgroup w: 3 pods must be in one domain of clique; b/c0 has room for 2, no domain for more; "
        "if they were empty, 1 of 3 domains would take them"
    )
    assert [(room.domain, room.now, room.empty) for room in fit.best] == [
        ("b/c0", 2, 3),
        ("b/c1", 1, 2),
        ("b/c2", 1, 1),
    ]


def test_no_domain_is_large_enough() -> None:
    [fit] = domains_of("w", nodes(c0=2, c1=2), gang("w", (PodSet("w", 3, CLIQUE),)))
    assert fit.text.endswith("none would take them even if it were empty")


def test_parts_that_are_alike_are_told_of_together() -> None:
    wants = gang("w", (PodSet("a", 2, CLIQUE), PodSet("b", 2, CLIQUE)))
    [fit] = domains_of("w", nodes(c0=3, c1=1), wants)
    assert fit.text == (
        "2 subgroups like a: 2 pods must be in one domain of clique; b/c0 (2) would take them, each part alone; "
        "1 of the 2 find room now, 1 if all were empty"
    )


def test_parts_that_are_not_alike_are_told_of_one_by_one() -> None:
    wants = gang("w", (PodSet("a", 2, CLIQUE), PodSet("b", 3, CLIQUE)))
    fits = domains_of("w", nodes(c0=3, c1=1), wants)
    assert [fit.text.partition(":")[0] for fit in fits] == ["subgroup a", "subgroup b"]
    assert all(fit.text.endswith("would take them, each part alone") for fit in fits)


def test_what_lies_in_more_domains_than_need_be_is_told_of_fewer() -> None:
    runs = gang("r", (PodSet("w", 2),), ("c0-0", "c1-0"))
    block, clique = domains_of("r", nodes(c0=1, c1=1, c2=2), runs)
    assert block.text == "2 pods in 1 domain of block"
    assert clique.text == "2 pods in 2 domains of clique, where 1 would do: b/c2 (2)"
    assert [room.domain for room in clique.best] == ["b/c2"]


def test_what_cannot_lie_nearer_is_told_that() -> None:
    runs = gang("r", (PodSet("w", 2),), ("c0-0", "c1-0"))
    _, clique = domains_of("r", nodes(c0=1, c1=1), runs)
    assert clique.text == "2 pods in 2 domains of clique: no fewer would take them now"


def test_a_preferred_domain_that_was_not_reached_is_told_with_what_would_do() -> None:
    prefers = TopologyConstraint("nvlink", preferred="clique")
    runs = gang("r", (PodSet("w", 2),), ("c0-0", "c1-0"))
    runs = replace(runs, root=replace(runs.root, topology=prefers))
    others = gang("o", (PodSet("w", 1),), ("c1-1",))
    block, clique = domains_of("r", nodes(c0=1, c1=2), runs, others)
    assert (block.preferred, clique.preferred, clique.lies) == (False, True, 2)
    assert clique.text == (
        "2 pods in 2 domains of clique, of which they prefer one: no fewer would take them now; "
        "b/c1 would if it were empty"
    )
    *_, clique = domains_of("r", nodes(c0=1, c1=2), runs)
    assert clique.text == "2 pods in 2 domains of clique, of which they prefer one, where 1 would do: b/c1 (2)"


def test_a_part_that_reaches_the_domain_it_prefers_is_not_told_of() -> None:
    prefers = TopologyConstraint("nvlink", preferred="clique")
    parts = PodSet("apart", 2, prefers), PodSet("near", 2, prefers)
    runs = gang("r", parts, ("c0-0", "c1-0", "c2-0", "c2-1"))
    *_, apart = domains_of("r", nodes(c0=1, c1=1, c2=2), runs)
    assert (apart.part, apart.lies) == ("apart", 2)
    assert apart.text.startswith("subgroup apart: 2 pods in 2 domains of clique, of which they prefer one: no fewer")
    assert apart.text.endswith("b/c2 would if it were empty")


def test_without_topologies_nothing_is_said() -> None:
    here = [replace(node, labels={}) for node in nodes(c0=2)]
    assert domains_of("w", here, gang("w", (PodSet("w", 1),))) == ()
    assert domains_of("r", here, gang("r", (PodSet("w", 2),), ("c0-0", "c0-1")), decided=False) == ()
