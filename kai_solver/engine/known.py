"""What is known of an outcome: found once, and true for as long as it admits the same."""

from collections.abc import Sequence

from kai_solver.domain import SolverModel, Stage
from kai_solver.engine.counted import proven_by_count
from kai_solver.engine.stages import measured_stages, with_moved_work
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.search.joint_input import JointModelInput
from kai_solver.search.rights import Rights, rights_of


def disturbs(outcome: Outcome) -> bool:
    """Whether any gang was admitted for which others leave or move."""
    return any(admission.units for admission in outcome.admissions)


def places(outcome: Outcome) -> int:
    """Shapes of what was admitted, and of what could leave for it, times nodes."""
    problem, pool = outcome.state.problem, outcome.pool
    pods = [pod for admission in outcome.admissions for pod in admission.allocation_unit.pods]
    pods += [pod for unit in pool.units for pod in unit.pods] if pool is not None else []
    return len({problem.modelled_shape(pod) for pod in pods}) * len(problem.nodes)


class Known:
    """What several steps of a cycle ask of its outcome."""

    def __init__(self, model: SolverModel) -> None:
        self._model = model
        self._rights: tuple[list[Admission], int, Rights] | None = None
        self._variables: tuple[Rights, int] | None = None
        self._sums: tuple[Rights, tuple[Stage, ...] | None] | None = None

    def rights(self, outcome: Outcome) -> Rights:
        """What the stages may change: 0.14 s of CPU on openb (2026-11-23)."""
        known = self._rights
        if known is None or not self.has_rights(outcome):
            known = self._rights = outcome.admissions, outcome.version, rights_of(outcome)
        return known[2]

    def has_rights(self, outcome: Outcome) -> bool:
        """Whether `rights` costs nothing now."""
        known = self._rights
        return known is not None and known[0] is outcome.admissions and known[1] == outcome.version

    def measured(self, outcome: Outcome) -> dict[str, float]:
        """What ``outcome`` costs, by the stages that the model has."""
        return {stage.name: stage.value for stage in measured_stages(outcome, by_gpus=self._model.evicts_by_gpus)}

    def variables(self, outcome: Outcome) -> int:
        """Variables (about) of the joint model with all nodes."""
        rights, known = self.rights(outcome), self._variables
        if known is None or known[0] is not rights:
            allocation_units = [(a.allocation_unit, a.action) for a in outcome.admissions]
            size = JointModelInput(outcome).size_estimate(allocation_units, rights.movable)
            known = self._variables = rights, size
        return known[1]

    def is_least(self, outcome: Outcome) -> bool:
        """Whether no gang waits, and sums prove that no less work could leave."""
        return not outcome.waiting and disturbs(outcome) and self.counted(outcome) is not None

    def counted(self, outcome: Outcome) -> tuple[Stage, ...] | None:
        """The stages where sums prove them all (`proven_by_count`)."""
        rights, known = self.rights(outcome), self._sums
        if known is None or known[0] is not rights:
            known = self._sums = rights, self._count(outcome, rights)
        return known[1]

    def _count(self, outcome: Outcome, rights: Rights) -> tuple[Stage, ...] | None:
        names = [stage.name for stage in self._model.stages]
        measured = measured_stages(outcome, moves=self._model.moves)
        lost = [stage for stage in measured if stage.name == "moved-work" and stage.value]
        found = proven_by_count(outcome, rights, names, [s for s in measured if s.name != "moved-work"])
        if found is None or not self._is_proven_with(lost, found, outcome):
            return None
        return found

    def _is_proven_with(self, lost: Sequence[Stage], proven: Sequence[Stage], outcome: Outcome) -> bool:
        """Whether the moves lose the least work (``lost``), with the ``proven`` stages at their bounds."""
        return all(stage.optimal for stage in with_moved_work([*proven, *lost], outcome, self._model.moves))
