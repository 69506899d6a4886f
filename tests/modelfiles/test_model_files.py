"""Solver models: the shipped ones, inheritance, hashes, and errors that name the key and what is allowed."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from kai_solver.domain import ACTIONS, FAMILIES, RULES, Action
from kai_solver.errors import ModelFileError
from kai_solver.modelfiles import available_models, extensions, load_model


def write(folder: Path, text: str, name: str = "mine") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def refused(folder: Path, text: str) -> ModelFileError:
    path = write(folder, text)
    with pytest.raises(ModelFileError) as caught:
        load_model(path)
    assert caught.value.file == str(path)
    assert caught.value.cure
    return caught.value


def test_the_promised_models_ship() -> None:
    assert available_models()[0] == "default"
    assert {"default", "fast", "deterministic", "greedy-only", "max-utilization"} <= set(available_models())


@pytest.mark.parametrize("name", available_models())
def test_shipped_models_are_sound(name: str) -> None:
    model = load_model(name)
    assert model.name == name
    assert model.summary
    assert model.actions == ACTIONS
    assert set(model.families) == set(FAMILIES)
    assert len(model.hash) == 12
    assert sum(stage.share for stage in model.stages) + model.search.questions_share <= 1.0 + 1e-9


def test_families_are_named_once_and_rows_keep_their_order() -> None:
    """CP-SAT proves one thing or another in its time by the order of rows: a rule that moves house keeps its place."""
    assert len(set(FAMILIES)) == len(FAMILIES)
    assert set(RULES) <= set(FAMILIES)
    assert FAMILIES[2:4] == ("capacity", "numa")
    assert FAMILIES[13:19] == ("ports", "placement", "budgets", "tenants", "spares", "gpurows")


def test_what_sets_the_shipped_models_apart() -> None:
    assert not load_model("greedy-only").search.enabled
    deterministic = load_model("deterministic").search
    assert (deterministic.workers, deterministic.deterministic) == (1, True)
    assert load_model("max-utilization").admission == "max-gpus"
    assert load_model("fast").budget_s < load_model("default").budget_s


@pytest.mark.parametrize("setting", ["max_variables = 1000", "neighbourhoods = 0.2"])
def test_a_setting_that_is_gone_is_told_with_the_reason(setting: str, tmp_path: Path) -> None:
    error = refused(tmp_path, f'extends = "default"\nname = "mine"\n[search]\n{setting}\n')
    name = setting.split()[0]
    assert f"the setting '{name}' is gone: " in error.problem
    assert error.cure == f"Delete {name}"


def test_what_a_move_costs_is_seconds_or_durations(tmp_path: Path) -> None:
    assert (load_model().moves.checkpoint_s, load_model().moves.restart_s) == (240.0, 60.0)
    path = write(tmp_path, 'extends = "default"\n[moves]\ncheckpoint_s = "10m"\nrestart_s = 0')
    assert (load_model(path).moves.checkpoint_s, load_model(path).moves.restart_s) == (600.0, 0.0)
    assert "moves.restart_s" in str(refused(tmp_path, 'extends = "default"\n[moves]\nrestart_s = -1'))


def test_hashes_tell_models_apart() -> None:
    hashes = {load_model(name).hash for name in available_models()}
    assert len(hashes) == len(available_models())


def test_a_hash_is_of_the_content_not_of_its_writing(tmp_path: Path) -> None:
    plain = load_model(write(tmp_path, 'name = "m"\nbudget_s = 2.0\n[search]\nworkers = 3\n'))
    other = load_model(write(tmp_path, '# a comment\nbudget_s = "2s"\nname = "m"\nsearch = {workers = 3}\n', "other"))
    changed = load_model(write(tmp_path, 'name = "m"\nbudget_s = 2.5\n[search]\nworkers = 3\n', "changed"))
    assert plain.hash == other.hash != changed.hash


def test_a_model_extends_another_key_by_key(tmp_path: Path) -> None:
    path = write(tmp_path, 'extends = "deterministic"\nname = "mine"\n[search]\nquestion_s = "250ms"\n')
    model = load_model(path)
    assert (model.search.question_s, model.search.workers) == (0.25, 1)
    assert model.budget_s == load_model("deterministic").budget_s


def test_a_model_extends_a_file_beside_it(tmp_path: Path) -> None:
    write(tmp_path, 'extends = "default"\nname = "base"\nbudget_s = 9\n', "base")
    assert load_model(write(tmp_path, 'extends = "base.toml"\nname = "mine"\n')).budget_s == 9


def test_a_ladder_may_be_shorter(tmp_path: Path) -> None:
    model = load_model(write(tmp_path, 'name = "m"\nladder = ["allocate", "reclaim"]\n'))
    assert model.actions == (Action.ALLOCATE, Action.RECLAIM)


@pytest.mark.parametrize("text", ['extends = "mine.toml"\nname = "m"\n', 'extends = 3\nname = "m"\n'])
def test_extending_itself_or_no_name_is_refused(tmp_path: Path, text: str) -> None:
    assert refused(tmp_path, text).field == "extends"


@pytest.mark.parametrize(
    ("text", "field", "allowed"),
    [
        ('name = "m"\nbudjet_s = 1\n', "budjet_s", "budget_s"),
        ('name = "m"\n[search]\nthreads = 1\n', "search.threads", "workers"),
        ('name = "m"\n[[stages]]\nname = "disruption"\nshere = 1\n', "stages[0].shere", "share"),
        ("summary = 'no name'\n", "name", ""),
        ('name = "../m"\n', "name", ""),
        ('name = "m\\n"\n', "name", ""),
        ('name = "m"\nbudget_s = 0\n', "budget_s", ""),
        ('name = "m"\nbudget_s = "soon"\n', "budget_s", "90s"),
        ('name = "m"\nbudget_s = nan\n', "budget_s", ""),
        ('name = "m"\nadmission = "lottery"\n', "admission", ""),
        ('name = "m"\nladder = ["climb"]\n', "ladder[0]", ""),
        ('name = "m"\nladder = ["reclaim", "allocate"]\n', "ladder", "allocate, consolidation"),
        ('name = "m"\nladder = []\n', "ladder", "allocate, consolidation"),
        ('name = "m"\nfamilies = ["gravity"]\n', "families", "capacity"),
        ('name = "m"\n[[stages]]\nname = "beauty"\n', "stages[0].name", "disruption"),
        ('name = "m"\n[search]\npresolve = "heavy"\n', "search.presolve", ""),
        ('name = "m"\n[search]\nworkers = 0\n', "search.workers", ""),
    ],
)
def test_a_slip_names_the_key_and_what_is_allowed(tmp_path: Path, text: str, field: str, allowed: str) -> None:
    error = refused(tmp_path, text)
    assert error.field == field
    assert allowed in error.cure


def test_the_allowed_values_are_named_in_the_error(tmp_path: Path) -> None:
    assert "'rank' or 'max-gpus'" in str(refused(tmp_path, 'name = "m"\nadmission = "lottery"\n'))


@pytest.mark.parametrize("data", [b"name = ", b"\xff\xfe", b"[" * 5000, b"x" * 2_000_000])
def test_what_is_no_toml_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(data)
    with pytest.raises(ModelFileError):
        load_model(path)


def test_an_unknown_model_suggests_one(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="Did you mean 'greedy-only'"):
        load_model("greedy_only")
    with pytest.raises(ModelFileError, match="cannot be read"):
        load_model(tmp_path / "none.toml")


def test_families_and_stages_of_other_packages_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        extensions.FAMILY_GROUP: [EntryPoint("power", "x:y", extensions.FAMILY_GROUP)],
        extensions.STAGE_GROUP: [EntryPoint("energy", "x:y", extensions.STAGE_GROUP)],
    }
    monkeypatch.setattr(extensions, "entry_points", lambda group: points[group])
    model = load_model(write(tmp_path, 'name = "m"\nfamilies = ["gang", "power"]\n[[stages]]\nname = "energy"\n'))
    assert model.families == ("gang", "power")
    assert [stage.name for stage in model.stages] == ["energy"]


def test_parameters_of_cp_sat_arrive_with_their_types(tmp_path: Path) -> None:
    text = """extends = "default"
