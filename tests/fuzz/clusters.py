"""Random clusters with every feature of the native format, from a seed: for campaigns of plans and chains of cycles.

They are documents of ``kai-solver/v1``, so that an offender is an instance file as it stands. What runs fits its nodes
(CPU, memory, pods, devices, zones, ports, devices of claims), but may lie across topologies, rules between pods, quotas
and limits: clusters are like that, since rules change after pods started. Nothing here is shared with the scheduler or
with the other generators of the tests.
"""

from dataclasses import dataclass, field

from kai_solver.domain import Action
from tests.fuzz.draws import SHARED, SLICES, Document, Draw, Sizes
from tests.fuzz.hardware import kind_of_node
from tests.fuzz.rooms import GPU_CLAIMS, Room, room_of

LEVELS = ("zone", "rack", "kubernetes.io/hostname")
APPS, TEAMS, GENERATIONS = ("web", "train", "cache"), ("red", "blue"), ("a", "b")
FRACTIONS = (0.1, 0.2, 0.25, 0.3, 0.33, 0.5, 0.6, 0.7, 0.75, 0.9)
SHARES_MIB = (5_000, 10_000, 10_001, 13_333, 20_000, 40_000, 50_000, 60_000)
ROWS = ("contiguous-required", "contiguous-preferred", "aligned-required", "aligned-preferred")
ASKED = ("fractions", "gpu-memory", "mig", "time-slices", "claims", "shared-claims")
"""Ways to ask for GPUs beside whole ones."""
DRIVER = "gpu.example.com"
SPACES = ("default", "red", "blue")


def cluster(seed: int, sizes: Sizes = "mixed", features: frozenset[str] | None = None) -> Document:
    """The cluster of that seed.

    Parameters
    ----------
    sizes
        ``small``: 1 to 8 nodes; ``mixed``: 1 to 300, small ones more often; ``large``: 100 to 300.
    features
        Of `FEATURES`, in place of a draw.
    """
    return _Cluster(seed, sizes, features).document()


