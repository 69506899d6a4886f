"""Random clusters of every kind of GPU under random settings: the checker has nothing against any plan."""

import random
from typing import Any

import pytest

from kai_solver.check import check_plan
from kai_solver.engine import cycle
from kai_solver.instances_io import snapshot_from_native
from kai_solver.modelfiles import load_model

WORKERS = ("gpu-worker", "cpu-worker")
REPLICAS, STRATEGY = "nvidia.com/gpu.replicas", "nvidia.com/mig.strategy"
SLICE = "nvidia.com/mig-2g.10gb"


def a_node(dice: random.Random, name: str) -> dict[str, Any]:
    labels = {f"node-role.kubernetes.io/{worker}": "" for worker in WORKERS if dice.random() < 0.6}
    node: dict[str, Any] = {"name": name, "cpu": 8, "memory": "32Gi", "labels": labels}
    count = dice.randint(1, 4)
    match dice.choice(["green", "red", "shared", "mixed", "single", "plain"]):
        case "green":
            node["resources"] = {"nvidia.com/gpu": count}
        case "red":
            node["resources"] = {"amd.com/gpu": count}
        case "shared":
            node["resources"] = {"nvidia.com/gpu.shared": 2 * count}
            labels |= {REPLICAS: dice.choice(["2", "3", "4"])} if dice.random() < 0.8 else {}
        case "mixed":
            node |= {"gpus": 2, "allocatableGpus": 0, "resources": {SLICE: count}}
            labels[STRATEGY] = "mixed"
        case "single":
            node["gpus"] = count
            labels |= {STRATEGY: "single", "node-role.kubernetes.io/mig-enabled": "true"}
        case _:
            node["gpus"] = count
    return node


def a_request(dice: random.Random) -> dict[str, Any]:
    number = dice.randint(1, 2)
    named = [{"resources": {name: number}} for name in ("nvidia.com/gpu", "amd.com/gpu", "nvidia.com/gpu.shared")]
    kinds: list[dict[str, Any]] = [{}, {"gpus": number}, {"gpus": 0.5}, {"resources": {SLICE: 1}}, *named]
    return dice.choice(kinds) | {"cpu": dice.choice([0, 1, 2])}


def seated(dice: random.Random, request: dict[str, Any], free: list[tuple[dict[str, Any], dict[str, float]]]) -> str:
    """A node that has room for the pod, which then is taken; empty where the pod waits."""
    needed = dict(request.get("resources", {})) | {"gpus": request.get("gpus", 0)}
    for node, left in free if dice.random() < 0.75 else []:
        whole_only = node["labels"].get(STRATEGY) == "single" and needed["gpus"] == 0.5
        if not whole_only and all(left.get(name, 0) >= amount for name, amount in needed.items()):
            for name, amount in needed.items():
                left[name] = left.get(name, 0) - (1 if amount == 0.5 else amount)
            return str(node["name"])
    return ""


def a_gang(dice: random.Random, name: str, free: list[tuple[dict[str, Any], dict[str, float]]]) -> dict[str, Any]:
    pods = []
    for index in range(dice.randint(1, 3)):
        pod = a_request(dice) | {"name": f"{name}-{index}"}
        node = seated(dice, pod, free)
        pods.append(pod | ({"node": node, "status": "Running"} if node else {}))
    gang = {"name": name, "queue": dice.choice(["a1", "a2", "b1"]), "priority": dice.choice([10, 50, 100, 500, 1000])}
    more = {"lastStart": dice.choice(["10s", "10m"])} if dice.random() < 0.3 else {}
    return gang | more | {"pods": pods, "minMember": dice.randint(0, len(pods)), "neverPreempts": dice.random() < 0.3}


def an_instance(seed: int) -> dict[str, Any]:
    dice = random.Random(seed)
    nodes = [a_node(dice, f"node-{index}") for index in range(dice.randint(1, 3))]
    free = [
        (node, node.get("resources", {}) | {"gpus": node.get("allocatableGpus", node.get("gpus", 0))}) for node in nodes
    ]
    policy = {
        "restrictNodeScheduling": dice.random() < 0.4,
        "nonPreemptiblePriority": dice.choice([0, 100, 1001]),
        "reclaimResolve": dice.choice(["lca", "queue"]),
        "reclaimMinRuntime": dice.choice([0, 60]),
        "preemptMinRuntime": dice.choice([0, 60]),
        "fullHierarchy": dice.random() < 0.8,
    }
    leaves = [
        {"name": name, "parent": name[0], "quota": dice.randint(0, 4), "reclaimMinRuntime": dice.choice([0, 300])}
        for name in ("a1", "a2", "b1")
    ]
    queues = [{"name": name, "quota": dice.randint(0, 6)} for name in "ab"] + leaves
    gangs = [a_gang(dice, f"gang-{index}", free) for index in range(dice.randint(5, 14))]
    return {"format": "kai-solver/v1", "nodes": nodes, "queues": queues, "gangs": gangs, "policy": policy}


@pytest.mark.slow
@pytest.mark.parametrize("block", range(2))
def test_plans_keep_to_every_setting(block: int) -> None:
    model, disturbed, admitted = load_model("greedy-only"), 0, 0
    for seed in range(100 * block, 100 * (block + 1)):
        snapshot = snapshot_from_native(an_instance(seed))
        plan = cycle(snapshot, model, budget_s=2.0)
        assert check_plan(snapshot, plan) == (), f"seed {seed}"
        assert not [note for note in plan.notes if "refused" in note], f"seed {seed}"
        disturbed += len(plan.evictions) + len(plan.moves)
        admitted += len(plan.admitted)
    assert disturbed > 5
    assert admitted > 50
