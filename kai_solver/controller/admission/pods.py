"""Pods of our scheduler: KAI's rules on parts of GPUs, and those of ours on namespaces and queues.

Source: docs/kai-behaviour.md#admission.
"""

from dataclasses import dataclass

from kai_solver.controller.admission.annotations import gpu_annotations, own_annotations
from kai_solver.controller.admission.lookup import Lookup
from kai_solver.controller.admission.queues import named_queue
from kai_solver.controller.admission.verdict import FINE, Verdict, refuse, warn
from kai_solver.controller.apart import own_namespace_text
from kai_solver.errors import InputError
from kai_solver.kubeobjects import KubeSettings, names
from kai_solver.kubeobjects.gpus import gpu_request
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.resources import pod_request

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
"""Variable by which NVIDIA's runtime knows a container's devices."""

CONTAINER_KINDS = ("initContainers", "containers")


@dataclass(frozen=True, slots=True)
class PodPolicy:
    """What depends on the installation.

    Attributes
    ----------
    namespace
        Our own, where no workloads belong.
    refuses_unknown_queues
        Else they are warned of.
    """

    kube: KubeSettings
    namespace: str
    gpu_sharing: bool = True
    refuses_unknown_queues: bool = True


def pod_verdict(pod: Raw, policy: PodPolicy, lookup: Lookup) -> Verdict:
    """All rules on a pod; pods of other schedulers are not ours to judge."""
    if pod.text("spec.schedulerName") != policy.kube.scheduler_name:
        return FINE
    verdict = own_namespace(pod, policy) + sharing(pod, policy) + queue_of_pod(pod, policy, lookup)
    return verdict + own_annotations(pod, "Pod")


def own_namespace(pod: Raw, policy: PodPolicy) -> Verdict:
    """Workloads do not belong beside the scheduler: they would share its quota, its secrets and its network rules."""
    if pod.text("metadata.namespace") != policy.namespace:
        return FINE
    return refuse(own_namespace_text(policy.namespace, policy.kube.scheduler_name))


def sharing(pod: Raw, policy: PodPolicy) -> Verdict:
    """GPUs and parts of them: whether they may be asked for, and whether what is asked can be understood."""
    annotations = pod.strings("metadata.annotations")
    shares = asks_for_part(annotations)
    if shares and not policy.gpu_sharing:
        name = f"{pod.text('metadata.namespace')}/{pod.text('metadata.name')}"
        return refuse(
            f"attempting to create a pod {name} with gpu sharing request, while GPU sharing is disabled. "
            "Ask for whole GPUs, or switch admission.gpu_sharing on"
        )
    if not shares and annotations.get(names.MPS) == "true":
        return refuse("MPS is only supported with GPU fraction request")
    try:
        whole_milli = pod_request(pod.get("spec"), policy.kube.policy.gpu_resources).get("gpu", 0)
        gpu = gpu_request(whole_milli, annotations)
        return (_variables(pod) if shares else FINE) + gpu_annotations(gpu, annotations)
    except InputError as error:
        return refuse(error)


def queue_of_pod(pod: Raw, policy: PodPolicy, lookup: Lookup) -> Verdict:
    """The queue that the pod names; a PodGroup that it names has the last word instead."""
    stated = pod.strings("metadata.labels").get(policy.kube.queue_label_key, "")
    if not stated or pod.strings("metadata.annotations").get(names.POD_GROUP):
        return FINE
    return named_queue(stated, lookup, refuses=policy.refuses_unknown_queues)


def asks_for_part(annotations: dict[str, str]) -> bool:
    """Whether a pod asks for a part of a GPU."""
    return names.GPU_FRACTION in annotations or names.GPU_MEMORY in annotations


def sharing_container(pod: Raw) -> tuple[str, int]:
    """The container that gets the part of a GPU: its kind (``containers``, ``initContainers``) and index.

    Raises
    ------
    InputError
        No container has the name that the annotation states.
    """
    stated = pod.strings("metadata.annotations").get(names.GPU_FRACTION_CONTAINER)
    if stated is None:
        return "containers", 0
    for kind in CONTAINER_KINDS:
        for index, container in enumerate(pod.get("spec").items(kind)):
            if container.text("name") == stated:
                return kind, index
    field = f"metadata.annotations.{names.GPU_FRACTION_CONTAINER}"
    raise InputError(f"container with name {stated} not found for fraction request", field=field, cure="Correct it")


def _variables(pod: Raw) -> Verdict:
    """A part of a GPU is of no use to a container that does not know its device."""
    kind, index = sharing_container(pod)
    containers = pod.get("spec").items(kind)
    if index >= len(containers) or pod.strings("metadata.annotations").get(names.SHARED_GPU_MAP):
        return FINE
    if any(variable.text("name") == VISIBLE_DEVICES for variable in containers[index].items("env")):
        return FINE
    return warn(
        f"the container will not know its part of a GPU: it has no {VISIBLE_DEVICES}. New pods get it from the "
        "mutating webhook: have it installed"
    )
