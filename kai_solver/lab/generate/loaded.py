"""A loaded cluster: in full use, half of its queues above their quota, more asked for than there is room."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from kai_solver.domain import Gang, Node, Snapshot
from kai_solver.errors import InputError
from kai_solver.instances_io.bench_schema import LoadedDoc
from kai_solver.lab.generate.filling import Filler, Ints
from kai_solver.lab.generate.load_report import LoadReport, report_on
from kai_solver.lab.generate.parts import BLOCK, FABRIC, NODE_GPUS, NOW_S, RACK, gang, node
from kai_solver.lab.generate.shapes import Bools, Shapes, draw_shapes
from kai_solver.lab.generate.tree import Leaves, draw_leaves, queues_of, shared_out
from kai_solver.units import ResourceSchema

PODS_PER_NODE = 6
NODES_PER_QUEUE = 25
LARGEST_HOLE = 8
"""GPUs of the largest gang that has just finished: in full use no whole rack is idle."""
_MEAN_RUN_S, _LONGEST_WAIT_S = 6 * 3600.0, 3600.0
_LARGEST_SERVICE = 8
_CPU_PODS_PER_NODE = 32


@dataclass(frozen=True, slots=True)
class Running:
    """Gangs that run: their shapes, and the nodes of their pods."""

    shapes: Shapes
    places: tuple[Ints, ...]


def loaded_snapshot(doc: LoadedDoc, seed: int, name: str = "") -> tuple[Snapshot, LoadReport]:
    """A snapshot, and what it is: the same for the same ``doc`` and ``seed``.

    Raises
    ------
    InputError
        Less of the pending demand is contested than ``doc`` asks for.
    """
    draw = np.random.default_rng([seed, doc.nodes])
    total = doc.nodes * NODE_GPUS
    used = round(doc.used * total)
    leaves = draw_leaves(doc.queues or max(20, doc.nodes // NODES_PER_QUEUE), total, used, doc.over_quota, draw)
    running = _running(doc, used, draw)
    owners = shared_out(running.shapes.size, leaves.target)
    held = np.zeros(len(leaves.names), dtype=np.int64)
    np.add.at(held, owners, running.shapes.size)
    gangs = [*_running_gangs(doc, running, owners, leaves, draw)]
    gangs += _services(doc, sum(len(places) for places in running.places), leaves, draw)
    gangs += _pending_gangs(doc, leaves, held, draw)
    snapshot = Snapshot(
        now_s=NOW_S,
        schema=ResourceSchema(),
        nodes=_nodes(doc),
        queues=queues_of(doc.queues or max(20, doc.nodes // NODES_PER_QUEUE), leaves, held),
        gangs=tuple(gangs),
        topologies=(FABRIC,),
        name=name or f"loaded-{doc.nodes}-{doc.gangs}-seed-{seed}",
    )
    report = report_on(snapshot)
    if report.contested < doc.contested:
        problem = f"{report.contested:.0%} of the pending demand is contested, {doc.contested:.0%} are asked for"
        raise InputError(problem, field="contested", cure="Ask for more gangs, or entitle more of them")
    return snapshot, report


def _nodes(doc: LoadedDoc) -> tuple[Node, ...]:
    racks = [i // doc.rack_nodes for i in range(doc.nodes)]
    return tuple(
        node(_node_name(i), labels={RACK: f"rack-{rack:04}", BLOCK: f"block-{rack // doc.block_racks:03}"})
        for i, rack in enumerate(racks)
    )


def _node_name(index: int) -> str:
    return f"node-{index:05}"


def _shapes(doc: LoadedDoc, count: int, draw: Generator) -> Shapes:
    return draw_shapes(
        count,
        largest=doc.largest_gang,
        exponent=doc.gang_exponent,
        shares=doc.gpus,
        bound=doc.bound,
        rack=doc.rack_nodes * NODE_GPUS,
        draw=draw,
    )


def _running(doc: LoadedDoc, used: int, draw: Generator) -> Running:
    """Fill the cluster as far as it goes, then let small gangs finish until ``used`` GPUs are in use."""
    filler = Filler(doc.nodes, doc.rack_nodes, draw)
    shapes = _shapes(doc, _gangs_for(doc, draw), draw)
    places = filler.fill(shapes)
    excess = doc.nodes * NODE_GPUS - int(filler.free.sum()) - used
    stays = np.array([place is not None for place in places], dtype=np.bool_)
    small = np.flatnonzero(stays & (shapes.size <= LARGEST_HOLE))
    for i in draw.permutation(small).tolist():
        place = places[i]
        if place is not None and shapes.size[i] <= excess:
            filler.release(place, int(shapes.gpus[i]))
            excess -= int(shapes.size[i])
            stays[i] = False
    return _with_singles(shapes, places, stays, -excess, filler)


def _with_singles(shapes: Shapes, places: Sequence[Ints | None], stays: Bools, missing: int, filler: Filler) -> Running:
    """Those that stay, and one-GPU gangs for the ``missing`` GPUs."""
    kept = np.flatnonzero(stays)
    more = max(0, missing)
    ones = np.ones(more, dtype=np.int64)
    single = Shapes(ones, ones, np.zeros(more, dtype=np.bool_))
    found = [*(places[i] for i in kept.tolist()), *filler.fill(single)]
    joined = Shapes(
        np.concatenate([shapes.pods[kept], single.pods]),
        np.concatenate([shapes.gpus[kept], single.gpus]),
        np.concatenate([shapes.bound[kept], single.bound]),
    )
    return Running(joined, tuple(place for place in found if place is not None))


def _gangs_for(doc: LoadedDoc, draw: Generator) -> int:
    """How many gangs ask for about all GPUs of the cluster."""
    probe = _shapes(doc, 1000, draw)
    return max(1, round(doc.nodes * NODE_GPUS * 1000 / int(probe.size.sum())))


def _running_gangs(doc: LoadedDoc, running: Running, owners: Ints, leaves: Leaves, draw: Generator) -> list[Gang]:
    """Gangs with GPUs; those that may not be evicted stay within ``non_preemptible`` of the target and the quota."""
    shapes = running.shapes
    room = np.floor(np.minimum(leaves.target, leaves.quota) * doc.non_preemptible)
    count = len(shapes.pods)
    priority = draw.choice([50, 75], count, p=[0.75, 0.25])
    for i in draw.permutation(count).tolist():
        if shapes.size[i] <= room[owners[i]]:
            room[owners[i]] -= shapes.size[i]
            priority[i] = 100
    ran = np.maximum(60.0, np.round(draw.exponential(_MEAN_RUN_S, count)))
    waited = np.round(draw.uniform(0, _LONGEST_WAIT_S, count))
    return [
        gang(
            f"run-{i:05}",
            leaves.names[owners[i]],
            int(shapes.pods[i]),
            int(shapes.gpus[i]),
            nodes=[_node_name(n) for n in running.places[i].tolist()],
            age_s=float(ran[i] + waited[i]),
            running_s=float(ran[i]),
            priority=int(priority[i]),
            bound=bool(shapes.bound[i]),
        )
        for i in range(count)
    ]


def _services(doc: LoadedDoc, gpu_pods: int, leaves: Leaves, draw: Generator) -> list[Gang]:
    """Gangs without GPUs that bring the number of running pods to what is asked for; half of them stay for good."""
    wanted = PODS_PER_NODE * doc.nodes if doc.running_pods is None else doc.running_pods
    missing = min(max(0, wanted - gpu_pods), doc.nodes * _CPU_PODS_PER_NODE)
    spots = draw.permutation(np.repeat(np.arange(doc.nodes), _CPU_PODS_PER_NODE))[:missing]
    found: list[Gang] = []
    start = 0
    while start < missing:
        pods = min(int(draw.integers(1, _LARGEST_SERVICE + 1)), missing - start)
        ran = max(60.0, round(float(draw.exponential(_MEAN_RUN_S))))
        nodes = [_node_name(n) for n in spots[start : start + pods].tolist()]
        owner = leaves.names[int(draw.integers(len(leaves.names)))]
        priority = int(draw.choice([50, 125]))
        name = f"service-{len(found):05}"
        found.append(gang(name, owner, pods, 0, nodes=nodes, age_s=ran + 60, running_s=ran, priority=priority))
        start += pods
    return found


def _pending_gangs(doc: LoadedDoc, leaves: Leaves, held: Ints, draw: Generator) -> list[Gang]:
    shapes = _shapes(doc, doc.gangs, draw)
    owners = shared_out(shapes.size, _demand(doc, leaves, held, int(shapes.size.sum())))
    steady = 1 - doc.non_preemptible
    priority = draw.choice([50, 75, 100], doc.gangs, p=[0.7 * steady, 0.3 * steady, doc.non_preemptible])
    age_s = np.round(draw.uniform(1, _LONGEST_WAIT_S, doc.gangs), 1)
    return [
        gang(
            f"wait-{number:05}",
            leaves.names[owners[i]],
            int(shapes.pods[i]),
            int(shapes.gpus[i]),
            age_s=float(age_s[i]),
            priority=int(priority[i]),
            bound=bool(shapes.bound[i]),
        )
        for number, i in enumerate(draw.permutation(doc.gangs).tolist())
    ]


def _demand(doc: LoadedDoc, leaves: Leaves, held: Ints, asked: int) -> Ints:
    """(L,) GPUs that the pending gangs of each leaf ask for: below quota in proportion to what is owed."""
    owed = np.maximum(leaves.quota - held, 0)
    rest = np.where(leaves.over, leaves.quota, 0)
    share = doc.entitled if owed.any() and rest.any() else float(owed.any())
    demand = share * asked * owed / max(1, int(owed.sum())) + (1 - share) * asked * rest / max(1, int(rest.sum()))
    rounded: Ints = np.round(demand).astype(np.int64)
    return rounded