@dataclass
class _Cluster(Draw):
    rooms: list[Room] = field(default_factory=list)
    claims: list[Document] = field(default_factory=list)
    budgets: list[Document] = field(default_factory=list)

    def document(self) -> Document:
        """Nodes, then what runs, in gangs of queues, then the rest."""
        nodes = self._nodes()
        self.rooms = [room_of(node) for node in nodes]
        self._offer()
        queues = self._queues()
        parents = {queue.get("parent") for queue in queues}
        leaves = [queue["name"] for queue in queues if queue["name"] not in parents]
        count = self.random.randint(2, 12) if len(nodes) < 10 else int(len(nodes) * self.random.uniform(0.3, 1.6))
        foreign = self._foreign()
        gangs = [self._gang(index, self.random.choice(leaves)) for index in range(count)]
        return {
            "format": "kai-solver/v1",
            "name": f"fuzz-{self.sizes}-{self.seed}",
            "nodes": nodes,
            "queues": queues,
            "topologies": self._topologies(),
            "gangs": gangs,
            "foreign": foreign,
            "policy": self._policy(),
            "disruptionBudgets": self.budgets,
        } | self._claim_objects(leaves)

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _nodes(self) -> list[Document]:
        r = self.random
        most = {"small": 8, "mixed": r.choice((3, 8, 8, 20, 60, 120, 300)), "large": 300}[self.sizes]
        count = r.randint(100 if self.sizes == "large" else 1, most)
        per_rack, racks_per_zone = r.choice((1, 2, 3, 4, 8)), r.choice((1, 2, 2, 4))
        kinds = [kind_of_node(self) for _ in range(r.randint(1, 4) if "unequal" in self.features else 1)]
        nodes = []
        for index in range(count):
            rack = index // per_rack
            labels = {
                "zone": f"z{rack // racks_per_zone}",
                "rack": f"r{rack}",
                "kubernetes.io/hostname": f"n{index}",
                "gen": r.choice(GENERATIONS),
            }
            for label in ("zone", "rack", "kubernetes.io/hostname"):
                if self.chance("unequal", 0.03):
                    del labels[label]
            kind = r.choice(kinds)
            node = kind | {"name": f"n{index}", "labels": kind["labels"] | labels}
            if self.chance("taints", 0.25):
                node["taints"] = [
                    {
                        "key": "dedicated",
                        "value": r.choice(TEAMS),
                        "effect": r.choice(("NoSchedule", "PreferNoSchedule")),
                    }
                ]
            if self.chance("cordons", 0.1):
                node["schedulable"] = False
            if "allocatableGpus" not in node and node["gpus"] and self.chance("failed-gpus", 0.1):
                node["allocatableGpus"] = r.randrange(node["gpus"])
            nodes.append(node)
        return nodes

    # -- queues and policy -------------------------------------------------------------------------------------------

    def _queues(self) -> list[Document]:
        queues: list[Document] = []
        self._grow(queues, "", 1)
        return queues

    def _grow(self, queues: list[Document], parent: str, depth: int) -> None:
        r = self.random
        scale = max(sum(room.gpus for room in self.rooms), 4)
        for index in range(r.randint(1, 3)):
            queue: Document = {"name": f"{parent or 'q'}{'abc'[index]}", "weight": r.choice((0, 1, 1, 2, 3))}
            queue["quota"] = r.choice((0, 1, scale // 8, scale // 4, scale // 2, scale, -1))
            if parent:
                queue["parent"] = parent
            if self.chance("limits", 0.3):
                queue["limit"] = r.choice((0.5, 1, scale // 4, scale // 2))
            if self.chance("limits", 0.15):
                queue["limit"] = {"gpu": queue.get("limit", -1), "cpu": r.choice((4, 16, 64))}
            if r.random() < 0.2:
                queue["priority"] = r.choice((90, 110, 200))
            if self.chance("runtimes", 0.3):
                queue[r.choice(("reclaimMinRuntime", "preemptMinRuntime"))] = r.choice(("1m", "10m", "2h"))
            if self.chance("placement", 0.2):
                queue["placement"] = {"nodes": r.choice(("binpack", "spread"))}
            if self.chance("usage", 0.4):
                queue["usage"] = r.choice((0.05, 0.3, 0.9))
            queues.append(queue)
            if depth < 3 and self.chance("queue-trees", 0.5 if depth == 1 else 0.25):
                self._grow(queues, queue["name"], depth + 1)

    def _policy(self) -> Document:
        if "policies" not in self.features:
            return {}
        r = self.random
        drawn = {
            "gpuPlacement": r.choice(("binpack", "spread")),
            "gpuSharingPlacement": r.choice(("binpack", "spread")),
            "maxConsolidationGangs": r.choice((-1, 0, 1, 16)),
            "consolidatingReclaim": r.random() < 0.7,
            "saturationMultiplier": r.choice((1, 1, 1.5)),
            "kValue": r.choice((0, 1, 5)),
            "reclaimResolve": r.choice(("lca", "queue")),
            "fullHierarchy": r.random() < 0.8,
            "nonPreemptiblePriority": r.choice((60, 100)),
            "disabledActions": r.sample([action.value for action in Action], r.choice((1, 1, 2))),
        }
        return {key: value for key, value in drawn.items() if r.random() < 0.4}

    def _topologies(self) -> list[Document]:
        r = self.random
        found: Document = {"name": "dc", "levels": list(LEVELS)}
        level = r.choice(("zone", "rack"))
        if self.chance("tenants", 0.6):
            found["oneTenant"] = {"level": level, "tenant": r.choice(("queue", "namespace", "label:team"))}
        if self.chance("spares", 0.6):
            found["spares"] = {"level": r.choice(("zone", "rack")), "nodes": r.choice((1, 1, 2))}
        return [found]

    # -- gangs -------------------------------------------------------------------------------------------------------

    def _gang(self, index: int, queue: str) -> Document:
        r = self.random
        gang: Document = {"name": f"g{index}", "queue": queue, "priority": r.choice((40, 50, 50, 50, 75, 100, 125))}
        gang["namespace"] = r.choice(("default", *SPACES))
        gang["created"] = f"{r.randint(1, 600)}m"
        if self.chance("non-preemptible", 0.2):
            gang["preemptible"] = r.random() < 0.3
        for key, part in (("neverPreempts", 0.05), ("mayUseSpares", 0.3)):
            if self.chance("spares", part):
                gang[key] = True
        if self.chance("topology", 0.4):
            gang["topology"] = self._constraint()
        if self.chance("placement", 0.2):
            gang["placement"] = r.choice(
                (
                    {"nodes": "spread"},
                    {"nodes": "binpack"},
                    {"maxPodsPerNode": 1},
                    {"maxGpusPerNode": 4},
                    {"minNodes": 2},
                )
            )
        if self.chance("placement", 0.2):
            gang["workload"] = r.choice(("w1", "w2"))
        leaves = self._parts(gang)
        self._pods(gang, leaves, is_running=r.random() < 0.5)
        self._ages(gang)
        return gang

    def _constraint(self) -> Document:
        r = self.random
        found = {"topology": "dc"}
        kind = r.random()
        if kind < 0.8:
            found["required"] = r.choice(LEVELS)
        if kind > 0.6:
            found["preferred"] = r.choice(LEVELS[LEVELS.index(found.get("required", "zone")) :])
        return found

    def _parts(self, gang: Document) -> list[tuple[str, int]]:
        """Names and sizes of the podsets; writes the tree."""
        r = self.random
        if self.chance("segments", 0.2):
            size = r.choice((1, 2, 3))
            limit = {"topology": "dc", "required": r.choice(("rack", "zone"))}
            gang["groups"] = [{"name": f"s{i}", "minMember": size, "topology": limit} for i in range(r.randint(1, 3))]
            return [(group["name"], size) for group in gang["groups"]]
        if not self.chance("subgroups", 0.4):
            size = r.choice((1, 1, 1, 2, 2, 3, 4, 6)) if len(self.rooms) < 30 else r.choice((1, 1, 2, 4, 8, 16))
            if self.chance("elastic", 0.4):
                gang["minMember"] = r.randint(1, size)
            return [("", size)]
        leaves: list[tuple[str, int]] = []
        gang["groups"] = [self._part(f"s{i}", leaves, 1) for i in range(r.randint(1, 3))]
        if r.random() < 0.25:
            gang["minGroups"] = r.randint(1, len(gang["groups"]))
        return leaves

    def _part(self, name: str, leaves: list[tuple[str, int]], depth: int) -> Document:
        r = self.random
        part: Document = {"name": name}
        if self.chance("topology", 0.4):
            part["topology"] = self._constraint()
        if depth < 3 and r.random() < 0.3:
            part["groups"] = [self._part(f"{name}{'xyz'[i]}", leaves, depth + 1) for i in range(r.randint(1, 2))]
            if r.random() < 0.2:
                part["minGroups"] = 1
            return part
        size = r.randint(1, 3)
        part["minMember"] = r.randint(0, size) if self.chance("elastic", 0.3) else size
        leaves.append((name, size))
        return part

    def _pods(self, gang: Document, leaves: list[tuple[str, int]], *, is_running: bool) -> None:
        r = self.random
        common = self._pod(gang["queue"])
        gang["pods"] = []
        order = self.rooms if r.random() < 0.5 else r.sample(self.rooms, len(self.rooms))
        for group, size in leaves:
            shape = common if r.random() < 0.7 else self._pod(gang["queue"])
            for number in range(size):
                rank = len(gang["pods"])
                pod = {**shape, "name": f"{gang['name']}-{rank}"}
                pod["labels"] = dict(shape["labels"])
                if group:
                    pod["group"] = group
                if "ranks" in self.features:
                    pod["labels"]["batch.kubernetes.io/job-completion-index"] = str(rank)
                if is_running and not (number and self.chance("statuses", 0.1)):
                    self._seat(pod, gang, order)
                elif self.chance("statuses", 0.1):
                    pod |= r.choice(({"nominatedNode": r.choice(self.rooms).name}, {"status": "Gated"}))
                self._own_claims(pod, gang)
                gang["pods"].append(pod)

    def _ages(self, gang: Document) -> None:
        r = self.random
        running = [pod for pod in gang["pods"] if pod.get("status") in ("Running", "Binding", "Bound")]
        if running and (self.chance("ages", 0.8) or "ages" not in self.features):
            gang["lastStart"] = f"{r.choice((0, 1, 30, 300))}m"
        if running and self.chance("stale", 0.15):
            gang["staleSince"] = r.choice(("10s", "5m"))
        if self.chance("stale", 0.1):
            gang["stalenessGrace"] = r.choice(("0s", "10m"))
        if self.chance("ages", 0.1):
            gang["preemptionDelay"] = r.choice(("1m", "20m"))
        if self.chance("ages", 0.1):
            gang["lastEviction"] = r.choice(("10s", "30m"))
        if self.chance("budgets", 0.4):
            budget = {
                "name": f"b{len(self.budgets)}",
                "namespace": gang["namespace"],
                "allowed": r.choice((0, 0, 1, 2)),
            }
            gang["pods"] = [pod | {"labels": pod["labels"] | {"job": gang["name"]}} for pod in gang["pods"]]
            budget["selector"] = r.choice(
                ([{"key": "job", "values": [gang["name"]]}], [{"key": "app", "values": ["web"]}])
            )
            self.budgets.append(budget)

    # -- pods --------------------------------------------------------------------------------------------------------

    def _pod(self, queue: str) -> Document:
        r = self.random
        pod: Document = {"cpu": r.choice((0, 1, 1, 2, 4, 8)), "memory": f"{r.choice((0, 1, 4, 16, 100))}Gi"}
        pod["labels"] = {"app": r.choice(APPS), "team": r.choice(TEAMS)}
        self._accelerators(pod, queue)
        self._where(pod)
        self._beside(pod)
        return pod

    def _accelerators(self, pod: Document, queue: str) -> None:
        r = self.random
        kind = next((name for name in ASKED if self.chance(name, 0.25)), "whole" if r.random() < 0.9 else "none")
        if kind == "fractions":
            pod["gpus"] = r.choice(FRACTIONS)
        elif kind == "gpu-memory":
            pod["gpuMemory"] = r.choice(SHARES_MIB)
        elif kind in ("mig", "time-slices"):
            pod["resources"] = {r.choice(SLICES) if kind == "mig" else SHARED: r.choice((1, 1, 2))}
        elif kind == "claims":
            pod["claimTemplates"] = [r.choice(("one", "two", "big"))]
        elif kind == "shared-claims":
            pod["claims"] = [f"shared-{queue}"]
        elif kind == "whole":
            self._whole(pod)
        if kind in ("fractions", "gpu-memory") and r.random() < 0.2:
            pod["gpuDevices"] = r.choice((2, 2, 3))
        if self.chance("numa", 0.3):
            pod["guaranteed"] = True

    def _whole(self, pod: Document) -> None:
        """Whole GPUs, in a row or not, of one container or two."""
        r = self.random
        pod["gpus"] = r.choice((1, 1, 1, 2, 2, 3, 4, 8))
        if pod["gpus"] > 1 and self.chance("rows", 0.3):
            pod["gpuRow"] = r.choice(ROWS)
        if pod["gpus"] in (2, 4, 8) and self.chance("numa", 0.2):
            half = pod["gpus"] // 2
            pod["containers"] = [{"gpus": half, "cpu": 1}, {"gpus": half, "cpu": 1}]
            pod["cpu"] = 2

    def _where(self, pod: Document) -> None:
        r = self.random
        if self.chance("node-terms", 0.2):
            pod["nodeSelector"] = {"gen": r.choice(GENERATIONS)}
        if self.chance("node-terms", 0.1):
            term = {"key": "rack", "operator": r.choice(("In", "NotIn")), "values": [f"r{r.randrange(4)}"]}
            pod["nodeTerms"] = [[[term]]]
        if self.chance("volumes", 0.1):  # a local volume: its node, or the zone of a disk
            key, number = r.choice((("metadata.name", f"n{r.randrange(9)}"), ("zone", f"z{r.randrange(3)}")))
            pod["nodeTerms"] = [*pod.get("nodeTerms", ()), [[{"key": key, "values": [number]}]]]
        if self.chance("node-terms", 0.1):
            pod["preferred"] = [{"weight": 50, "term": [{"key": "gen", "values": ["a"]}]}]
        if self.chance("taints", 0.4):
            pod["tolerations"] = [{"key": "dedicated", "value": r.choice(TEAMS)}]
        if self.chance("ports", 0.15):
            pod["hostPorts"] = [r.choice(("8000/TCP", "8001/TCP"))]

    def _beside(self, pod: Document) -> None:
        r = self.random
        for key, part in (("affinity", 0.12), ("antiAffinity", 0.2)):
            if self.chance("affinity", part):
                pod[key] = [self._term()]
        if self.chance("affinity", 0.1):
            pod["preferredPods"] = [{"weight": r.choice((-50, 50)), "term": self._term()}]
        if self.chance("spread", 0.15):
            key = r.choice(("spread", "preferredSpread"))
            pod[key] = [{"selector": [self._chosen()], "topologyKey": r.choice(LEVELS), "maxSkew": r.choice((1, 1, 2))}]
            if r.random() < 0.3:
                pod[key][0]["minDomains"] = 2

    def _term(self) -> Document:
        r = self.random
        term: Document = {"topologyKey": r.choice((*LEVELS, "gen")), "selector": [self._chosen()]}
        if r.random() < 0.3:
            term["namespaces"] = ["*"]
        return term

    def _chosen(self) -> Document:
        r = self.random
        key, values = r.choice((("app", APPS), ("team", TEAMS)))
        return {"key": key, "operator": r.choice(("In", "In", "In", "NotIn")), "values": [r.choice(values)]}

    def _seat(self, pod: Document, gang: Document, rooms: list[Room]) -> None:
        """Let the pod run where it fits; else it waits."""
        r = self.random
        room = next((room for room in rooms if room.takes(pod)), None)
        if room is None:
            return
        taken = room.take(pod)
        pod |= {"status": "Running", "node": room.name} | taken
        if self.chance("unknown-devices", 0.15):
            pod.pop("devices", None)
            pod.pop("gpuGroups", None)
        if self.chance("statuses", 0.12):
            pod |= r.choice(
                ({"deleted": "1s"}, {"deleted": "1h"}, {"status": "Bound"}, {"status": "Binding"}, {"ready": False})
            )
        if self.chance("statuses", 0.02):
            pod["status"] = r.choice(("Succeeded", "Failed"))

    def _foreign(self) -> list[Document]:
        found = []
        for index, room in enumerate(self.rooms):
            pod: Document = {"name": f"daemon-{index}", "cpu": 1, "memory": "1Gi", "labels": {"app": "daemon"}}
            if self.chance("foreign", 0.3) and room.takes(pod):
                found.append(pod | room.take(pod) | {"status": "Running", "node": room.name})
        return found

    # -- claims ------------------------------------------------------------------------------------------------------

    def _own_claims(self, pod: Document, gang: Document) -> None:
        """Claims that a running pod has; one that waits has its own made by the template."""
        if not pod.get("claimTemplates") or "node" not in pod:
            return
        (template,) = pod.pop("claimTemplates")
        name = f"{pod['name']}-{template}"
        room = next(room for room in self.rooms if room.name == pod["node"])
        devices = room.held_devices(pod["name"])
        allocation = [{"driver": DRIVER, "pool": room.name, "device": device} for device in devices]
        self.claims.append(
            {"name": name, "namespace": gang["namespace"], "requests": _requests(template), "own": True}
            | {"allocation": allocation, "reservedFor": [pod["name"]]}
        )
        pod["claims"] = [name]

    def _offer(self) -> None:
        """Devices of ResourceSlices on nodes without GPUs of their own."""
        for room in self.rooms:
            if room.gpus == 0 and not room.resources and {"claims", "shared-claims"} & self.features:
                kinds = [self.random.choice(("big", "small")) for _ in range(self.random.randint(0, 4))]
                room.offered = {f"{kind}-{number}": "" for number, kind in enumerate(kinds)}

    def _claim_objects(self, leaves: list[str]) -> Document:
        if not {"claims", "shared-claims"} & self.features:
            return {}
        shared = [
            {"name": f"shared-{queue}", "namespace": space, "requests": _requests("one")}
            | {"labels": {"kai.scheduler/queue": queue}}
            for queue in leaves
            for space in SPACES
        ]
        templates = [
            {"name": name, "namespace": space, "requests": _requests(name)} for name in GPU_CLAIMS for space in SPACES
        ]
        return {
            "deviceClasses": [{"name": DRIVER, "selectors": [f'device.driver == "{DRIVER}"']}],
            "resourceSlices": [room.device_slice(DRIVER) for room in self.rooms if room.offered],
            "resourceClaimTemplates": templates,
            "resourceClaims": [*self.claims, *shared],
        }


def _requests(template: str) -> list[Document]:
    count, model = GPU_CLAIMS[template]
    request: Document = {"deviceClass": DRIVER, "count": count}
    if model:
        request["selectors"] = [f'device.attributes["{DRIVER}"].model == "{model}"']
    return [request]
