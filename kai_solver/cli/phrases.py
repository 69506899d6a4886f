"""Plans in words: pure functions from plans to phrases."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

from kai_solver.cli.console import counted
from kai_solver.domain import Bind, Blocker, Move, Pending, Plan, PodStatus, Snapshot, Stage
from kai_solver.reasons.pending import proof_sentence
from kai_solver.units import MILLI, format_amount

SHOWN = 4
"""Names in one phrase before it says how many more there are."""


def describe(snapshot: Snapshot, name: str) -> str:
    """One line about a cluster: its name (else ``name``), nodes, GPUs, queues, gangs and pods."""
    statuses = Counter(pod.status for gang in snapshot.gangs for pod in gang.pods)
    waiting = statuses[PodStatus.PENDING] + statuses[PodStatus.GATED]
    return (
        f"{snapshot.name or name}: {counted(len(snapshot.nodes), 'node')}, "
        f"{counted(sum(node.gpus for node in snapshot.nodes), 'GPU')}, {counted(len(snapshot.queues), 'queue')}, "
        f"{counted(len(snapshot.gangs), 'gang')} ({counted(statuses[PodStatus.RUNNING], 'pod')} running, "
        f"{waiting:,} waiting)" + (f", {counted(len(snapshot.foreign), 'foreign pod')}" if snapshot.foreign else "")
    )


def outcome(plan: Plan) -> str:
    """One line about a plan: gangs admitted by action, pods moved and evicted, gangs pending and how many proven."""
    actions = Counter(action.value for _, action in dict.fromkeys(plan.admitted))
    by = f" ({', '.join(f'{action} {count:,}' for action, count in actions.items())})" if actions else ""
    proven = sum(pending.proof.state == "proven" for pending in plan.pending)
    together = next((entry.proof.at_most for entry in plan.pending if entry.proof.at_most is not None), None)
    others = f", and at least {together.gangs - together.most:,} of the others have to wait" if together else ""
    proofs = f", {proven:,} of them proven{others}" if plan.pending else ""
    return (
        f"{counted(len({gang for gang, _ in plan.admitted}), 'gang')} admitted{by}; "
        f"{counted(len(plan.binds), 'pod')} bound, {len(plan.moves):,} moved, {len(plan.evictions):,} evicted; "
        f"{counted(len(plan.pending), 'gang')} pending{proofs}"
    )


def gap(stage: Stage) -> str:
    """Relative distance of value and bound, where the bound says anything."""
    return "no bound" if stage.gap is None else f"{stage.gap:.1%}"


_POD_NAME = re.compile(r"\bpod [^\s/]*/[^\s:]+")


def same_cause(pending: Iterable[Pending]) -> list[list[Pending]]:
    """Pending gangs by reason, message (less the gang's own name) and proof, the largest group first."""
    groups: dict[object, list[Pending]] = defaultdict(list)
    for entry in pending:
        groups[entry.reason, _without_name(entry), entry.proof].append(entry)
    return sorted(groups.values(), key=len, reverse=True)


def _without_name(entry: Pending) -> str:
    """The message without the names of the gang and of its pods, where they stand as words of their own."""
    name = re.escape(entry.gang.rpartition("/")[2])
    return re.sub(rf"(?<![\w.-]){name}(?![\w.-])", "*", _POD_NAME.sub("pod *", entry.message))


def pending_lines(gangs: list[Pending], blockers: int | None) -> list[str]:
    """Lines about gangs that wait for the same reason; ``blockers``: how many to name, None all."""
    first = gangs[0]
    names = ", ".join(entry.gang for entry in gangs[:SHOWN])
    names += f" and {counted(len(gangs) - SHOWN, 'more gang')}" if len(gangs) > SHOWN else ""
    method = f" by {first.proof.method}" if first.proof.method else ""
    lines = [f"  {names}: {first.reason.value} ({first.proof.state}{method})"]
    lines += [f"      {text.rstrip()}" for text in first.message.splitlines() if text.strip()]
    if first.proof.beside == "plan" or first.proof.at_most is not None:
        lines.append(f"      {proof_sentence(first.proof)}")
    blocking = first.proof.blocking[:blockers]
    lines += [f"      blocked by {blocked_by(b)}" for b in blocking]
    left = len(first.proof.blocking) - len(blocking)
    return [*lines, f"      ... and {counted(left, 'more blocker')}"] if left else lines


def blocked_by(blocker: Blocker) -> str:
    """``resource gpu in rack-1: needs 4 pods of 8 GPUs, has room for 3; 8 GPUs short``."""
    where = f" in {blocker.where}" if blocker.where else ""
    is_amount = blocker.resource and blocker.short and blocker.kind != "row"  # There may be GPUs enough.
    short = f"; {format_amount(blocker.resource, blocker.short)} short" if is_amount else ""
    return f"{blocker.kind} {blocker.name}{where}: needs {blocker.need}, has {blocker.have}{short}"


def places(binds: list[Bind]) -> str:
    """``node-1 (GPU 0-3, zone node-0), node-2 (GPU 5: 0.5)`` and how many nodes more; zones are those of NUMA."""
    on: dict[str, dict[int, int]] = defaultdict(dict)
    zones: dict[str, dict[str, None]] = defaultdict(dict)
    for bind in binds:
        devices = on[bind.node]
        zones[bind.node].update((share.zone, None) for share in bind.zones)
        for device in bind.devices:
            devices[device.index] = devices.get(device.index, 0) + device.milli
    shown = [f"{node}{_devices(devices, sorted(zones[node]))}" for node, devices in list(on.items())[:SHOWN]]
    return ", ".join(shown) + (f" and {counted(len(on) - len(shown), 'more node')}" if len(on) > len(shown) else "")


def _devices(devices: dict[int, int], zones: list[str]) -> str:
    named = [f"zone{'s' if len(zones) > 1 else ''} {', '.join(zones)}"] if zones else []
    if not devices:
        return f" ({named[0]})" if named else ""
    whole = _ranges(sorted(index for index, milli in devices.items() if milli >= MILLI))
    shares = [f"{milli / MILLI:g} of {index}" for index, milli in sorted(devices.items()) if milli < MILLI]
    return f" (GPU {', '.join(whole + shares + named)})"


def _ranges(indices: list[int]) -> list[str]:
    """``["0-3", "6"]`` of 0, 1, 2, 3, 6."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return [str(first) if first == last else f"{first}-{last}" for first, last in runs]


def landing(move: Move) -> str:
    """``node-1``, with the NUMA zones where they count."""
    return f"{move.target}{_devices({}, [share.zone for share in move.zones])}"


def nodes_of(nodes: list[str]) -> str:
    """``node-1 x3, node-2`` and how many nodes more."""
    counts = Counter(nodes)
    shown = [node if count == 1 else f"{node} x{count}" for node, count in list(counts.items())[:SHOWN]]
    more = len(counts) - len(shown)
    return ", ".join(shown) + (f" and {counted(more, 'more node')}" if more else "")


def arrows(moves: list[tuple[str, str]]) -> str:
    """``a -> b x2, a -> c`` and how many more."""
    counts = Counter(moves)
    shown = [
        f"{source} -> {target}" + (f" x{n}" if n > 1 else "") for (source, target), n in list(counts.items())[:SHOWN]
    ]
    return ", ".join(shown) + (f" and {len(counts) - SHOWN} more" if len(counts) > SHOWN else "")


def helped(gangs: tuple[str, ...]) -> str:
    """The gangs that something is done for."""
    more = len(gangs) - SHOWN
    return ", ".join(gangs[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def all_helped(of_each: Iterable[tuple[str, ...]]) -> str:
    """The gangs that several things are done for."""
    return helped(tuple(dict.fromkeys(gang for gangs in of_each for gang in gangs)))


def yes_no(value: bool) -> str:
    """``yes`` or ``no``."""
    return "yes" if value else "no"
