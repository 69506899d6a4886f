"""Settings: file, environment, flags; every mistake is named."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from kai_solver.controller.settings import ControllerSettings, load_settings, settings_text
from kai_solver.controller.variables import OTHERS
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
    ("name", "cure"),
    [
        ("KAI_SOLVER_DRYRUN", "Did you mean KAI_SOLVER_DRY_RUN?"),
        ("kai_solver_dryrun", "Did you mean KAI_SOLVER_DRY_RUN?"),
        ("KAI_SOLVER_EVICTION__PER_CYCLE", "Did you mean KAI_SOLVER_EVICTIONS__PER_CYCLE?"),
        (
            "KAI_SOLVER_METRICS_PORT",
            "Did you mean KAI_SOLVER_METRICS_",
        ),  # a Service's is an address, as tcp://10.0.0.1:8080
        ("KAI_SOLVER_XYZ", "Remove it"),
    ],
)
def test_a_variable_that_is_no_setting_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, cure: str) -> None:
    monkeypatch.setenv(name, "3")
    with pytest.raises(InputError, match=f"^{name}: unknown setting") as caught:
        load_settings()
    assert caught.value.cure.startswith(cure)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        # What the kubelet states of Services (kubernetes/pkg/kubelet/envvars).
        ("SERVICE_HOST", "10.96.0.7"),
        ("SERVICE_PORT", "8080"),
        ("SERVICE_PORT_METRICS", "8080"),
        ("PORT", "tcp://10.96.0.7:8080"),
        ("PORT_8080_TCP", "tcp://10.96.0.7:8080"),
        ("PORT_8080_TCP_PROTO", "tcp"),
        ("PORT_8080_TCP_PORT", "8080"),
        ("PORT_8080_TCP_ADDR", "10.96.0.7"),
        ("ADMISSION_SERVICE_HOST", "fd00::7"),
        ("ADMISSION_SERVICE_PORT_HTTPS", "443"),
        ("METRICS_PORT_53_UDP", "udp://[fd00::7]:53"),
        # What others read.
        ("DEBUG", "1"),
        ("KERNELS", "/opt/kernels"),
        ("HOST", "node-1"),
    ],
)
def test_variables_of_services_and_of_others_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"KAI_SOLVER_{name}", value)
    assert load_settings().model_dump() == ControllerSettings().model_dump()


def test_a_variable_that_a_setting_names_may_have_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAI_SOLVER_PROMETHEUS", "http://user:secret@prometheus:9090")
    monkeypatch.setenv("KAI_SOLVER_PAST_USAGE__URL_VARIABLE", "KAI_SOLVER_PROMETHEUS")
    assert load_settings().past_usage.url_variable == "KAI_SOLVER_PROMETHEUS"


def test_a_variable_may_be_json_of_a_group_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAI_SOLVER_EVICTIONS", '{"per_cycle": 3}')
    monkeypatch.setenv("KAI_SOLVER_PAST_USAGE__ALLOCATED", '{"gpu": "up"}')
    found = load_settings()
    assert (found.evictions.per_cycle, found.past_usage.allocated.gpu) == (3, "up")
    monkeypatch.setenv("KAI_SOLVER_EVICTIONS", "many")
    with pytest.raises(InputError, match=r"^KAI_SOLVER_EVICTIONS: is not valid JSON"):
        load_settings()


def test_every_variable_that_something_reads_is_allowed() -> None:
    """Tests and programs beside a controller have variables of that form, which must not stop one."""
    root = Path(__file__).parents[2]
    files = [file for folder in ("kai_solver", "tests") for file in (root / folder).rglob("*.py")]
    read = re.compile(r"(?:environ\S*|getenv\(|: Final = )\(?\[?\"KAI_SOLVER_([A-Z_]+)\"")
    found = {name for file in files for name in read.findall(file.read_text(encoding="utf-8"))}
    assert {"DEBUG", "KERNELS", "FUZZ"} <= found
    assert found <= OTHERS


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
