"""Amounts: what containers request and nodes offer, in the units of a `ResourceSchema`."""

from collections.abc import Iterable, Mapping

from kai_solver.domain.object_limits import MOST_UNOFFERED
from kai_solver.errors import InputError
from kai_solver.kubeobjects.raw import Raw
from kai_solver.units import MILLI

Amounts = dict[str, int]
"""By schema name: ``cpu`` milli, ``memory`` bytes, ``gpu`` milli, ``pods``, extended resources in ones.

GPUs are there twice: together as ``gpu``, and under their own names, so that those of one vendor are not taken for
another's."""

EPHEMERAL = "ephemeral-storage"
_IGNORED_PREFIXES = ("attachable-volumes-",)


def read_amounts(raw: Raw, gpu_resources: tuple[str, ...]) -> Amounts:
    """Amounts of a Kubernetes resource list.

    Raises
    ------
    InputError
        An amount is no quantity, negative or absurd; names the field.
    """
    amounts: Amounts = {}
    for name, quantity in raw.fields():
        if name in gpu_resources:
            amounts[name] = quantity.quantity()
            amounts["gpu"] = amounts.get("gpu", 0) + amounts[name] * MILLI
        elif name == "cpu":
            amounts[name] = quantity.quantity(MILLI)
        elif name == "gpu":
            raise InputError("'gpu' is not a resource", field=quantity.path, cure=f"Write {gpu_resources[0]}")
        elif not name.startswith(_IGNORED_PREFIXES):
            amounts[name] = quantity.quantity()
    return amounts


def pod_request(spec: Raw, gpu_resources: tuple[str, ...]) -> Amounts:
    """What a pod holds while it runs or starts, whichever is more.

    Containers run together, with the sidecars (init containers that restart always). Before them each init
    container runs beside the sidecars that precede it. The overhead is on top. A limit without a request is a
    request, as the API server has it.
    """
    running: Amounts = {}
    for container in spec.items("containers"):
        _add(running, container_amounts(container, gpu_resources))
    sidecars: Amounts = {}
    peak: Amounts = {}  # the sidecars also need this beside the containers
    for container in spec.items("initContainers"):
        request = container_amounts(container, gpu_resources)
        if container.text("restartPolicy") == "Always":
            _add(sidecars, request)
        else:
            _raise(peak, {name: sidecars.get(name, 0) + amount for name, amount in request.items()})
    _add(running, sidecars)
    _raise(running, peak)
    _add(running, read_amounts(spec.get("overhead"), gpu_resources))
    running.pop("pods", None)
    return running


def without_gpus(amounts: Amounts, gpu_resources: tuple[str, ...]) -> Amounts:
    """The amounts without whole GPUs, under whatever name."""
    return {name: amount for name, amount in amounts.items() if name != "gpu" and name not in gpu_resources}


def extended_names(
    amounts: Iterable[Mapping[str, int]], offered: Iterable[Mapping[str, int]], gpu_resources: tuple[str, ...]
) -> set[str]:
    """Extended resources that the schema needs: all that are requested, and all devices that nodes offer.

    Ephemeral storage counts only where some node says how much it has. GPUs need their own names only where there are
    several: ``gpu`` counts them all. Of those that no node offers the first `MOST_UNOFFERED` are rows.
    """
    on_nodes = {name for amount in offered for name, value in amount.items() if value}
    wanted = {name for amount in amounts for name, value in amount.items() if value}
    found = {name for name in wanted if name in on_nodes} | {n for n in on_nodes if "/" in n}
    found.update(sorted(wanted - on_nodes - {EPHEMERAL})[:MOST_UNOFFERED])
    gpus = found & set(gpu_resources)
    return found if len(gpus) > 1 else found - gpus


def container_amounts(raw: Raw, gpu_resources: tuple[str, ...]) -> Amounts:
    """What one container requests; a limit without a request is one."""
    limits = read_amounts(raw.get("resources.limits"), gpu_resources)
    return {**limits, **read_amounts(raw.get("resources.requests"), gpu_resources)}


def _add(total: Amounts, amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: Amounts, floor: Mapping[str, int]) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, 0), amount)
