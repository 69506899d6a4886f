"""GPU requests: whole devices, parts of devices, and the shared devices that pods sit on."""

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal, InvalidOperation

from kai_solver.domain import NO_GPU, GpuRequest, gpus_asked
from kai_solver.errors import InputError, shown
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.notices import Notices
from kai_solver.links import ROW_ANNOTATION, WISHES
from kai_solver.units import GPU_RESOURCES, LONGEST_NUMBER, MILLI, parse_whole

_MOST_MEMORY_MIB = 10**7
"""More than any GPU has (10 TB): it is bytes."""


def gpu_request(whole_milli: int, annotations: Mapping[str, str]) -> GpuRequest:
    """GPUs of a pod from its containers' whole devices and KAI's sharing annotations (docs/kai-behaviour.md#gpus).

    Raises
    ------
    InputError
        What KAI's admission refuses, in its words (docs/kai-behaviour.md#admission): fraction and memory together or
        beside whole GPUs, a fraction outside (0, 1), memory that is no positive number of MiB, a number of devices
        without either.
    """
    fraction = annotations.get(names.GPU_FRACTION)
    memory = annotations.get(names.GPU_MEMORY)
    devices = annotations.get(names.GPU_FRACTION_DEVICES)
    if fraction is not None and whole_milli:
        problem = "cannot have both GPU fraction request and whole GPU resource request/limit"
        raise _refuse(names.GPU_FRACTION, problem, "Keep one of them")
    if memory is not None and (fraction is not None or whole_milli):
        raise _refuse(names.GPU_MEMORY, "cannot request both GPU and GPU memory", "Keep one of them")
    if fraction is None and memory is None:
        if devices is not None:
            problem = "cannot request multiple fractional devices without specifying fraction portion or gpu-memory"
            raise _refuse(names.GPU_FRACTION_DEVICES, problem, "Add one of them")
        return gpus_asked(whole_milli // MILLI) if whole_milli else NO_GPU
    portion_milli = _milli(fraction) if fraction is not None else 0
    memory_mib = _positive(names.GPU_MEMORY, "gpu-memory", memory) if memory is not None else 0
    count = _positive(names.GPU_FRACTION_DEVICES, "fraction count", devices) if devices is not None else 1
    return gpus_asked(count, portion_milli, memory_mib)


def with_row(gpu: GpuRequest, annotations: Mapping[str, str], name: str, notices: Notices) -> GpuRequest:
    """``gpu`` in the row that the pod's annotation wants; an invalid row is reported and ignored."""
    text = annotations.get(ROW_ANNOTATION, "")
    if not text:
        return gpu
    word = text.strip().lower()
    if word not in WISHES:
        notices.warn(name, f"annotation {ROW_ANNOTATION}: {shown(text)} is ignored: it is none of {', '.join(WISHES)}")
        return gpu
    if not gpu.is_whole:
        notices.warn(
            name, f"annotation {ROW_ANNOTATION} is ignored: only whole GPUs of a device plugin can be in a row"
        )
        return gpu
    return gpus_asked(gpu.devices, row=word) if gpu.devices > 1 else gpu


def warn_of_bytes(gpu: GpuRequest, name: str, notices: Notices) -> None:
    """Report memory that no GPU has. Such a pod waits, as in KAI: admission does not refuse it."""
    if gpu.memory_mib > _MOST_MEMORY_MIB:
        cure = f'If these are bytes, write "{max(gpu.memory_mib >> 20, 1)}"'
        notices.warn(name, f"annotation {names.GPU_MEMORY} is in MiB, and no GPU has {gpu.memory_mib} MiB. {cure}")


def gpu_groups(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the shared devices a pod sits on, from the labels that the binder gives it."""
    single = labels.get(names.GPU_GROUP)
    prefix = names.GPU_GROUP_PREFIX
    several = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    return tuple(several) or ((single,) if single else ())


def group_labels(groups: tuple[str, ...]) -> dict[str, str]:
    """The labels that name shared devices on a pod: one name for one device, else one label each.

    Source: docs/kai-behaviour.md#reservation-pods.
    """
    if len(groups) == 1:
        return {names.GPU_GROUP: groups[0]}
    return {names.GPU_GROUP_PREFIX + group: group for group in groups}


def _milli(text: str) -> int:
    """Thousandths of a device, rounded up so that a sum that fits does fit."""
    try:
        value = Decimal(text.strip() if len(text) <= LONGEST_NUMBER else "NaN")
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or not 0 < value < 1:
        problem = "gpu-fraction annotation value must be a positive number smaller than 1.0"
        cure = f'{shown(text)} is none; write it like "0.5", and for whole GPUs ask for {GPU_RESOURCES[0]}'
        raise _refuse(names.GPU_FRACTION, problem, cure)
    # Nearly all of a device is still a share of it, and nearly nothing still one.
    return min(max(int((value * MILLI).to_integral_value(rounding=ROUND_CEILING)), 1), MILLI - 1)


def _positive(annotation: str, name: str, text: str) -> int:
    number = parse_whole(text.strip(), 12)
    if not number:
        problem = f"{name} annotation value must be a positive integer greater than 0"
        raise _refuse(annotation, problem, f"{shown(text)} is none")
    return number


def _refuse(annotation: str, problem: str, cure: str) -> InputError:
    return InputError(problem, field=f"metadata.annotations.{annotation}", cure=cure)
