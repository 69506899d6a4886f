"""A study keeps what ended, whatever becomes of the process that runs it."""

from dataclasses import replace
from pathlib import Path

import pytest

from kai_solver.errors import InputError
from kai_solver.lab.runs import Definition, Improvement, InstanceFile, Outcome, Study, Task
from kai_solver.lab.runs.running import blank
from kai_solver.modelfiles import load_model

MONDAY = Path(__file__).parents[3] / "instances" / "monday-morning.yaml"
ASKED = Definition("compare", (InstanceFile("monday", MONDAY, "abc"),), (load_model("greedy-only"),), (1, 2, 3))


def _outcome(task: Task) -> Outcome:
    return Outcome(blank(task, "ok"), (Improvement(0.5, "pending-gangs", 1.0, None, "greedy"),))


def test_a_study_resumes_with_what_is_missing(tmp_path: Path) -> None:
    with Study.create(tmp_path / "study", ASKED) as study:
        first, *others = study.missing()
        study.add(_outcome(first))
    again = Study.create(tmp_path / "study", ASKED)
    assert list(again.missing()) == others
    assert [record.run for record in again.records] == [first.run]
    assert again.improvements(first.run) == _outcome(first).improvements


def test_a_torn_last_line_is_as_if_that_run_had_never_been(tmp_path: Path) -> None:
    with Study.create(tmp_path / "study", ASKED) as study:
        for task in study.missing():
            study.add(_outcome(task))
    runs = tmp_path / "study" / "runs.jsonl"
    runs.write_bytes(runs.read_bytes()[:-20])
    with Study.open(tmp_path / "study") as torn:
        assert len(torn.records) == 2
        [last] = torn.missing()
        torn.add(_outcome(last))
    whole = Study.open(tmp_path / "study")
    assert [record.run for record in whole.records] == [task.run for task in study_tasks()]


def study_tasks() -> list[Task]:
    from kai_solver.lab.runs import tasks_of

    return list(tasks_of(ASKED))


def test_a_lost_run_is_done_again_and_counted_once(tmp_path: Path) -> None:
    with Study.create(tmp_path / "study", ASKED) as study:
        first, *_ = study.missing()
        study.add(Outcome(blank(first, "lost", "the worker went away")))
        assert first.run in {task.run for task in study.missing()}
        study.add(_outcome(first))
    found = Study.open(tmp_path / "study")
    assert [record.status for record in found.records] == ["ok"]
    assert found.frames().runs.height == 1


def test_two_processes_cannot_add_to_one_study(tmp_path: Path) -> None:
    with Study.create(tmp_path / "study", ASKED), pytest.raises(InputError, match="another process"):
        Study.open(tmp_path / "study").__enter__()


def test_a_study_of_something_else_is_refused_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    with Study.create(tmp_path / "study", ASKED) as study:
        study.add(_outcome(next(study.missing())))
    with pytest.raises(InputError, match="study of something else"):
        Study.create(tmp_path / "study", replace(ASKED, seeds=(1,)))
    larger = Study.create(tmp_path / "study", replace(ASKED, seeds=(1, 2, 3, 4)))
    assert len(larger.records) == 1
    assert len(list(larger.missing())) == 3


def test_a_study_that_has_measured_nothing_may_become_another_one(tmp_path: Path) -> None:
    Study.create(tmp_path / "study", ASKED)
    assert len(list(Study.create(tmp_path / "study", replace(ASKED, seeds=(7,))).missing())) == 1


def test_a_study_of_another_version_is_refused_with_the_cure(tmp_path: Path) -> None:
    Study.create(tmp_path / "study", ASKED)
    path = tmp_path / "study" / "study.yaml"
    path.write_text(path.read_text().replace("kai-study/v1", "kai-study/v2"))
    with pytest.raises(InputError, match=r"'kai-study/v2': this kai-solver reads kai-study/v1\. Go on with it in"):
        Study.open(tmp_path / "study")


def test_a_definition_is_read_as_it_was_written(tmp_path: Path) -> None:
    Study.create(tmp_path / "study", ASKED)
    found = Study.open(tmp_path / "study").definition
    assert replace(found, families={}) == ASKED


def test_tables_have_their_columns_without_any_run(tmp_path: Path) -> None:
    with Study.create(tmp_path / "study", ASKED) as study:
        frames = study.frames()
    assert frames.runs.columns[:3] == ["run", "command", "instance"]
    assert frames.stages.columns == ["run", "position", "name", "value", "bound", "gap", "is_proven"]
    assert frames.improvements.columns == ["run", "at_s", "stage", "value", "bound", "found_by"]
    assert (tmp_path / "study" / "runs.parquet").is_file()


def test_what_is_no_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no study"):
        Study.open(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        Study.create(tmp_path, ASKED)
