"""Racks that are one NVLink domain each (GB200 NVL72: 18 trays of 4 GPUs), and gangs in segments that keep to one."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from kai_solver.domain import (
    Gang,
    Node,
    Pod,
    PodSet,
    PodStatus,
    Queue,
    Snapshot,
    SubGroup,
    Topology,
    TopologyConstraint,
    TopologyLevel,
    gpus_asked,
)
from kai_solver.instances_io.bench_schema import CliquesDoc
from kai_solver.lab.generate.parts import HOST, NAMESPACE, NOW_S, node, queue
from kai_solver.units import MILLI, ResourceSchema

Ints = np.ndarray[Any, np.dtype[np.int64]]

CLIQUE, BLOCK = "nvidia.com/gpu.clique", "topology.kubernetes.io/block"
NVLINK = Topology("nvlink", (TopologyLevel(BLOCK, "block"), TopologyLevel(CLIQUE, "clique"), TopologyLevel(HOST)))
IN_ONE_CLIQUE = TopologyConstraint(NVLINK.name, required=CLIQUE)
TEAMS = 4
URGENT = "urgent"
INDEX = "batch.kubernetes.io/job-completion-index"

_PODS = (8, 16, 18, 24, 32, 36, 48, 54, 64, 72, 96, 108, 128, 144)
_MEAN_RUN_S, _LONGEST_WAIT_S = 6 * 3600.0, 3600.0
_DRAWN = 3
"""Trays that the gangs ask for which might run, relative to those there are."""
_GIB = 2**30


class Shape(NamedTuple):
    """A gang: so many pods, each of which takes a tray, in segments of so many."""

    pods: int
    segment: int


def cliques_snapshot(doc: CliquesDoc, seed: int) -> Snapshot:
    """A snapshot: the same for the same ``doc`` and ``seed``.

    The cluster is filled with gangs whose segments lie in random racks, then random gangs finish until at most
    ``running`` of the trays are in use: the holes are where work has ended.
    """
    draw = np.random.default_rng([seed, doc.racks, doc.trays])
    nodes, trays = _nodes(doc), doc.racks * doc.trays
    gangs = _running(doc, nodes, draw)
    gangs += [
        _gang(doc, f"wait-{i:03}", f"team-{i % TEAMS}", shape, age_s=round(float(draw.uniform(1, _LONGEST_WAIT_S)), 1))
        for i, shape in enumerate(_shapes(doc, round(doc.asked * trays), draw))
    ]
    if doc.clique_pods:
        gangs.append(_gang(doc, "wants-a-clique", URGENT, Shape(doc.clique_pods, doc.clique_pods), age_s=60.0))
    queues = _queues(doc, trays * doc.tray_gpus)
    name = f"cliques-{doc.racks}-seed-{seed}"
    return Snapshot(NOW_S, ResourceSchema(), nodes, queues, tuple(gangs), topologies=(NVLINK,), name=name)


def _nodes(doc: CliquesDoc) -> tuple[Node, ...]:
    found = []
    for rack in range(doc.racks):
        labels = {BLOCK: f"block-{rack // doc.block_racks:02}", CLIQUE: f"cluster-a.{rack:03}"}
        found += [node(f"rack-{rack:03}-tray-{tray:02}", doc.tray_gpus, labels) for tray in range(doc.trays)]
    return tuple(found)


def _queues(doc: CliquesDoc, gpus: int) -> tuple[Queue, ...]:
    """Teams with equal quotas, and one for the gang that wants a clique: it is owed that."""
    urgent = doc.clique_pods * doc.tray_gpus
    teams = [queue(f"team-{i}", i, (gpus - urgent) // TEAMS) for i in range(TEAMS)]
    return (*teams, queue(URGENT, TEAMS, urgent)) if urgent else tuple(teams)


def _shapes(doc: CliquesDoc, trays: int, draw: Generator) -> list[Shape]:
    """Gangs that ask for so many trays, less than the smallest gang short; of k pods with a likelihood of 1/k."""
    sizes = sorted(doc.segments)
    weights = np.array([doc.segments[size] for size in sizes])
    found: list[Shape] = []
    while True:
        segment = int(draw.choice(sizes, p=weights / weights.sum()))
        fits = [pods for pods in _PODS if pods % segment == 0 and segment <= pods <= min(doc.largest_gang, trays)]
        if trays < min(_PODS):
            return found
        if fits:
            likely = 1 / np.array(fits)
            shape = Shape(int(draw.choice(fits, p=likely / likely.sum())), segment)
            found.append(shape)
            trays -= shape.pods


def _running(doc: CliquesDoc, nodes: Sequence[Node], draw: Generator) -> list[Gang]:
    """Gangs that run."""
    placed = _placed(doc, draw) if doc.running else []
    spare = sum(shape.pods for shape, _ in placed) - round(doc.running * len(nodes))
    stays: list[tuple[Shape, Ints]] = []
    for i in draw.permutation(len(placed)).tolist():
        if placed[i][0].pods <= spare:
            spare -= placed[i][0].pods
        else:
            stays.append(placed[i])
    next_tray = [0] * doc.racks
    gangs = []
    for i, (shape, racks) in enumerate(stays):
        ran = max(60.0, round(float(draw.exponential(_MEAN_RUN_S))))
        homes = [_next(nodes, doc, rack, next_tray) for rack in racks.tolist() for _ in range(shape.segment)]
        gangs.append(_gang(doc, f"run-{i:03}", f"team-{i % TEAMS}", shape, age_s=ran + 60, nodes=homes, ran_s=ran))
    return gangs


def _placed(doc: CliquesDoc, draw: Generator) -> list[tuple[Shape, Ints]]:
    """As many gangs as fit the empty cluster in the order in which they are drawn, and the racks of their segments."""
    free = np.full(doc.racks, doc.trays, dtype=np.int64)
    shapes = _shapes(doc, _DRAWN * doc.racks * doc.trays, draw)
    return [(shape, racks) for shape in shapes if (racks := _into_racks(shape, free, draw)) is not None]


def _next(nodes: Sequence[Node], doc: CliquesDoc, rack: int, next_tray: list[int]) -> str:
    tray = next_tray[rack]
    next_tray[rack] = tray + 1
    return nodes[rack * doc.trays + tray].name


def _into_racks(shape: Shape, free: Ints, draw: Generator) -> Ints | None:
    """A random rack for each segment; None where they find no room, and then ``free`` (racks,) is as before."""
    before = free.copy()
    racks = np.zeros(shape.pods // shape.segment, dtype=np.int64)
    for i in range(len(racks)):
        roomy = np.flatnonzero(free >= shape.segment)
        if not len(roomy):
            free[:] = before
            return None
        racks[i] = draw.choice(roomy)
        free[racks[i]] -= shape.segment
    return np.sort(racks)


def _gang(
    doc: CliquesDoc,
    name: str,
    of_queue: str,
    shape: Shape,
    *,
    age_s: float,
    nodes: Sequence[str] = (),
    ran_s: float = 0.0,
) -> Gang:
    """A gang in segments, each in one clique; pods bear their index."""
    count = shape.pods // shape.segment
    leaves = tuple(PodSet(f"segment-{i}", shape.segment, IN_ONE_CLIQUE) for i in range(count))
    gpus = doc.tray_gpus
    request, asked = (8 * gpus * MILLI, 64 * _GIB * gpus, 0, 1), gpus_asked(gpus)
    status = PodStatus.RUNNING if nodes else PodStatus.PENDING
    pods = tuple(
        Pod(
            NAMESPACE,
            f"{name}-{i:03}",
            request,
            asked,
            status,
            podset=leaves[i // shape.segment].name,
            node=nodes[i] if nodes else "",
            order=(0, 0.0, f"{name}-{i:03}"),
            labels={INDEX: str(i)},
        )
        for i in range(shape.pods)
    )
    started_s = NOW_S - ran_s if nodes else None
    return Gang(
        NAMESPACE, name, of_queue, SubGroup(children=leaves), pods, created_s=NOW_S - age_s, last_start_s=started_s
    )
