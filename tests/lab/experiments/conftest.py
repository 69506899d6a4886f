"""A small trace of its own: four node types, shares, whole GPUs, several GPUs, CPU-only pods, bound models."""

import random
from pathlib import Path

import pytest

from kai_solver.lab.experiments.trace import NODE_FILE

NODES = [
    (96_000, 393_216, 8, "G2"),
    (16_000, 122_880, 2, "P100"),
    (104_000, 524_288, 2, "T4"),
    (32_000, 131_072, 4, "V100"),
]
PODS = [
    (3_152, 4_000, 1, 810, ""),
    (11_300, 20_000, 1, 1000, ""),
    (4_000, 8_000, 1, 320, "T4|P100"),
    (12_500, 16_000, 0, 0, ""),
    (88_000, 200_000, 8, 1000, "G2"),
    (16_200, 30_000, 2, 1000, ""),
    (1_000, 2_000, 1, 190, ""),
    (8_000, 9_000, 1, 470, "T4"),
]
OFTEN = (20, 25, 12, 10, 1, 3, 8, 6)


def write_trace(folder: Path, name: str, seed: int, nodes: int, pods: int, arrivals: int) -> None:
    """Write the three files; the same arguments write the same files."""
    drawn = random.Random(0)
    lines = ["sn,cpu_milli,memory_mib,gpu,model"]
    lines += [f"node-{i:03},{','.join(map(str, NODES[i % len(NODES)]))}" for i in range(nodes)]
    (folder / NODE_FILE).write_text("\n".join(lines) + "\n")
    lines = ["name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec"]
    lines += [f"pod-{i},{','.join(map(str, kind))}" for i, kind in enumerate(drawn.choices(PODS, OFTEN, k=pods))]
    (folder / f"openb_pod_list_{name}.csv").write_text("\n".join(lines) + "\n")
    drawn = random.Random(seed)
    names = "".join(f"pod-{drawn.randrange(pods)}\n" for _ in range(arrivals))
    (folder / f"arrivals_{name}_seed{seed}.txt.gz").write_bytes(_gzip(names))


def _gzip(text: str) -> bytes:
    import gzip

    return gzip.compress(text.encode())


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Folder with trace ``small``, seeds 1 and 2, on 16 nodes with 64 GPUs; arrivals ask for about twice that."""
    for seed in (1, 2):
        write_trace(tmp_path, "small", seed, nodes=16, pods=120, arrivals=160)
    return tmp_path
