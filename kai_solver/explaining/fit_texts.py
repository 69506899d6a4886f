"""Pods without room, as KAI and as Kubernetes say it (docs/kai-behaviour.md#reasons)."""

from collections.abc import Iterable

from kai_solver.explaining.explanation import PodFit


def kai_text(fits: Iterable[PodFit]) -> str:
    """KAI's message for pods without room (docs/kai-behaviour.md#reasons)."""
    parts = []
    for fit in fits:
        why = " ".join(f"{_counted(reason.nodes, reason.kai)}." for reason in fit.reasons)
        if 0 < fit.room < fit.required:
            parts.append(
                f"Resources were found for {fit.room} pods while {fit.required} are required for gang scheduling. "
                f"Additional pods cannot be scheduled due to: {why}"
            )
        elif fit.room < fit.required:
            parts.append(f"no nodes with enough resources were found: {why}")
    return "\n".join(parts)


def kubernetes_text(fits: Iterable[PodFit]) -> str:
    """The message as kube-scheduler writes it."""
    texts = []
    for fit in fits:
        if fit.room < fit.required:
            why = ", ".join(f"{reason.nodes} {reason.kubernetes}" for reason in fit.reasons)
            texts.append(f"{fit.fitting_nodes}/{fit.nodes} nodes are available: {why}.")
    return "\n".join(texts)


def _counted(nodes: int, text: str) -> str:
    return f"{nodes} {text}" if text.startswith("node(s)") else f"{nodes} node(s): {text}"
