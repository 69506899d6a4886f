"""Parameters: every name exists in OR-tools, and every model's wish arrives."""

import math

import pytest

from kai_solver.domain import SearchSpec
from kai_solver.errors import ModelFileError
from kai_solver.search.parameters import AUTO_LIGHT_FROM, PRESOLVE_PROFILES, SolverParameters


@pytest.mark.parametrize("presolve", PRESOLVE_PROFILES)
def test_every_parameter_exists_in_sat_parameters_with_its_type(presolve: str) -> None:
    from ortools.sat.python import cp_model_helper

    known = cp_model_helper.SatParameters()
    everything = SolverParameters(
        interleave=True,
        deterministic_s=1.0,
        relative_gap=0.01,
        presolve=presolve,  # type: ignore[arg-type]
    )
    for name, value in everything.as_mapping().items():
        setattr(known, name, value)
        assert getattr(known, name) == value


@pytest.mark.parametrize(
    ("wish", "variables", "profile"),
    [
        ("auto", AUTO_LIGHT_FROM - 1, "default"),
        ("auto", AUTO_LIGHT_FROM, "light"),
        ("default", 10**6, "default"),
        ("none", 1, "none"),
        ("light", 1, "light"),
    ],
)
def test_the_presolve_profile_is_the_model_s_or_by_size(wish: str, variables: int, profile: str) -> None:
    assert SolverParameters.choose(SearchSpec(presolve=wish), variables=variables).presolve == profile


def test_an_unknown_profile_is_named() -> None:
    with pytest.raises(ModelFileError, match="unknown presolve profile 'heavy'"):
        SolverParameters.choose(SearchSpec(presolve="heavy"), variables=1)


def test_a_deterministic_model_has_deterministic_time_and_takes_turns() -> None:
    parameters = SolverParameters.choose(SearchSpec(deterministic=True, workers=2), variables=1, seed=4, seconds=0.5)
    values = parameters.as_mapping()
    assert values["interleave_search"] is True
    assert values["max_deterministic_time"] == 0.5
    assert values["random_seed"] == 4


def test_one_deterministic_worker_needs_no_turns() -> None:
    parameters = SolverParameters.choose(SearchSpec(deterministic=True, workers=1), variables=1, seconds=0.5)
    assert "interleave_search" not in parameters.as_mapping()


def test_a_model_under_wall_time_has_no_deterministic_limit() -> None:
    parameters = SolverParameters.choose(SearchSpec(workers=3), variables=1, seconds=0.5)
    assert parameters.deterministic_s == math.inf
    assert parameters.as_mapping()["num_workers"] == 3


def test_seeds_of_any_size_fit() -> None:
    assert 0 <= int(str(SolverParameters(seed=2**40 + 5).as_mapping()["random_seed"])) < 2**31


def test_what_the_model_gives_comes_last() -> None:
    search = SearchSpec(presolve="none", parameters={"cp_model_presolve": True, "linearization_level": 2})
    values = SolverParameters.choose(search, variables=1).as_mapping()
    assert (values["cp_model_presolve"], values["linearization_level"]) == (True, 2)
