"""A solver model that changes is read again without a restart; one that cannot be read changes nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kai_solver.controller.deciding import LOOK_S, Decider
from kai_solver.domain import Plan, Snapshot
from kai_solver.errors import ModelFileError
from kai_solver.units.resources import ResourceSchema

EMPTY = Snapshot(0.0, ResourceSchema(), (), (), ())


def write(path: Path, budget: float) -> None:
    path.write_text(f'extends = "greedy-only"\nbudget_s = {budget}\n')


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "mine.toml"
    write(found, 3.0)
    return found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def decider(path: Path, clock: Clock) -> Iterator[Decider]:
    with Decider(str(path), monotonic=clock) as found:
        yield found


def test_a_model_that_changes_is_used_from_the_next_look_on(decider: Decider, path: Path, clock: Clock) -> None:
    write(path, 7.0)
    assert isinstance(decider(EMPTY), Plan)
    assert decider.budget_s == 3.0, "it is not looked at in every cycle"
    clock.now += LOOK_S
    with capture_logs() as said:
        assert isinstance(decider(EMPTY), Plan)
    assert decider.budget_s == 7.0
    assert [entry["event"] for entry in said] == ["the model changed"]


@pytest.mark.parametrize("text", ["budget_s = ", "bugdet_s = 1", None])
def test_a_model_that_cannot_be_read_changes_nothing(
    decider: Decider, path: Path, clock: Clock, text: str | None
) -> None:
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    clock.now += LOOK_S
    with capture_logs() as said:
        assert isinstance(decider(EMPTY), Plan)
    assert decider.budget_s == 3.0
    assert [(entry["event"], entry["log_level"]) for entry in said] == [
        ("the model cannot be read; the previous one stays", "error")
    ]


def test_a_model_that_stays_is_not_made_anew(decider: Decider, path: Path, clock: Clock) -> None:
    engine = decider._engine
    path.touch()
    clock.now += LOOK_S
    decider(EMPTY)
    assert decider._engine is engine


def test_a_first_model_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError):
        Decider(str(tmp_path / "absent.toml"))
