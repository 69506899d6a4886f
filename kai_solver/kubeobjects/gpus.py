"""GPU requests: whole devices, parts of devices, and the shared devices that pods sit on."""

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal, InvalidOperation

from kai_solver.domain import NO_GPU, GpuRequest, gpus_asked
from kai_solver.errors import InputError
from kai_solver.kubeobjects import names
from kai_solver.units import GPU_RESOURCES, MILLI


def gpu_request(whole_milli: int, annotations: Mapping[str, str]) -> GpuRequest:
    """GPUs of a pod from its containers' whole devices and KAI's sharing annotations (reference 1.5).

    Raises
    ------
    InputError
        What KAI's admission refuses: fraction and memory together or beside whole GPUs, a fraction outside
        (0, 1), memory that is no positive number of MiB, a number of devices without either.
    """
    fraction = annotations.get(names.GPU_FRACTION)
    memory = annotations.get(names.GPU_MEMORY)
    if fraction is None and memory is None:
        if names.GPU_FRACTION_DEVICES in annotations:
            raise _refuse(names.GPU_FRACTION_DEVICES, "needs a gpu-fraction or gpu-memory", "Add one of them")
        return gpus_asked(whole_milli // MILLI) if whole_milli else NO_GPU
    if fraction is not None and memory is not None:
        raise _refuse(names.GPU_FRACTION, "stands beside gpu-memory", "Keep one of them")
    if whole_milli:
        raise _refuse(names.GPU_FRACTION, "a shared GPU stands beside whole GPUs", "Keep one of them")
    devices = _positive(names.GPU_FRACTION_DEVICES, annotations.get(names.GPU_FRACTION_DEVICES, "1"))
    if fraction is not None:
        return gpus_asked(devices, _milli(fraction))
    return gpus_asked(devices, 0, _positive(names.GPU_MEMORY, memory or ""))


def gpu_groups(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the shared devices a pod sits on, from the labels that the binder gives it."""
    single = labels.get(names.GPU_GROUP)
    prefix = names.GPU_GROUP_PREFIX
    several = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    return tuple(several) or ((single,) if single else ())


def group_labels(groups: tuple[str, ...]) -> dict[str, str]:
    """The labels that name shared devices on a pod: one name for one device, else one label each (reference 1.9)."""
    if len(groups) == 1:
        return {names.GPU_GROUP: groups[0]}
    return {names.GPU_GROUP_PREFIX + group: group for group in groups}


def _milli(text: str) -> int:
    """Thousandths of a device, rounded up so that a sum that fits does fit."""
    try:
        value = Decimal(text.strip())
    except InvalidOperation as error:
        raise _refuse(names.GPU_FRACTION, f"{text!r} is not a number", 'Write it like "0.5"') from error
    if not value.is_finite() or not 0 < value < 1:
        cure = f"For whole GPUs ask for {GPU_RESOURCES[0]}"
        raise _refuse(names.GPU_FRACTION, f"{text!r} is not between 0 and 1", cure)
    return int((value * MILLI).to_integral_value(rounding=ROUND_CEILING))


def _positive(annotation: str, text: str) -> int:
    if not text.strip().isdecimal() or len(text) > 12 or int(text) < 1:
        raise _refuse(annotation, f"{text!r} is not a positive whole number", "Write one or more")
    return int(text)


def _refuse(annotation: str, problem: str, cure: str) -> InputError:
    return InputError(problem, field=f"metadata.annotations.{annotation}", cure=cure)
