"""Graphs that tests ask for: products, products with faults, and made ones of 16 and 32 GPUs."""

from dataclasses import replace
from itertools import combinations

import numpy as np

from kai_solver.links import PATHS, LinkGraph, products


def product(name: str) -> LinkGraph:
    return products()[name].graph


def without_link(graph: LinkGraph, one: int, other: int) -> LinkGraph:
    """One NVLink less between two GPUs."""
    links = graph.links.copy()
    links[one, other] = links[other, one] = links[one, other] - 1
    return replace(graph, links=links)


def off_the_fabric(graph: LinkGraph, gpu: int) -> LinkGraph:
    links = graph.links.copy()
    links[gpu] = links[:, gpu] = 0
    return replace(graph, links=links)


def nvlinks(graph: LinkGraph) -> list[tuple[int, int]]:
    return [pair for pair in combinations(range(graph.gpus), 2) if graph.links[pair]]


def nested(gpus: int, blocks: dict[int, str], nvlink_block: int = 0) -> LinkGraph:
    """GPUs below one another: the path of a pair is that of the smallest block that holds both, else ``SYS``.

    ``nvlink_block``: so many neighbours are on a switch of 12 NVLinks.
    """
    index = np.arange(gpus)
    path = np.zeros((gpus, gpus), dtype=np.int32)
    for size in sorted(blocks, reverse=True):
        path[index[:, None] // size == index // size] = PATHS.index(blocks[size])
    links = np.zeros_like(path)
    if nvlink_block:
        links[index[:, None] // nvlink_block == index // nvlink_block] = 12
    np.fill_diagonal(links, 0)
    return LinkGraph("nested", links, path)


def irregular(gpus: int, seed: int) -> LinkGraph:
    """0 to 2 NVLinks a pair, drawn: nothing is alike."""
    drawn = np.triu(np.random.default_rng(seed).integers(0, 3, (gpus, gpus)), 1).astype(np.int32)
    return LinkGraph("irregular", drawn + drawn.T, np.zeros((gpus, gpus), dtype=np.int32))
