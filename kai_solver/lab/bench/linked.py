"""What links between GPUs cost a cycle: the same cluster with and without them, in turn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median, quantiles

import numpy as np

from kai_solver.domain import Gang, Pod, Snapshot
from kai_solver.links import product_named

LEAST_PAIRS, MOST_PAIRS, ENOUGH_S = 11, 60, 3.0
"""Pairs of cycles: at least so many, and more of short ones until so much CPU time is used up."""

Pair = tuple[float, float]
"""Seconds of CPU of two cycles, one after the other: nothing known of links, and all known."""


def with_links(snapshot: Snapshot, product: str, seed: int) -> Snapshot:
    """The same cluster where nodes with as many GPUs are that ``product``, and it is known which pod holds which of
    them.

    They are drawn at random for pods with whole GPUs that do not name theirs.

    Raises
    ------
    InputError
        There is no such product.
    """
    gpus, draw = product_named(product).graph.gpus, np.random.default_rng(seed)
    free = {node.name: draw.permutation(gpus).tolist() for node in snapshot.nodes if node.gpus == gpus}
    for pod in (pod for gang in snapshot.gangs for pod in gang.pods if pod.devices and pod.node in free):
        free[pod.node] = [gpu for gpu in free[pod.node] if gpu not in pod.devices]
    nodes = [replace(node, gpu_topology=product) if node.name in free else node for node in snapshot.nodes]
    gangs = [_told(gang, free) for gang in snapshot.gangs]
    return replace(snapshot, nodes=tuple(nodes), gangs=tuple(gangs))


def _told(gang: Gang, free: Mapping[str, list[int]]) -> Gang:
    pods = tuple(_seated(pod, free.get(pod.node, [])) for pod in gang.pods)
    return gang if all(old is new for old, new in zip(gang.pods, pods, strict=True)) else replace(gang, pods=pods)


def _seated(pod: Pod, free: list[int]) -> Pod:
    """The pod with GPUs of its node, which are taken from ``free``."""
    count = pod.gpu.devices
    if not pod.gpu.is_whole or pod.devices or not pod.status.holds_resources or len(free) < count:
        return pod
    return replace(pod, devices=tuple(sorted(free.pop() for _ in range(count))))


def in_pairs(cpu_s: Callable[[Snapshot], float], plain: Snapshot, linked: Snapshot) -> tuple[Pair, ...]:
    """CPU times of cycles of both, which begins by turns; one of each goes before and is not counted."""
    cpu_s(plain), cpu_s(linked)
    pairs: list[Pair] = []
    while len(pairs) < LEAST_PAIRS or (len(pairs) < MOST_PAIRS and sum(map(sum, pairs)) < ENOUGH_S):
        if len(pairs) % 2:
            without = cpu_s(plain)
            pairs.append((without, cpu_s(linked)))
        else:
            beside = cpu_s(linked)
            pairs.append((cpu_s(plain), beside))
    return tuple(pairs)


def growths(pairs: Sequence[Pair]) -> tuple[float, float, float] | None:
    """Lower quartile, median and upper quartile of the growth within pairs, as shares; None without pairs."""
    if not pairs:
        return None
    ratios = [linked / plain - 1 for plain, linked in pairs]
    low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return low, median(ratios), high
