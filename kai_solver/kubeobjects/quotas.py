"""Quotas of ``kai.nvidia.com`` as queues: shares of a hierarchy, and guaranteed plus burst of a namespace."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kai_solver.domain import Queue
from kai_solver.errors import InputError
from kai_solver.kubeobjects.raw import Raw
from kai_solver.units import MILLI, UNLIMITED

_DEEPEST = 32


@dataclass(frozen=True, slots=True)
class Shares:
    """GPUs to divide among siblings by weight, thousandths; the name of their parent; how deep they are."""

    gpu_milli: float
    parent: str = ""
    depth: int = 0


def hierarchy_queues(siblings: list[Raw], shares: Shares) -> Iterator[Queue]:
    """Queues of a weighted hierarchy, parents first.

    Each gets its weight's part of what its parent has as quota, and the weight again for what is left over. Of 100
    GPUs with weights 40, 35 and 25, the first gets 40, and its children with 60 and 40 get 24 and 16. CPU and memory
    are not divided: only GPUs are scarce there.

    Raises
    ------
    InputError
        A weight is negative or no number, a name is missing, or the hierarchy is too deep.
    """
    if shares.depth > _DEEPEST:
        raise InputError("is too deep", field=siblings[0].path, cure=f"Use at most {_DEEPEST} levels")
    weights = [_weight(sibling) for sibling in siblings]
    total = sum(weights)
    for sibling, weight in zip(siblings, weights, strict=True):
        part = shares.gpu_milli * weight / total if total else 0.0
        name = sibling.required("name")
        yield Queue(
            name=name,
            parent=shares.parent,
            quota=(UNLIMITED, UNLIMITED, round(part)),
            weight=(1.0, 1.0, weight),
        )
        children = sibling.items("children")
        if children:
            yield from hierarchy_queues(children, Shares(part, name, shares.depth + 1))


def namespace_queue(spec: Raw, namespace: str, known: Queue | None) -> Queue:
    """Queue of a namespace: quota what is guaranteed, limit that and the burst; a hierarchy's queue keeps its place.

    Raises
    ------
    InputError
        An amount is negative or no quantity.
    """
    gpus = _gpu_milli(spec.get("guaranteedQuota.gpus")), _gpu_milli(spec.get("burstQuota.gpus"))
    memory = _memory(spec.get("guaranteedQuota.memory")), _memory(spec.get("burstQuota.memory"))
    queue = known or Queue(namespace, weight=(1.0, 1.0, 1.0))
    return replace(
        queue,
        quota=(UNLIMITED, _quota(memory), _quota(gpus)),
        limit=(UNLIMITED, _limit(memory), _limit(gpus)),
    )


def _quota(amounts: tuple[int | None, int | None]) -> int:
    """What is guaranteed; unlimited where the resource is not mentioned at all."""
    return UNLIMITED if amounts == (None, None) else amounts[0] or 0


def _limit(amounts: tuple[int | None, int | None]) -> int:
    """Guaranteed and burst; none where the resource is not mentioned at all."""
    return UNLIMITED if amounts == (None, None) else (amounts[0] or 0) + (amounts[1] or 0)


def _gpu_milli(raw: Raw) -> int | None:
    return raw.quantity(MILLI) if raw else None


def _memory(raw: Raw) -> int | None:
    return raw.quantity() if raw else None


def _weight(raw: Raw) -> float:
    weight = raw.number("weight")
    if weight < 0:
        raise InputError(f"{weight:g} is negative", field=f"{raw.path}.weight", cure="Write zero or more")
    return weight
