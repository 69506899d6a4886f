"""Admission ``max-gpus``: within a priority stratum, the gangs are admitted that together use the most GPUs.

All that the greedy admitted and all that it refused become optional arrivals of one model; one stage a stratum, from
the highest down, minimises the GPUs left unserved. Queues bound what may be taken, not their order.
"""

from collections.abc import Sequence

from kai_solver.domain import Action, Proof
from kai_solver.model.build import Formulation, formulate
from kai_solver.model.decode import Decision, expand, hint_values
from kai_solver.model.joint import Joint
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.search.apply import apply
from kai_solver.search.joint_input import JointModelInput
from kai_solver.search.session import SessionResult, StageObjective
from kai_solver.search.solver_client import SolverClient
from kai_solver.units import CPU, GPU

NO_UNITS: frozenset[int] = frozenset()


class MaxGpuAdmission:
    """Asks the solver once, after the greedy's allocate action."""

    def __init__(self, solver_client: SolverClient) -> None:
        self.solver_client = solver_client

    def improve(self, outcome: Outcome, waiting: Sequence[AllocationUnit]) -> Proof:
        """Admit others than ``outcome`` did, or more of them, where that serves more GPUs; in place.

        Returns
        -------
        Proof
            For those left waiting: proven where no choice serves more GPUs in any stratum.
        """
        model_input = JointModelInput(outcome)
        allocation_units = [(a.allocation_unit, a.action) for a in outcome.admissions] + [
            (allocation_unit, Action.ALLOCATE) for allocation_unit in waiting
        ]
        model = self.solver_client.model
        if not self.solver_client.may_build(model_input.size_estimate(allocation_units, NO_UNITS)):
            return Proof("unknown", "budget")
        joint = model_input.join(allocation_units, NO_UNITS, NO_UNITS, NO_UNITS, (), may_move=False, optional=True)
        form = formulate(joint, model.families, ())
        result = self._search(outcome, joint, form)
        is_proven = bool(result.stages) and all(stage.optimal for stage in result.stages)
        is_proven = is_proven and not outcome.state.is_crossed
        if result.improved and result.values is not None:
            is_proven &= _apply(outcome, joint, expand(form.variables, result.values), allocation_units)
        return Proof("proven" if is_proven else "unknown", "most GPUs" if is_proven else "budget")

    def _search(self, outcome: Outcome, joint: Joint, form: Formulation) -> SessionResult:
        places = {pod: place.node for pod, place in outcome.state.places.items()}
        hint = self.solver_client.complete(form, hint_values(form.variables, places, set(), set(), set()))
        return self.solver_client.minimize(form, _unserved(joint, form), hint)


def _apply(
    outcome: Outcome, joint: Joint, decision: Decision, allocation_units: list[tuple[AllocationUnit, Action]]
) -> bool:
    """False where the solver's choice could not be seated, and greedy's stands."""
    admitted = [allocation_units[number] for number in decision.admitted]
    if not apply(outcome.state, outcome.pool, joint, decision, admitted):
        return False
    before = {a.allocation_unit.pods for a in outcome.admissions}
    outcome.replace_admissions(
        [
            Admission(allocation_unit, action, by_solver=allocation_unit.pods not in before)
            for allocation_unit, action in admitted
        ]
    )
    return True


def _unserved(joint: Joint, form: Formulation) -> list[StageObjective]:
    """GPUs (thousandths) of arrivals left out, by stratum from the highest; then CPU, for work without GPUs."""
    gangs = joint.problem.gangs
    strata = sorted({gangs[a.gang].gang.priority for a in joint.arrivals}, reverse=True)
    stages: list[StageObjective] = []
    for stratum in strata:
        pairs = zip(joint.arrivals, form.variables.admit, strict=True)
        mine = [(a, v) for a, v in pairs if gangs[a.gang].gang.priority == stratum]
        for name, resource in (("gpus", GPU), ("cpu", CPU)):
            terms = tuple((-a.charge[resource], v) for a, v in mine if a.charge[resource])
            constant = sum(a.charge[resource] for a, _ in mine)
            if terms:
                stages.append(StageObjective(f"unserved-{name}/{stratum}", terms, constant))
    return stages
