"""Settings: file, environment, flags; every mistake is named."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from kai_solver.controller.settings import ControllerSettings, load_settings, settings_text
from kai_solver.errors import InputError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "settings.yaml"
    path.write_text("node_pool: a100\nperiod: 500ms\nevictions:\n  per_cycle: 7\n")
    return path


def test_defaults_are_kais() -> None:
    found = load_settings()
    assert (found.scheduler_name, found.default_queue, found.period) == ("kai-scheduler", "default-queue", 1.0)
    assert found.lease_name == "kai-solver-kai-scheduler"


def test_a_file_says_what_differs(file: Path) -> None:
    found = load_settings(file)
    assert (found.node_pool, found.period, found.evictions.per_cycle, found.evictions.per_queue) == ("a100", 0.5, 7, 0)
    assert found.lease_name == "kai-solver-kai-scheduler-a100"


def test_a_lease_has_a_name_that_kubernetes_allows() -> None:
    assert load_settings(node_pool="A100_80.G").lease_name == "kai-solver-kai-scheduler-a100-80.g"


def test_the_environment_goes_before_the_file_and_flags_before_both(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAI_SOLVER_NODE_POOL", "h100")
    monkeypatch.setenv("KAI_SOLVER_EVICTIONS__PER_QUEUE", "3")
    found = load_settings(file)
    assert (found.node_pool, found.evictions.per_cycle, found.evictions.per_queue) == ("h100", 7, 3)
    assert load_settings(file, node_pool="b200", dry_run=None).node_pool == "b200"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("period: soon", "period"),
        ("period: -1", "period"),
        ("budget: 0", "budget"),
        ("evictions: {per_cycle: many}", "evictions.per_cycle"),
        ("grouping: mine", "grouping"),
        ("scheduler_name: ''", "scheduler_name"),
        ("leadership: {live: 10s, renew: 10s}", "leadership"),
        ("leadership: {renew: 2s}", "leadership"),
        ("leadership: {retry: 0}", "leadership"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(tmp_path: Path, text: str, field: str) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_settings(path)
    assert caught.value.field == field
    assert caught.value.file == str(path)
    assert "--show-settings" in caught.value.cure


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("perriod: 1s", "Did you mean period?"),
        ("evictions: {per_cycl: 1}", "Did you mean evictions.per_cycle?"),
        ("xyz: 1", "Known keys: access.queues, access.spares, accounting, admission.bind_address"),
    ],
)
def test_a_setting_that_does_not_exist_is_named_with_the_nearest(tmp_path: Path, text: str, cure: str) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_settings(path)
    assert "unknown setting" in str(caught.value)
    assert caught.value.cure.startswith(cure)


@pytest.mark.parametrize("text", ["- a", "7", "{", "1: 2"])
def test_what_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    with pytest.raises(InputError):
        load_settings(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none"):
        load_settings(tmp_path / "none")


def test_every_key_says_what_it_does() -> None:
    def check(model: type[BaseModel]) -> None:
        for name, field in model.model_fields.items():
            assert field.description, name
            if isinstance(field.default, BaseModel):
                check(type(field.default))

    check(ControllerSettings)


def test_settings_are_shown_as_the_file_that_sets_them(tmp_path: Path, file: Path) -> None:
    shown = tmp_path / "shown.yaml"
    shown.write_text(settings_text(load_settings(file)))
    assert load_settings(shown).model_dump() == load_settings(file).model_dump()
    assert "# The most pods evicted in one cycle" in shown.read_text()
