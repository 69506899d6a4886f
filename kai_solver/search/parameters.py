"""CP-SAT's parameters, chosen from a solver model's ``[search]`` and the size of the question.

Source of the presolve profiles: measured on assignment models of 20,000 to 100,000 Booleans with two workers
(OR-tools 9.15). With the default profile, presolve eats a budget of seconds (100,000 Booleans: no search within 10 s,
and not even the hint is returned); with ``light`` the search starts after 0.2 s at 20,000 and 1.4 s at 100,000.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from kai_solver.domain import CpSatValue, SearchSpec
from kai_solver.errors import ModelFileError

Presolve = Literal["light", "default", "none"]
Engine = Literal["cp-sat", "scip"]
"""What searches. Which gangs to evict for so many GPUs by rack, with no node in it (`model.victim_model`), is a matter
of the LP, and SCIP's: on 500 loaded nodes it proves all four stages in 4.8 s (1.1 s with nodes folded further), CP-SAT
in 12 s (2026-11-21, 2 cores, load 8). All else is CP-SAT's.
"""
ParameterValue = CpSatValue

PRESOLVE_PROFILES: Mapping[Presolve, Mapping[str, ParameterValue]] = {
    "light": {"max_presolve_iterations": 1, "cp_model_probing_level": 0, "symmetry_level": 0},
    "default": {},
    "none": {"cp_model_presolve": False, "cp_model_probing_level": 0, "symmetry_level": 0},
}

AUTO_LIGHT_FROM = 2_000
"""Variables from which ``auto`` means ``light``; below, the whole presolve costs milliseconds."""

_LARGEST_SEED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SolverParameters:
    """How one question is searched.

    Attributes
    ----------
    workers
        Search workers of the child.
    interleave
        Workers take turns in a fixed order: several workers, and still the same objective and bound in every run.
    deterministic_s
        Limit in deterministic seconds; infinity for none. With ``interleave`` CP-SAT counts it per worker.
    linearization_level
        0 no LP, 1 CP-SAT's default, 2 all that can be linear is.
    relative_gap
        Where the search may stop; such an answer is ``feasible`` with a bound, not ``optimal``.
    engine
        ``scip`` for models whose LP says most: see `Engine`.
    given
        CP-SAT's parameters that the model itself gives; they come last.
    """

    workers: int = 2
    seed: int = 0
    presolve: Presolve = "light"
    interleave: bool = False
    deterministic_s: float = math.inf
    linearization_level: int = 1
    relative_gap: float = 0.0
    engine: Engine = "cp-sat"
    given: Mapping[str, ParameterValue] = field(default_factory=dict, hash=False)

    @classmethod
    def choose(
        cls, search: SearchSpec, *, variables: int, seed: int = 0, seconds: float = math.inf, gap: float = 0.0
    ) -> "SolverParameters":
        """Choose for a question of ``variables`` variables.

        Parameters
        ----------
        seconds
            Time for the question. It becomes a limit of deterministic seconds where the model is deterministic; else
            it is left to the deadline.

        Raises
        ------
        ModelFileError
            If the model names a presolve profile that does not exist.
        """
        return cls(
            workers=search.workers,
            seed=seed,
            presolve=_profile(search.presolve, variables),
            interleave=search.deterministic and search.workers > 1,
            deterministic_s=seconds if search.deterministic else math.inf,
            relative_gap=gap,
            given=search.parameters,
        )

    def as_mapping(self) -> dict[str, ParameterValue]:
        """Names and values as CP-SAT's ``SatParameters``, or SCIP's parameter files, know them."""
        if self.engine == "scip":
            return {
                "limits/gap": self.relative_gap,
                "randomization/randomseedshift": self.seed % _LARGEST_SEED,
                "separating/maxroundsroot": 1,  # 2.2 s of CPU in place of 3.6 s on 500 loaded nodes (2026-11-21)
            }
        values: dict[str, ParameterValue] = {
            "num_workers": self.workers,
            "random_seed": self.seed % _LARGEST_SEED,
            "linearization_level": self.linearization_level,
            **PRESOLVE_PROFILES[self.presolve],
            **self.given,
        }
        if self.interleave:
            values["interleave_search"] = True
        if self.deterministic_s < math.inf:
            values["max_deterministic_time"] = self.deterministic_s
        if self.relative_gap:
            values["relative_gap_limit"] = self.relative_gap
        return values


def _profile(name: str, variables: int) -> Presolve:
    if name == "auto":
        return "light" if variables >= AUTO_LIGHT_FROM else "default"
    for profile in get_args(Presolve):
        if name == profile:
            return profile  # type: ignore[no-any-return]
    known = ", ".join(("auto", *get_args(Presolve)))
    raise ModelFileError(f"unknown presolve profile {name!r}", field="search.presolve", cure=f"Known: {known}.")
