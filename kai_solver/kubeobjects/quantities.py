"""Amounts as Kubernetes writes them."""

from collections.abc import Mapping

from kai_solver.units import MILLI


def quantities(amounts: Mapping[str, int], gpu_resources: tuple[str, ...]) -> dict[str, str]:
    """A resource list of ``amounts`` (schema names and units); GPUs under their own names, else under the first."""
    named = any(amounts.get(name) for name in gpu_resources)
    return {
        gpu_resources[0] if name == "gpu" else name: quantity(name, amount)
        for name, amount in amounts.items()
        if amount and not (named and name == "gpu")
    }


def quantity(name: str, amount: int) -> str:
    """One amount: milli for CPU, whole GPUs, else the bare number."""
    if name == "cpu":
        return str(amount // MILLI) if amount % MILLI == 0 else f"{amount}m"
    return str(amount // MILLI) if name == "gpu" else str(amount)
