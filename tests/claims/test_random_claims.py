"""Random clusters with claims of every kind: the checker accepts every plan, and the next cycle's too."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from kai_solver.domain import Plan, Snapshot
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.instances_io.native_write import native_from_snapshot
from kai_solver.lab.conformance.rounds import settle

GPU, NIC = "gpu.example.com", "nic.example.com"
Document = dict[str, Any]


class _Random:
    """One random instance."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.free: dict[tuple[str, str], list[str]] = {}
        self.claims: list[Document] = []

    def document(self) -> Document:
        nodes = [f"n{i}" for i in range(self.draw.randint(1, 3))]
        slices = [self._slice(node, driver) for node in nodes for driver in (GPU, NIC)]
        classes: list[Document] = [
            {"name": driver, "selectors": [f'device.driver == "{driver}"']} for driver in (GPU, NIC)
        ]
        if self.draw.random() < 0.3:
            classes[0]["extendedResource"] = "gpu"
        templates = [{"name": f"t{i}", "requests": self._requests()} for i in range(3)]
        self.claims = [self._shared(f"c{i}") for i in range(3)]
        gangs = [self._gang(f"g{i}", nodes) for i in range(self.draw.randint(2, 6))]
        for claim in self.claims[:3]:
            self._allot_shared(claim, gangs)
        return {
            "format": "kai-solver/v1",
            "nodes": [{"name": node, "gpus": self.draw.choice([0, 0, 2]), "cpu": 8} for node in nodes],
            "queues": [{"name": name, "quota": self.draw.randint(0, 4)} for name in "qp"],
            "deviceClasses": classes,
            "resourceSlices": slices,
            "resourceClaimTemplates": templates,
            "resourceClaims": self.claims,
            "gangs": gangs,
        }

    def _slice(self, node: str, driver: str) -> Document:
        names = [f"{driver[:3]}-{i}" for i in range(self.draw.randint(0, 4))]
        self.free[node, driver] = list(names)
        offered = [{"name": name, "attributes": {"model": self.draw.choice("abc")}} for name in names]
        return {"driver": driver, "node": node, "devices": offered}

    def _request(self, driver: str) -> Document:
        models = ", ".join(f'"{model}"' for model in self.draw.sample("abc", self.draw.randint(1, 3)))
        selectors = [f'device.attributes["{driver}"].model in [{models}]'] if self.draw.random() < 0.7 else []
        return {"deviceClass": driver, "selectors": selectors}

    def _requests(self) -> list[Document]:
        found = []
        for number in range(self.draw.randint(1, 2)):
            request = self._request(self.draw.choice([GPU, GPU, NIC]))
            amount: Document = {"all": True} if self.draw.random() < 0.15 else {"count": self.draw.randint(1, 2)}
            found.append(request | amount | {"name": f"r{number}"})
        return found

    def _shared(self, name: str) -> Document:
        request = self._request(self.draw.choice([GPU, NIC]))
        return {"name": name, "labels": {"kai.scheduler/queue": "q"}, "requests": [request]}

    def _gang(self, name: str, nodes: list[str]) -> Document:
        count = self.draw.randint(1, 3)
        return {
            "name": name,
            "queue": self.draw.choice("qp"),
            "priority": self.draw.choice([10, 50, 90, 120]),
            "lastStart": "1h",
            "minMember": self.draw.randint(1, count),
            "pods": [self._pod(f"{name}-{i}", nodes) for i in range(count)],
        }

    def _pod(self, name: str, nodes: list[str]) -> Document:
        asks: list[Document] = [
            {"claimTemplates": [f"t{self.draw.randint(0, 2)}"]},
            {"claims": [f"c{self.draw.randint(0, 2)}"]},
            {"gpus": 1},
            {"gpus": 0.5},
        ]
        (asked,) = self.draw.choices(asks, (5, 3, 1, 1))
        node, driver = self.draw.choice(nodes), self.draw.choice([GPU, NIC])
        if self.draw.random() < 0.4 and self.free[node, driver]:
            device = self.free[node, driver].pop()
            own = {"name": f"own-{name}", "own": True, "requests": [{"deviceClass": driver}], "reservedFor": [name]}
            self.claims.append(own | {"allocation": [{"driver": driver, "pool": node, "device": device}]})
            status = self.draw.choice(["Running", "Running", "Releasing"])
            asked = {"claims": [f"own-{name}"], "status": status, "node": node}
        return {"name": name, "cpu": 1} | asked

    def _allot_shared(self, claim: Document, gangs: list[Document]) -> None:
        driver = claim["requests"][0]["deviceClass"]
        nodes = sorted(node for (node, kind), free in self.free.items() if kind == driver and free)
        if not nodes or self.draw.random() < 0.6:
            return
        node = self.draw.choice(nodes)
        claim["allocation"] = [{"driver": driver, "pool": node, "device": self.free[node, driver].pop()}]
        users = [pod for gang in gangs for pod in gang["pods"] if pod.get("claims") == [claim["name"]]]
        running = [pod for pod in users if self.draw.random() < 0.7]
        for pod in running:
            pod.update(status="Running", node=node)
        claim["reservedFor"] = [pod["name"] for pod in running]


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_plans_for_random_claims_hold_and_so_do_those_after(first: int, planned: Callable[..., Plan]) -> None:
    for seed in range(first, first + 10):
        document = _Random(seed).document()
        snapshot: Snapshot = snapshot_from_native(document)
        assert snapshot_from_native(native_from_snapshot(snapshot)) == snapshot, seed
        for _ in range(2):
            snapshot = settle(snapshot, planned(snapshot))
