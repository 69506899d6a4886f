"""Plans in words: pure functions from plans to phrases."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from math import isfinite

from kai_solver.domain import Bind, Blocker, Move, Pending, Plan, PodStatus, Proof, Snapshot, Stage
from kai_solver.units import MILLI, counted, format_amount

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
    if len(plan.pending) == 1:
        proofs = ", proven" if proven else ", not proven"
    return (
        f"{counted(len({gang for gang, _ in plan.admitted}), 'gang')} admitted{by}; "
        f"{counted(len(plan.binds), 'pod')} bound, {len(plan.moves):,} moved, {len(plan.evictions):,} evicted; "
        f"{counted(len(plan.pending), 'gang')} pending{proofs}"
    )


def is_claimed(stage: Stage) -> bool:
    """Whether a bound was proven for ``stage``: 0 below another value says nothing, as no stage can be less."""
    return stage.optimal or stage.bound > 0 or (stage.value <= 0 and isfinite(stage.bound))


def bound_words(stage: Stage) -> tuple[str, str]:
    """The bound, and the gap to it: ``proven``, or a part of the bound; ``-`` where no bound is claimed."""
    if not is_claimed(stage):
        return "-", "-"
    if stage.optimal:
        return f"{stage.bound:g}", "proven"
    return f"{stage.bound:g}", "-" if stage.gap is None else f"{stage.gap:.1%}"


_POD_NAME = re.compile(r"\bpod [^\s/]*/[^\s:]+")


def same_cause(pending: Iterable[Pending]) -> list[list[Pending]]:
    """Pending gangs by reason, message (less the gang's own name) and proof, the largest group first."""
    groups: dict[object, list[Pending]] = defaultdict(list)
    for entry in pending:
        groups[entry.reason, without_name(entry.gang, entry.message), entry.proof].append(entry)
    return sorted(groups.values(), key=len, reverse=True)


def without_name(gang: str, message: str) -> str:
    """The message without the names of the gang and of its pods, where they stand as words of their own."""
    name = re.escape(gang.rpartition("/")[2])
    return re.sub(rf"(?<![\w.-]){name}(?![\w.-])", "*", _POD_NAME.sub("pod *", message))


def pending_lines(
    gangs: list[Pending], names: Mapping[str, str], *, blockers: int | None, verbose: bool = False
) -> list[str]:
    """Lines about gangs that wait for the same reason.

    ``names``: of gangs, for people; ``blockers``: how many to name, None all; ``verbose``: the methods of the proof.
    """
    first = gangs[0]
    shown = ", ".join(names.get(entry.gang, entry.gang) for entry in gangs[:SHOWN])
    shown += f" and {counted(len(gangs) - SHOWN, 'more gang')}" if len(gangs) > SHOWN else ""
    lines = [f"  {shown}: {first.reason.value}"]
    lines += [f"      {text}" for text in proof_lines(first.proof, several=len(gangs) > 1, blockers=blockers)]
    lines += [f"      proof by {first.proof.method}"] if verbose and first.proof.method else []
    return lines + [f"      {text.strip()}" for text in first.message.splitlines() if text.strip(" .")]


def proof_lines(proof: Proof, *, several: bool = False, blockers: int | None = None) -> list[str]:
    """What is proven of a gang that waits, or of each of ``several``, and what stands in its way."""
    it = "any of them" if several else "it"
    everything = "" if _is_ever(proof) else f" beside {_BESIDE[proof.beside]}"
    if proof.state == "proven":
        head = f"No plan can run {it}{everything}"
    elif proof.at_most is not None:
        gangs, most = proof.at_most.gangs, proof.at_most.most
        these = "these" if several else "this one"
        head = f"Of {gangs:,} gangs that wait, {these} among them, at most {most:,} can run beside {_BESIDE['plan']}"
    else:
        head = _NOT_PROVEN[proof.state]
    shown = [in_the_way(blocker) for blocker in proof.blocking[:blockers]]
    left = len(proof.blocking) - len(shown)
    if not shown or (proof.state != "proven" and proof.at_most is not None):
        return [f"{head}."]
    if len(proof.blocking) == 1 and proof.state == "proven":
        return [f"{head}: {shown[0]}."]
    change = "At least one of these must change" if proof.state == "proven" else "In its way"
    more = [f"- and {left} more"] if left else []
    return [f"{head}. {change}:", *(f"- {text}" for text in shown), *more]


_BESIDE = {"earlier": "what was admitted before it", "plan": "all that this plan admits"}
_NOT_PROVEN = {
    "unknown": "Not proven: neither a way to run it was found nor a proof that there is none",
    "unasked": "Not proven: this model looks for no proofs",
}
_EVER = "even if nothing else ran"


def _is_ever(proof: Proof) -> bool:
    """Whether what blocks does so on an empty cluster."""
    return bool(proof.blocking) and all(
        _EVER in b.have or b.kind in ("gang", "queue", "pod", "pods", "topology") or b.name == "largest node"
        for b in proof.blocking
    )


def in_the_way(blocker: Blocker, *, of_gang: bool = False) -> str:
    """``it needs 14 pods of 8 GPUs, and the cluster has room for 12; 16 GPUs short``.

    ``of_gang``: says of room that not all of the cluster is meant, where that is so.
    """
    kind, name, need, have = blocker.kind, blocker.name, blocker.need, blocker.have
    where = blocker.where or "the cluster"
    # There may be GPUs enough; and what is less than enough says by how much.
    is_amount = blocker.resource and blocker.short and kind != "row" and not have.startswith("less than")
    short = f"; {format_amount(blocker.resource, blocker.short)} short" if is_amount else ""
    if kind in _CAPS:
        return f"it needs {need}, and the {_CAPS[kind]} of queue {name} is {have}{short}"
    if need == "1 node":  # of an attempt: how many nodes have what a pod needs
        return f"{have} have {name}" if kind == "resource" else f"{name}: {have} are left"
    if kind == "resource":
        is_part = of_gang and have.startswith("room for") and _EVER not in have
        taken = " that this gang may take" if is_part else ""
        return f"it needs {need}, and {where} has {have}{taken}{short}"
    return _SAID.get(kind, _FOUND).format(name=name, need=need, have=have, where=where) + short


_CAPS = {"queue-limit": "limit", "queue-quota": "quota", "fair-share": "fair share"}
_FOUND = "it needs {need}, and finds {have}"
_SAID = {
    "gang": "it {have}",
    "queue": "its queue {name}: {have}",
    "topology": "{name}",
    "pods": "it needs {need} pods, and {have} are ready",
    "pod": "pod {name} cannot start: {have}",
}


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


def helped(gangs: tuple[str, ...], names: Mapping[str, str]) -> str:
    """The gangs that something is done for."""
    more = len(gangs) - SHOWN
    return ", ".join(names.get(gang, gang) for gang in gangs[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def all_helped(of_each: Iterable[tuple[str, ...]], names: Mapping[str, str]) -> str:
    """The gangs that several things are done for."""
    return helped(tuple(dict.fromkeys(gang for gangs in of_each for gang in gangs)), names)
