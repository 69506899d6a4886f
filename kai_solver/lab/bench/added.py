"""What CP-SAT adds to what greedy alone reaches, stage by stage, and when."""

from collections.abc import Sequence
from dataclasses import dataclass

from kai_solver.lab.bench.figures import DISRUPTION, kind_gap, kind_sum
from kai_solver.lab.bench.measure import Run
from kai_solver.lab.bench.stored import grouped

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
            rows.append(_added(_typical(of), _typical(base)))
    return tuple(rows)


def _typical(group: Sequence[Run]) -> Run:
    return sorted(group, key=lambda run: run.decide_s)[(len(group) - 1) // 2]


def _added(ours: Run, floor: Run) -> Added:
    draw = f" (seed {ours.draw})" if ours.draw != 1 else ""
    return Added(
        instance=ours.instance + draw,
        budget_s=ours.budget_s,
        greedy=_outline(floor),
        greedy_s=floor.decide_s,
        admission=_admission(ours, floor),
        disruption=_kinds(ours, floor, DISRUPTION),
        preference=_kinds(ours, floor, PREFERENCE),
        decide_s=ours.decide_s,
        when=_when(ours),
    )


def _outline(run: Run) -> str:
    said = [f"{run.placed:,} placed", f"{run.evicted:,} evicted", f"{run.moved:,} moved"]
    return ", ".join([*said, f"{run.proven:,} of {run.pending:,} pending proven"] if run.pending else said)


def _admission(ours: Run, floor: Run) -> str:
    more, proofs = ours.placed - floor.placed, ours.proven - floor.proven
    parts = [f"{more:+,} gangs"] if more else []
    parts += [f"{proofs:+,} proofs"] if proofs else []
    return ", ".join(parts) or NOTHING


def _kinds(ours: Run, floor: Run, kinds: Sequence[str]) -> str:
    """Changes of value, and how far they are proven. Where other gangs are admitted, costs do not compare."""
    if ours.placed != floor.placed:
        return "other gangs, other costs" + _proof(ours, kinds)
    parts = []
    for kind in kinds:
        (value, bound), (before, before_bound) = kind_sum(ours.stages, kind), kind_sum(floor.stages, kind)
        name = kind.replace("-", " ")
        change = f"{name} {before:,.0f} to {value:,.0f}" if value != before else ""
        if (bound > before_bound or change) and value:
            change = f"{change or f'{name} {value:,.0f}'}{_proof(ours, [kind])}"
        parts += [change] if change else []
    return ", ".join(parts) or NOTHING


def _proof(run: Run, kinds: Sequence[str]) -> str:
    gap = kind_gap(run.stages, kinds)
    said = "proven" if gap == 0 else f"gap {gap:.1%}" if any(kind_sum(run.stages, k)[1] for k in kinds) else "no bound"
    return f" ({said})"


def _when(run: Run) -> str:
    """When the last improvement and the last proof of the stages came."""
    best = [moment.best_s for moment in run.moments.values() if moment.best_s is not None]
    proof = [moment.proof_s for moment in run.moments.values()]
    said = [f"best {max(best):.2f} s"] if best else []
    if proof and all(at is not None for at in proof):
        said.append(f"proven {max(at for at in proof if at is not None):.2f} s")
    return ", ".join(said)
