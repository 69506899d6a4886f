"""What clusters have beside their work, added to any instance: the twins ``-real`` of the benchmarks.

What is added takes no room from the work: nodes grow by what DaemonSets take, and cordoned nodes and those of the
control plane are more nodes. So what ran runs where it did, and what found room before finds it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.random import Generator

from kai_solver.domain import (
    Constraints,
    Gang,
    GpuRequest,
    Node,
    NumaTopology,
    NumaZone,
    Pod,
    PodAffinityTerm,
    PodStatus,
    Requirement,
    Snapshot,
    Taint,
    Toleration,
    ZoneShare,
    gpus_asked,
)
from kai_solver.errors import InputError
from kai_solver.instances_io.bench_schema import RealDoc
from kai_solver.lab.generate.parts import HOST
from kai_solver.units import CPU, GPU, MEMORY, MILLI, PODS
from kai_solver.units.resources import FIXED

SYSTEM = "kube-system"
KIND, APP, JOB = "node.kubernetes.io/instance-type", "app", "job-name"
_MIB = 2**20
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
_ON_GPUS = "nvidia.com/gpu"
_DAEMONS = {
    name: Constraints(tolerations=(Toleration("", "Exists"),), host_ports=ports)
    for name, ports in {"node-exporter": ("9100/TCP",), "cni": ("4240/TCP", "9965/TCP")}.items()
}
_DAEMON_CPU, _DAEMON_MEMORY = 100, 128 * _MIB
_APPS, _PREFERRING_APPS = 40, 4
"""Values of the label ``app`` of gangs; all gangs of the last of them prefer nodes with pods of their app."""
_HALF = gpus_asked(1, MILLI // 2)


def made_real(snapshot: Snapshot, doc: RealDoc, seed: int = 1) -> Snapshot:
    """``snapshot`` with what clusters have; equal snapshots and seeds give equal ones.

    Added are CoreDNS (two pods that prefer different nodes), two DaemonSets with host ports on every node, three nodes
    of a control plane, and cordoned nodes. Nodes become of three kinds, one with a taint that all work tolerates, and
    one with NUMA zones. Pods get labels; some gangs prefer nodes with pods of their app, or of their own, and some ask
    for half a GPU.

    Raises
    ------
    InputError
        It has no nodes.
    """
    if not snapshot.nodes:
        raise InputError("has no nodes", field="real", cure="Leave `real` out")
    draw = np.random.default_rng([seed, len(snapshot.nodes), len(snapshot.gangs)])
    nodes = _of_three_kinds(sorted(snapshot.nodes, key=lambda node: node.name), doc, draw)
    control = [_control_node(number, nodes[0]) for number in range(3)]
    every = (*nodes, *_cordoned(nodes[0], max(1, round(doc.cordoned * len(nodes)))), *control)
    numa = {node.name: node.numa for node in nodes if node.numa is not None}
    gangs = _with_wishes(sorted(snapshot.gangs, key=lambda gang: gang.key), doc, draw)
    return replace(
        snapshot,
        name=f"{snapshot.name}-real",
        nodes=tuple(map(_grown, every)),
        gangs=tuple(_in_zones(gangs, numa)),
        foreign=(*snapshot.foreign, *_core_dns(control), *(pod for node in every for pod in _daemons(node))),
    )


# -- nodes -----------------------------------------------------------------------------------------------------------


def _of_three_kinds(nodes: list[Node], doc: RealDoc, draw: Generator) -> list[Node]:
    """Kinds lie in stretches of the names, as pools do in racks; where the first begins is drawn."""
    zoned = round(doc.zoned * len(nodes))
    tainted = (len(nodes) - zoned) // 3
    start = int(draw.integers(len(nodes)))
    found = list(nodes)
    for number in range(len(nodes)):
        at = (start + number) % len(nodes)
        found[at] = _of_kind(nodes[at], "c" if number < zoned else "b" if number < zoned + tainted else "a")
    return found


def _of_kind(node: Node, kind: str) -> Node:
    """Kind ``a`` as it was; ``b`` with half as much CPU and memory more, and tainted; ``c`` with two NUMA zones."""
    labels = {**node.labels, KIND: f"gpu-{kind}"}
    if kind == "a":
        return replace(node, labels=labels)
    if kind == "c":
        numa = _zones(node) if node.numa is None and node.gpus > 1 else node.numa
        return replace(node, labels=labels, numa=numa)
    allocatable = list(node.allocatable)
    for resource in (CPU, MEMORY):
        allocatable[resource] += allocatable[resource] // 2
    return replace(
        node,
        labels=labels,
        allocatable=tuple(allocatable),
        gpu_memory_mib=node.gpu_memory_mib * 3 // 2,
        taints=(*node.taints, Taint(_ON_GPUS, "present")),
    )


def _zones(node: Node) -> NumaTopology:
    """Two zones with half of the CPU, memory and GPUs each (of an odd number of GPUs, one more in the first)."""
    zones = []
    for number, gpus in enumerate(((node.gpus + 1) // 2, node.gpus // 2)):
        amounts = [0] * len(node.allocatable)
        amounts[CPU], amounts[MEMORY], amounts[GPU] = node.allocatable[CPU] // 2, node.allocatable[MEMORY] // 2, gpus
        amounts[GPU] *= MILLI
        zones.append(NumaZone(f"node-{number}", tuple(amounts)))
    return NumaTopology("restricted", "container", tuple(zones), (CPU, MEMORY, GPU))


def _cordoned(like: Node, count: int) -> Iterator[Node]:
    for number in range(count):
        name = f"cordoned-{number:04}"
        yield replace(like, name=name, labels={HOST: name, KIND: like.labels[KIND]}, numa=None, schedulable=False)


def _control_node(number: int, like: Node) -> Node:
    """A node without GPUs that only CoreDNS and DaemonSets may be on."""
    name = f"control-plane-{number}"
    allocatable = [0] * len(like.allocatable)
    allocatable[CPU], allocatable[MEMORY], allocatable[PODS] = 4 * MILLI, 16 * 1024 * _MIB, 110
    return Node(name, tuple(allocatable), labels={HOST: name}, taints=(Taint(_CONTROL_PLANE),))


def _grown(node: Node) -> Node:
    """With as much more as the pods of the DaemonSets take."""
    allocatable = list(node.allocatable)
    allocatable[CPU] += len(_DAEMONS) * _DAEMON_CPU
    allocatable[MEMORY] += len(_DAEMONS) * _DAEMON_MEMORY
    allocatable[PODS] += len(_DAEMONS)
    return replace(node, allocatable=tuple(allocatable))


# -- pods of the system ----------------------------------------------------------------------------------------------


def _core_dns(control: list[Node]) -> Iterator[Pod]:
    apart = PodAffinityTerm((Requirement("k8s-app", "In", ("kube-dns",)),), HOST)
    constraints = Constraints(tolerations=(Toleration(_CONTROL_PLANE, "Exists"),), preferred_pods=((-100, apart),))
    labels = {"k8s-app": "kube-dns", "pod-template-hash": "5d78c9869d"}
    for number in range(2):
        yield _small_pod(f"coredns-{number}", control[number], constraints, labels)


def _daemons(node: Node) -> Iterator[Pod]:
    for name, constraints in _DAEMONS.items():
        labels = {APP: name, "controller-revision-hash": "7c9f8d6b5"}
        yield _small_pod(f"{name}-{node.name}", node, constraints, labels)


def _small_pod(name: str, node: Node, constraints: Constraints, labels: Mapping[str, str]) -> Pod:
    request = [0] * len(node.allocatable)
    request[CPU], request[MEMORY], request[PODS] = _DAEMON_CPU, _DAEMON_MEMORY, 1
    status = PodStatus.RUNNING
    return Pod(SYSTEM, name, tuple(request), status=status, node=node.name, constraints=constraints, labels=labels)


# -- work ------------------------------------------------------------------------------------------------------------


def _with_wishes(gangs: list[Gang], doc: RealDoc, draw: Generator) -> list[Gang]:
    """Gangs whose pods have labels and tolerate the taint; some prefer company, some take half a GPU."""
    order = draw.permutation(len(gangs)).tolist()
    preferring = order[: round(doc.preferring * len(gangs))]
    of_app = set(preferring[::2])
    of_job = set(preferring[1::2])
    one_gpu = [
        at for at in reversed(order) if gangs[at].pods and all(pod.gpu == gpus_asked(1) for pod in gangs[at].pods)
    ]
    sharing = set(one_gpu[: round(doc.sharing * len(gangs))])
    shared: dict[tuple[Constraints, str], Constraints] = {}

    def constraints_of(old: Constraints, key: str, value: str) -> Constraints:
        """Equal ones are one object, as importers make them."""
        if (old, value) not in shared:
            near = PodAffinityTerm((Requirement(key, "In", (value,)),), HOST)
            tolerations = (*old.tolerations, Toleration(_ON_GPUS, "Exists"))
            wishes = (*old.preferred_pods, *(((100, near),) if key else ()))
            shared[old, value] = replace(old, tolerations=tolerations, preferred_pods=wishes)
        return shared[old, value]

    found = []
    for at, gang in enumerate(gangs):
        last = _APPS - _PREFERRING_APPS
        app = f"app-{draw.integers(last, _APPS) if at in of_app else draw.integers(last)}"
        wish = (APP, app) if at in of_app else (JOB, gang.name) if at in of_job else ("", "")
        labels = {APP: app, JOB: gang.name}
        pods = (
            replace(
                pod,
                labels={**labels, **pod.labels},
                constraints=constraints_of(pod.constraints, *wish),
                gpu=_HALF if at in sharing else pod.gpu,
                devices=() if at in sharing else pod.devices,
            )
            for pod in gang.pods
        )
        found.append(replace(gang, pods=tuple(pods)))
    return found


def _in_zones(gangs: list[Gang], numa: Mapping[str, NumaTopology]) -> Iterator[Gang]:
    """Running pods hold GPUs of their node's zones: the largest first, each in one zone where it finds room."""
    running = [pod for gang in gangs for pod in gang.pods if pod.status.holds_resources and pod.gpu.is_whole]
    free = {
        name: {zone.name: zone.allocatable[GPU] // MILLI for zone in topology.zones} for name, topology in numa.items()
    }
    held: dict[str, tuple[ZoneShare, ...]] = {}
    for pod in sorted(running, key=lambda pod: (-pod.gpu.devices, pod.key)):
        if pod.node in free:
            held[pod.key] = tuple(_taken(free[pod.node], pod.gpu))
    for gang in gangs:
        pods = (replace(pod, zones=held[pod.key]) if pod.key in held else pod for pod in gang.pods)
        yield replace(gang, pods=tuple(pods)) if any(pod.key in held for pod in gang.pods) else gang


def _taken(free: dict[str, int], gpu: GpuRequest) -> Iterator[ZoneShare]:
    left = gpu.devices
    whole = [zone for zone, count in free.items() if count >= left]
    for zone in whole[:1] or list(free):
        count = min(left, free[zone])
        if count:
            free[zone] -= count
            left -= count
            yield ZoneShare(zone, ((FIXED[GPU], count * MILLI),))
