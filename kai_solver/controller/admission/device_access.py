"""Pods that may not choose GPUs by themselves: KAI's ``blockNvidiaVisibleDevices`` (docs/kai-behaviour.md#config).

NVIDIA's runtime gives a container the devices that ``NVIDIA_VISIBLE_DEVICES`` names, whatever its pod asks for. Where
that is blocked, a pod that names devices is refused, and containers that ask for no GPU are told that they have none.
"""

from kai_solver.cluster.api import Object
from kai_solver.controller.admission.pods import CONTAINER_KINDS, VISIBLE_DEVICES, asks_for_part, sharing_container
from kai_solver.controller.admission.verdict import FINE, Verdict, refuse
from kai_solver.domain import Policy
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.raw import Raw
from kai_solver.units import mig_slices

HIDDEN = "void"
ALLOWED = ("none", HIDDEN)
"""Values that name no device."""


def device_access(pod: Raw) -> Verdict:
    """Why the pod is refused: a container names its devices.

    The container with a part of a GPU refers to the ConfigMap that the binder fills.
    """
    verdict, sharing = FINE, _sharing(pod)
    for kind in CONTAINER_KINDS:
        for index, container in enumerate(pod.get("spec").items(kind)):
            for variable in container.items("env"):
                if variable.text("name") != VISIBLE_DEVICES or variable.text("value") in ALLOWED:
                    continue
                if (kind, index) == sharing and _is_binders(pod, variable):
                    continue
                name, value = container.text("name"), variable.text("value") or "taken from elsewhere"
                verdict += refuse(
                    f"{VISIBLE_DEVICES} of container {name} is {value}: pods may not choose their devices. "
                    f"Remove it, or write {' or '.join(ALLOWED)}; ask for GPUs by resources"
                )
    return verdict


def hide_devices(pod: Object, policy: Policy) -> None:
    """Tell containers that ask for no GPU that they have none, in place; what a container states stays, to be judged.

    Raises
    ------
    InputError
        The pod is malformed; validation will say so.
    """
    raw = Raw(pod)
    sharing = _sharing(raw)
    for kind in CONTAINER_KINDS:
        for index, container in enumerate(raw.get("spec").items(kind)):
            stated = {variable.text("name") for variable in container.items("env")}
            if (kind, index) != sharing and VISIBLE_DEVICES not in stated and not _asks_gpu(container, policy):
                written = pod["spec"][kind][index]
                written["env"] = [*(written.get("env") or ()), {"name": VISIBLE_DEVICES, "value": HIDDEN}]


def _sharing(pod: Raw) -> tuple[str, int] | None:
    return sharing_container(pod) if asks_for_part(pod.strings("metadata.annotations")) else None


def _is_binders(pod: Raw, variable: Raw) -> bool:
    prefix = pod.strings("metadata.annotations").get(names.SHARED_GPU_MAP)
    named = variable.text("valueFrom.configMapKeyRef.name")
    return bool(prefix) and named.startswith(f"{prefix}-")


def _asks_gpu(container: Raw, policy: Policy) -> bool:
    """Whether it asks for whole GPUs, replicas, slices, or devices by claims."""
    asked = {name for part in ("limits", "requests") for name, _ in container.fields(f"resources.{part}")}
    gpus = {*policy.gpu_resources, *policy.shared_gpu_resources}
    has_slice = any(mig_slices(name) for name in asked)
    return bool(asked & gpus or has_slice or container.items("resources.claims"))
