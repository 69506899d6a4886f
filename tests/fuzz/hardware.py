"""Kinds of nodes of a random cluster."""

from tests.fuzz.draws import SHARED, SLICES, Document, Draw

GPU_MEMORY_MIB = (16_000, 24_576, 40_960, 46_068, 80_000, 81_559, 81_920, 143_771)
PRODUCTS = {4: ("hgx-a100-4", "a100-pcie-nvlink-pairs-4"), 8: ("dgx1-v100-8", "pcie-two-socket-8", "hgx-h100-8")}


def kind_of_node(draw: Draw) -> Document:
    """A kind of node: GPUs whole, sliced or shared, with zones and links."""
    r = draw.random
    gpus = 0 if draw.chance("claims", 0.3) else r.choice((0, 1, 2, 4, 4, 8, 8))
    kind: Document = {
        "gpus": gpus,
        "cpu": r.choice((8, 16, 32, 64, 128)),
        "memory": f"{r.choice((64, 256, 1024))}Gi",
    }
    kind["pods"] = r.choice((4, 10, 110, 110, 110))
    kind["labels"] = {}
    if gpus and r.random() < 0.8:
        kind["gpuMemory"] = r.choice(GPU_MEMORY_MIB)
    if draw.chance("mig", 0.25):
        if r.random() < 0.3:
            enabled = {"node-role.kubernetes.io/mig-enabled": r.choice(("true", "false"))}
            kind["labels"] = {"nvidia.com/mig.strategy": "single"} | enabled
        else:
            kind |= {"allocatableGpus": 0, "labels": {"nvidia.com/mig.strategy": "mixed"}}
            kind["resources"] = {name: r.randint(1, 6) for name in SLICES if r.random() < 0.7}
    elif draw.chance("time-slices", 0.25):
        replicas = r.choice((2, 3, 4, 7))
        kind |= {"gpus": 0, "labels": {"nvidia.com/gpu.replicas": str(replicas)}}
        kind["resources"] = {SHARED: replicas * r.randint(1, 4)}
    elif gpus >= 2 and draw.chance("numa", 0.5):
        kind["numa"] = _numa(draw, gpus, kind["cpu"])
    if gpus in (4, 8) and draw.chance("links", 0.4):
        kind["gpuTopology"] = r.choice(PRODUCTS[gpus])
    return kind


def _numa(draw: Draw, gpus: int, cpu: int) -> Document:
    r = draw.random
    zones = r.choice((2, 2, 4)) if gpus >= 4 else 2
    split = [gpus // zones] * zones
    if draw.chance("unequal", 0.3):
        split[0], split[-1] = split[0] + 1, split[-1] - 1
    parts: list[Document] = [{"name": f"node-{i}", "gpus": number} for i, number in enumerate(split)]
    if r.random() < 0.5:
        for part in parts:
            part["cpu"] = cpu // zones
    policy = r.choice(("single-numa-node", "single-numa-node", "restricted", "best-effort", "none"))
    return {"policy": policy, "scope": r.choice(("pod", "container")), "zones": parts}