[search.parameters]
linearization_level = 2
use_erwa_heuristic = true
restart_dl_average_ratio = 1
search_branching = "PORTFOLIO_SEARCH"
ignore_subsolvers = ["no_lp"]
"""
    assert load_model(write(tmp_path, text)).search.parameters == {
        "ignore_subsolvers": ["no_lp"],
        "linearization_level": 2,
        "restart_dl_average_ratio": 1.0,
        "search_branching": 2,
        "use_erwa_heuristic": True,
    }


@pytest.mark.parametrize(
    ("line", "problem", "cure"),
    [
        ("linearisation_level = 2", "is not a parameter of CP-SAT", "Did you mean linearization_level?"),
        ("zzz = 1", "is not a parameter of CP-SAT", "sat_parameters.proto"),
        ("max_time_in_seconds = 1", "is not for models: the time", "Delete max_time_in_seconds"),
        ("num_workers = 8", "it is search.workers", "Delete"),
        ("random_seed = 8", "it is the seed of the cycle", "Delete"),
        ("log_search_progress = true", "standard output", "Delete"),
        ("debug_crash_on_bad_hint = true", "is not a parameter of CP-SAT", ""),
        ("linearization_level = 2.5", "2.5 has the wrong type", "Give a whole number"),
        ("linearization_level = true", "True has the wrong type", "Give a whole number"),
        ("linearization_level = 3000000000", "has the wrong type", "less than 2,147,483,648"),
        ("use_erwa_heuristic = 1", "1 has the wrong type", "true or false"),
        ("restart_dl_average_ratio = 'much'", "'much' has the wrong type", "Give a number"),
        ("search_branching = 'BEST'", "'BEST' is none of its values", "AUTOMATIC_SEARCH"),
        ("ignore_subsolvers = 'no_lp'", "'no_lp' is not a list", "Give a list"),
    ],
)
def test_a_wrong_parameter_of_cp_sat_is_named_with_its_cure(tmp_path: Path, line: str, problem: str, cure: str) -> None:
    error = refused(tmp_path, f'name = "m"\n[search.parameters]\n{line}\n')
    assert error.field == f"search.parameters.{line.split()[0]}"
    assert problem in error.problem
    assert cure in error.cure


def test_parameters_are_in_the_hash_and_provenance_is_not(tmp_path: Path) -> None:
    plain = load_model(write(tmp_path, 'name = "m"\n', "plain"))
    given = load_model(write(tmp_path, 'name = "m"\n[search.parameters]\nlinearization_level = 2\n', "given"))
    told = load_model(write(tmp_path, 'name = "m"\n[provenance]\nstudy = "s"\nverdict = "better"\n', "told"))
    assert given.hash != plain.hash == told.hash
    assert refused(tmp_path, 'name = "m"\n[provenance]\nstudi = "s"\n').cure == "Did you mean study?"
