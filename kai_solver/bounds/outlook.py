"""The outlook of a problem: which pods usually arrive, and what each kind of pod is worth beside what is free now."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from kai_solver.bounds.prices import Groups, Pricing, profits
from kai_solver.domain import Constraints, GpuRequest, Pod, PodStatus, Requirement, UsualPod
from kai_solver.leftover import Bools, Demand, Floats, Guest, Ints, Outlook, ValueTable
from kai_solver.problem import Problem
from kai_solver.units import CPU, GPU, MEMORY, MILLI, PODS
from kai_solver.units.shares import WHOLE, floor_milli

COVERED = 0.95
"""Kinds are the most frequent ones until so much of the pods is covered (FGD's typical pods)."""
MOST_KINDS = 12
"""And no more than so many: each is a variable on every node that the stage looks at."""
LEAST_EXPECTED = 0.02
"""Of the cluster's GPUs: what is expected to come at least, however full it is."""
PRODUCT_LABEL = "nvidia.com/gpu.product"


def outlook_of(problem: Problem, usual: Sequence[UsualPod] = ()) -> Outlook | None:
    """Price ``usual`` pods, or where none are given those of the snapshot, running and pending.

    None if no pod requests GPUs or no node has any. Pods that ask for other things than CPU, memory and
    GPUs, that have rules about other pods, or that share GPUs by memory, are not counted.
    """
    pods = _declared(problem, usual) if usual else _seen(problem)
    shapes = [shape for shape, _ in pods]
    table = problem.shapes
    gpus = np.array([table.shapes[s].gpu.devices for s in shapes], dtype=np.int64)
    if not problem.device_free.shape[1] or not gpus.any():
        return None
    admits = np.array([table.mask(s) for s in shapes], dtype=np.bool_)
    demand, kind = _demand(problem, shapes, gpus, admits)
    worth = _worth(problem, demand, kind, np.array([count for _, count in pods], dtype=np.float64), shapes)
    guests = tuple(_guest(problem, number, shape, int(worth[number])) for number, shape in enumerate(shapes))
    values = ValueTable.of(demand, worth.astype(np.float64), problem.device_free.shape[1])
    capacity = problem.capacity
    rate = capacity[CPU] / np.maximum(capacity[MEMORY], 1)
    return Outlook(tuple(shapes), guests, admits, values, kind, rate)


def _seen(problem: Problem) -> list[tuple[int, float]]:
    """Kinds of the snapshot's pods that are alive, most frequent first, and how many there are."""
    counts = Counter(
        problem.pod_shape[pod] for pod in range(len(problem.pod_gang)) if problem.pods[pod].status.is_alive
    )
    merged: dict[tuple[object, ...], tuple[int, float]] = {}
    for shape, count in counts.items():
        if _is_plain(problem, shape):
            spec = problem.shapes.shapes[shape]
            key = spec.request, spec.gpu, problem.shapes.mask(shape).tobytes()
            first, before = merged.get(key, (shape, 0.0))
            merged[key] = first, before + count
    return _most_frequent(list(merged.values()))


def _declared(problem: Problem, usual: Sequence[UsualPod]) -> list[tuple[int, float]]:
    """Kinds of the model's own list, as shapes of the problem."""
    counts: dict[int, float] = {}
    constraints: dict[tuple[str, ...], Constraints] = {}
    for row in usual:
        if row.models not in constraints:
            terms = ((Requirement(PRODUCT_LABEL, "In", row.models),),)
            constraints[row.models] = Constraints(node_terms=(terms,) if row.models else ())
        amounts = {"cpu": row.cpu_milli, "memory": row.memory_mib << 20, "pods": 1}
        pod = Pod(
            namespace="",
            name="usual",
            request=problem.snapshot.schema.vector(amounts),
            gpu=GpuRequest(row.gpus, row.gpu_milli) if row.gpus else GpuRequest(),
            status=PodStatus.PENDING,
            constraints=constraints[row.models],
        )
        shape = problem.shapes.index(pod)
        counts[shape] = counts.get(shape, 0.0) + row.pods
    return _most_frequent(list(counts.items()))


def _most_frequent(kinds: list[tuple[int, float]]) -> list[tuple[int, float]]:
    kinds = sorted(kinds, key=lambda kind: (-kind[1], kind[0]))
    enough = COVERED * sum(count for _, count in kinds)
    found: list[tuple[int, float]] = []
    for kind in kinds[:MOST_KINDS]:
        if sum(count for _, count in found) >= enough:
            break
        found.append(kind)
    return found


def _is_plain(problem: Problem, shape: int) -> bool:
    spec = problem.shapes.shapes[shape]
    others = any(amount for resource, amount in enumerate(spec.request) if resource not in (CPU, MEMORY, GPU, PODS))
    is_sized = not spec.gpu.devices or (0 < spec.gpu.milli <= MILLI and not spec.gpu.memory_mib)
    is_single = spec.gpu.is_whole or spec.gpu.devices <= 1
    return (
        is_sized
        and is_single
        and not others
        and not spec.relates_to_pods
        and bool(spec.gpu.devices or spec.request[CPU])
    )


def _demand(problem: Problem, shapes: list[int], gpus: Ints, admits: Bools) -> tuple[Demand, Ints]:
    """The kinds by type of node, and every node's type (N,): what it has, and which kinds it takes."""
    cpu, memory = problem.capacity[CPU], problem.capacity[MEMORY]
    types, kind = np.unique(np.column_stack((cpu, memory, problem.gpus, admits.T)), axis=0, return_inverse=True)
    requests = problem.shapes.requests[shapes]
    rate = types[:, 0] / np.maximum(types[:, 1], 1)
    need = np.maximum(requests[:, [CPU]], np.ceil(requests[:, [MEMORY]] * rate).astype(np.int64))
    milli = np.array([problem.shapes.shapes[s].gpu.milli for s in shapes], dtype=np.int64) * (gpus > 0)
    fits = (need <= types[:, 0]) & (gpus[:, None] <= types[:, 2]) & (types[:, 3:].T > 0)
    return Demand(need, gpus, milli, fits), kind.ravel()


def _worth(problem: Problem, demand: Demand, kind: Ints, counts: Floats, shapes: list[int]) -> Ints:
    """Whole thousandths of a GPU, shape (C,): pods to come, in these proportions, fill what is free."""
    free, devices = problem.room
    free, devices = np.maximum(free, 0), floor_milli(np.minimum(devices, WHOLE))
    rate = problem.capacity[CPU] / np.maximum(problem.capacity[MEMORY], 1)
    room = np.minimum(free[CPU], (free[MEMORY] * rate).astype(np.int64))
    milli = max(float(devices.sum()), LEAST_EXPECTED * float(problem.gpus.sum()) * MILLI)
    expected = counts * milli / max(float(counts @ demand.total_milli), 1.0)
    cpu = np.array([problem.shapes.shapes[s].request[CPU] for s in shapes], dtype=np.int64)
    pricing = Pricing(demand, profits(demand, cpu))
    worth: Ints = np.rint(pricing.worth(Groups.of(demand, room, devices, kind), expected)).astype(np.int64)
    return worth


def _guest(problem: Problem, number: int, shape: int, worth: int) -> Guest:
    spec = problem.shapes.shapes[shape]
    asked = tuple((r, amount) for r, amount in enumerate(spec.request) if amount and r != GPU)
    return Guest(number, asked, spec.gpu.devices, spec.gpu.milli if spec.gpu.devices else 0, worth)
