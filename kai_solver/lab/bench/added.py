"""What CP-SAT adds to what greedy alone reaches, stage by stage, and when."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kai_solver.lab.bench.compare import grouped, typical
from kai_solver.lab.bench.figures import DISRUPTION, kind_gap, kind_sum
from kai_solver.lab.bench.measure import PLACED, Run

PREFERENCE = ("nodes-opened",)
NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Added:
    """A row in words; ``*_s`` are seconds of the cycle."""

    instance: str
    budget_s: float
    greedy: str
    greedy_s: float
    admission: str
    disruption: str
    preference: str
    decide_s: float
    when: str


def added(runs: Sequence[Run], model: str, floor: str) -> tuple[Added, ...]:
    """A row for each instance and budget that ``model`` and ``floor`` (the greedy) were both measured on."""
    groups = grouped(runs)
    rows = []
    for key, of in groups.items():
        base = groups.get(key._replace(model=floor))
        if key.model == model and base:
            rows.append(_added(typical(of), typical(base)))
    return tuple(rows)


def _added(ours: Run, floor: Run) -> Added:
    record = ours.record
    draw = f" (seed {record.draw})" if record.draw != 1 else ""
    return Added(
        instance=record.instance + draw,
        budget_s=record.budget_s,
        greedy=_outline(floor),
        greedy_s=floor.record.solve_s,
        admission=_admission(ours, floor),
        disruption=_kinds(ours, floor, DISRUPTION),
        preference=_kinds(ours, floor, PREFERENCE),
        decide_s=record.solve_s,
        when=_when(ours),
    )


def _outline(run: Run) -> str:
    record = run.record
    said = [f"{_placed(run):,} placed", f"{record.evicted_pods:,} evicted", f"{record.moved_pods:,} moved"]
    proven = f"{record.pending_proven:,} of {record.pending:,} pending proven"
    return ", ".join([*said, proven] if record.pending else said)


def _placed(run: Run) -> int:
    return round(run.measure(PLACED) or 0)


def _admission(ours: Run, floor: Run) -> str:
    more, proofs = _placed(ours) - _placed(floor), ours.record.pending_proven - floor.record.pending_proven
    parts = [f"{more:+,} gangs"] if more else []
    parts += [f"{proofs:+,} proofs"] if proofs else []
    return ", ".join(parts) or NOTHING


def _kinds(ours: Run, floor: Run, kinds: Sequence[str]) -> str:
    """Changes of value, and how far they are proven. Where other gangs are admitted, costs do not compare."""
    if _placed(ours) != _placed(floor):
        return "other gangs, other costs" + _proof(ours, kinds)
    parts = []
    for kind in kinds:
        value, bound = kind_sum(ours.record.stages, kind)
        before, before_bound = kind_sum(floor.record.stages, kind)
        name = kind.replace("-", " ")
        change = f"{name} {before:,.0f} to {value:,.0f}" if value != before else ""
        if (bound > before_bound or change) and value:
            change = f"{change or f'{name} {value:,.0f}'}{_proof(ours, [kind])}"
        parts += [change] if change else []
    return ", ".join(parts) or NOTHING


def _proof(run: Run, kinds: Sequence[str]) -> str:
    stages = run.record.stages
    gap = kind_gap(stages, kinds)
    said = "proven" if gap == 0 else f"gap {gap:.1%}" if any(kind_sum(stages, k)[1] for k in kinds) else "no bound"
    return f" ({said})"


def _when(run: Run) -> str:
    """When the search last improved a stage, and when it had proven the last one of those that it looked at."""
    best, proof = moments(run)
    said = [f"best {max(best.values()):.2f} s"] if best else []
    if proof and all(at_s is not None for at_s in proof.values()):
        said.append(f"proven {max(at_s for at_s in proof.values() if at_s is not None):.2f} s")
    return ", ".join(said)


def moments(run: Run) -> tuple[dict[str, float], dict[str, float | None]]:
    """By stage that was heard of before the end: when its value last fell; when it was proven, None: it was not."""
    best: dict[str, float] = {}
    proof: dict[str, float | None] = {}
    values: dict[str, float] = {}
    for one in run.improvements:
        if one.at_s >= run.record.solve_s:  # said of all stages at the end, found or not
            continue
        if one.value is not None and one.value < values.get(one.stage, math.inf):
            values[one.stage] = one.value
            best[one.stage] = one.at_s
        is_proven = one.value is not None and one.bound is not None and one.bound >= one.value
        if proof.get(one.stage) is None:
            proof[one.stage] = one.at_s if is_proven else None
    return best, proof
