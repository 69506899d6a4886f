"""Pods that may not choose GPUs by themselves: KAI's ``blockNvidiaVisibleDevices`` (docs/kai-behaviour.md#config).

NVIDIA's runtime gives a container the devices that ``NVIDIA_VISIBLE_DEVICES`` names, whatever its pod asks for. Where
that is blocked, a pod that names devices is refused, and containers that ask for no GPU are told that they have none.
"""

import copy

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

_EPHEMERAL = "ephemeralContainers"
"""They can be added to a pod that runs (``kubectl debug``)."""


def device_access(pod: Raw) -> Verdict:
    """Why the pod is refused: a container names its devices.

    The container with a part of a GPU refers to the ConfigMap that the binder fills.
    """
    verdict, sharing = FINE, _sharing(pod)
    for kind in (*CONTAINER_KINDS, _EPHEMERAL):
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
            if (kind, index) != sharing and not _asks_gpu(container, policy):
                _hide(pod["spec"][kind][index], container)


def hide_from_new_ephemeral(pod: Object, before: Object) -> Object:
    """The pod, whose new ephemeral containers are told that they have no GPU; itself where there are none.

    Raises
    ------
    InputError
        The pod is malformed; validation will say so.
    """
    known = {container.text("name") for container in Raw(before).get("spec").items(_EPHEMERAL)}
    after = copy.deepcopy(pod)
    for index, container in enumerate(Raw(pod).get("spec").items(_EPHEMERAL)):
        if container.text("name") not in known:
            _hide(after["spec"][_EPHEMERAL][index], container)
    return after


def _hide(written: Object, container: Raw) -> None:
    if all(variable.text("name") != VISIBLE_DEVICES for variable in container.items("env")):
        written["env"] = [*(written.get("env") or ()), {"name": VISIBLE_DEVICES, "value": HIDDEN}]


def _sharing(pod: Raw) -> tuple[str, int] | None:
    return sharing_container(pod) if asks_for_part(pod.strings("metadata.annotations")) else None


def _is_binders(pod: Raw, variable: Raw) -> bool:
    prefix = pod.strings("metadata.annotations").get(names.SHARED_GPU_MAP)
    named = variable.text("valueFrom.configMapKeyRef.name")
    return bool(prefix) and named.startswith(f"{prefix}-")


def _asks_gpu(container: Raw, policy: Policy) -> bool:
    """Whether it asks for whole GPUs, replicas, slices, or devices by claims."""
    stated = (entry for part in ("limits", "requests") for entry in container.fields(f"resources.{part}"))
    asked = {name for name, amount in stated if amount.quantity() > 0}
    gpus = {*policy.gpu_resources, *policy.shared_gpu_resources}
    has_slice = any(mig_slices(name) for name in asked)
    return bool(asked & gpus or has_slice or container.items("resources.claims"))
