"""A joint problem as an integer model, with or without any of its constraint families."""

from collections.abc import Iterable
from dataclasses import dataclass

from kai_solver.domain import SEATING
from kai_solver.model.families import family
from kai_solver.model.joint import Joint
from kai_solver.model.leftover import invite_guests
from kai_solver.model.spec import ModelSpec, Var
from kai_solver.model.stages import Objective, stages
from kai_solver.model.variables import Variables


@dataclass(frozen=True, slots=True)
class Formulation:
    """The model, its variables, and its objectives in order; for each of these the stage that it unfolds."""

    spec: ModelSpec
    variables: Variables
    objectives: tuple[Objective, ...]
    stage_of: tuple[str, ...] = ()

    @property
    def apart(self) -> list[Var]:
        """Variables that are not to be folded with others: what they choose, as a domain, keeps its meaning."""
        return [var for choice in self.variables.choices for var in choice.chosen.values()]


def formulate(joint: Joint, families: Iterable[str], stage_names: Iterable[str]) -> Formulation:
    """Build the model of ``joint`` with the named families and stages."""
    spec = ModelSpec()
    variables = Variables(joint, spec)
    names = [name for name in stage_names if name not in SEATING]
    if "leftover" in names:
        invite_guests(variables)
    for name in families:
        family(name)(variables)
    found = [(name, objective) for name in names for objective in stages(name)(variables)]
    return Formulation(spec, variables, tuple(o for _, o in found), tuple(name for name, _ in found))
