"""The same case in other words: lists in another order, names that sort the other way round."""

import random
from collections.abc import Callable
from typing import Any

import pytest

Document = dict[str, Any]


@pytest.fixture(scope="session")
def shuffled() -> Callable[[Document, int], Document]:
    """``shuffled(case, seed)``: the case with its lists in another order."""
    return _shuffled


@pytest.fixture(scope="session")
def renamed() -> Callable[[Document], Document]:
    """``renamed(case)``: the case with names that sort the other way round."""
    return _renamed


def _shuffled(case: Document, seed: int) -> Document:
    """``case`` with every list whose order carries no meaning in another order."""
    chance = random.Random(seed)

    def mixed(items: list[Any]) -> list[Any]:
        return chance.sample(items, len(items))

    instance = dict(case["instance"])
    for part in ("nodes", "queues", "topologies"):
        instance[part] = mixed(instance.get(part, []))
    instance["jobs"] = [job | {"tasks": mixed(job.get("tasks", []))} for job in mixed(instance.get("jobs", []))]
    if "dra" in instance:
        lists = ("resource_slices", "resource_claims")
        instance["dra"] = instance["dra"] | {part: mixed(instance["dra"].get(part, [])) for part in lists}
    return case | {"instance": instance}


def _renamed(case: Document) -> Document:
    """``case`` with names of nodes, queues and jobs that sort in the opposite order, in what is expected as well."""
    instance = case["instance"]
    nodes, queues, jobs = (_reversed({item["name"] for item in instance[part]}) for part in ("nodes", "queues", "jobs"))
    tasks = {t["id"]: _task(t["id"], j["name"], jobs) for j in instance["jobs"] for t in j["tasks"]}
    names = _Names(nodes, queues, jobs, tasks)
    return case | {"instance": names.instance(instance), "expected": names.expected(case["expected"])}


def _reversed(names: set[str]) -> dict[str, str]:
    return {name: f"n{len(names) - rank:03d}-{name}" for rank, name in enumerate(sorted(names))}


def _task(task: str, job: str, jobs: dict[str, str]) -> str:
    return jobs[job] + task.removeprefix(job)


class _Names:
    def __init__(self, nodes: dict[str, str], queues: dict[str, str], jobs: dict[str, str], tasks: dict[str, str]):
        self.nodes, self.queues, self.jobs, self.tasks = nodes, queues, jobs, tasks

    def instance(self, instance: Document) -> Document:
        """The cluster under its new names; queues that do not exist keep theirs."""
        new: Document = {
            "nodes": [node | {"name": self.nodes[node["name"]]} for node in instance["nodes"]],
            "queues": [self._queue(queue) for queue in instance["queues"]],
            "jobs": [self._job(job) for job in instance["jobs"]],
        }
        if "dra" in instance:
            new["dra"] = self._claims(instance["dra"])
        return instance | new

    def expected(self, expected: Document) -> Document:
        """What is expected under the new names."""
        return expected | {
            "jobs": {self._job_key(key): self._asserted(e) for key, e in expected.get("jobs", {}).items()},
            "tasks": {self.tasks[key]: self._asserted(e) for key, e in expected.get("tasks", {}).items()},
            "nodes": {self.nodes[key]: e for key, e in expected.get("nodes", {}).items()},
        }

    def _queue(self, queue: Document) -> Document:
        parent = queue.get("parent", "")
        return queue | {"name": self.queues[queue["name"]], "parent": self.queues.get(parent, parent)}

    def _job(self, job: Document) -> Document:
        queue = self.queues.get(job["queue"], job["queue"])
        return job | {"name": self.jobs[job["name"]], "queue": queue, "tasks": [self._pod(t) for t in job["tasks"]]}

    def _pod(self, task: Document) -> Document:
        new: Document = {"id": self.tasks[task["id"]]}
        if "node" in task:
            new["node"] = self.nodes[task["node"]]
        if "allowed_nodes" in task:
            new["allowed_nodes"] = [self.nodes[name] for name in task["allowed_nodes"]]
        return task | new

    def _claims(self, dra: Document) -> Document:
        label = "kai.scheduler/queue"
        return dra | {
            "resource_slices": [part | {"node": self.nodes[part["node"]]} for part in dra["resource_slices"]],
            "resource_claims": [
                claim | {"labels": {label: self.queues[claim["labels"][label]]}} if claim.get("labels") else claim
                for claim in dra["resource_claims"]
            ],
        }

    def _job_key(self, key: str) -> str:
        namespace, slash, name = key.rpartition("/")
        return f"{namespace}{slash}{self.jobs[name]}"

    def _asserted(self, expected: Document) -> Document:
        new = {"node": self.nodes[expected["node"]]} if "node" in expected else {}
        return expected | new
