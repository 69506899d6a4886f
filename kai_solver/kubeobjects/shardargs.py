"""Flags, plugin arguments and actions that a SchedulingShard sets for its scheduler.

Source: docs/kai-behaviour.md#shard, #cycle.
"""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kai_solver.domain import Action, Policy
from kai_solver.errors import InputError
from kai_solver.kubeobjects.honoured import ANYTHING, Rules
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.settings import KubeSettings
from kai_solver.units import parse_duration_s

_TRUE, _FALSE = ("true", "1", "t"), ("false", "0", "f")

HONOURED: Rules = {
    re.compile(
        r"spec\.args\.(scheduler-name|restrict-node-scheduling|full-hierarchy-fairness|allow-consolidating-reclaim"
        r"|max-consolidation-preemptees|default-staleness-grace-period|stuck-in-releasing-threshold)"
    ): ANYTHING,
    re.compile(
        r"spec\.plugins\.(proportion\.arguments\.(kValue|relcaimerSaturationMultiplier)"
        r"|minruntime\.arguments\.(default(Preempt|Reclaim)MinRuntime|reclaimResolveMethod)"
        r"|nodeplacement\.arguments\.(gpu|cpu)|gpu(pack|spread)\.enabled)"
    ): ANYTHING,
    re.compile(rf"spec\.actions\.({'|'.join(action.value for action in Action)})\.enabled"): ANYTHING,
}
"""Fields below ``args``, ``plugins`` and ``actions`` that are used."""


def with_args(spec: Raw, settings: KubeSettings) -> KubeSettings:
    """Settings with the scheduler's own flags: names without dashes, values as text.

    Raises
    ------
    InputError
        A value cannot be read; names the flag.
    """
    args = spec.get("args")
    policy, base = settings.policy, settings
    return replace(
        base,
        scheduler_name=args.key("scheduler-name").text() or base.scheduler_name,
        policy=replace(
            policy,
            restrict_node_scheduling=_read(args, "restrict-node-scheduling", _flag, policy.restrict_node_scheduling),
            full_hierarchy=_read(args, "full-hierarchy-fairness", _flag, policy.full_hierarchy),
            consolidating_reclaim=_read(args, "allow-consolidating-reclaim", _flag, policy.consolidating_reclaim),
            max_consolidation_gangs=_read(args, "max-consolidation-preemptees", int, policy.max_consolidation_gangs),
            staleness_grace_s=_read(args, "default-staleness-grace-period", parse_duration_s, policy.staleness_grace_s),
            stuck_in_releasing_s=_read(
                args, "stuck-in-releasing-threshold", parse_duration_s, policy.stuck_in_releasing_s
            ),
        ),
    )


def with_plugins(spec: Raw, policy: Policy) -> Policy:
    """Policy with the arguments of plugins, and with the actions that are disabled.

    Raises
    ------
    InputError
        A value cannot be read; names the argument.
    """
    arguments = {name: spec.get(f"plugins.{name}.arguments") for name in ("proportion", "minruntime", "nodeplacement")}
    proportion, minimum, placement = arguments.values()
    spreads = spec.flag("plugins.gpuspread.enabled", policy.gpu_sharing_placement == "spread")
    gpu, cpu = (
        _read(placement, name, _strategy, stated)
        for name, stated in (("gpu", policy.gpu_placement), ("cpu", policy.cpu_placement))
    )
    disabled = frozenset(
        action
        for action in Action
        if not spec.flag(f"actions.{action.value}.enabled", default=action not in policy.disabled_actions)
    )
    return replace(
        policy,
        gpu_placement=gpu,
        cpu_placement=cpu,
        gpu_sharing_placement="spread" if spreads else "binpack",
        disabled_actions=disabled,
        k_value=max(0.0, _read(proportion, "kValue", _number, policy.k_value)),
        saturation_multiplier=max(
            1.0, _read(proportion, "relcaimerSaturationMultiplier", _number, policy.saturation_multiplier)
        ),
        reclaim_min_runtime_s=_read(
            minimum, "defaultReclaimMinRuntime", parse_duration_s, policy.reclaim_min_runtime_s
        ),
        preempt_min_runtime_s=_read(
            minimum, "defaultPreemptMinRuntime", parse_duration_s, policy.preempt_min_runtime_s
        ),
        reclaim_resolve=_read(minimum, "reclaimResolveMethod", _resolve, policy.reclaim_resolve),
    )


def _read(raw: Raw, name: str, convert: Callable[[str], Any], default: Any) -> Any:
    """The value of ``name``, which is text in these maps; ``default`` where it is missing."""
    here = raw.key(name)
    if not here:
        return default
    try:
        return convert(here.text())
    except (ValueError, OverflowError, InputError) as error:
        problem = f"{here.text()!r} cannot be used"
        raise InputError(problem, field=here.path, cure=_CURES.get(convert, "Write a number")) from error


def _flag(text: str) -> bool:
    if text.lower() not in (*_TRUE, *_FALSE):
        raise ValueError(text)
    return text.lower() in _TRUE


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _strategy(text: str) -> str:
    return _one_of(text, "binpack", "spread")


def _resolve(text: str) -> str:
    return _one_of(text, "lca", "queue")


def _one_of(text: str, *known: str) -> str:
    if text not in known:
        raise ValueError(text)
    return text


_CURES: dict[Callable[[str], Any], str] = {
    _flag: 'Write "true" or "false"',
    _strategy: 'Write "binpack" or "spread"',
    _resolve: 'Write "lca" or "queue"',
    parse_duration_s: 'Write a duration: "90s", "1h30m" or "500ms"',
}
"""What to write, by the way in which a value is read; others are numbers."""
