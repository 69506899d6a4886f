"""Cases of our own under ``instances/behaviour``: what they say of themselves, and that they hold, in any order."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kai_solver.instances_io import load_instance
from kai_solver.lab.conformance import Case, Decide, find_cases, read_case, run_case, run_file
from kai_solver.lab.conformance.deciding import open_decider
from kai_solver.modelfiles import load_model
from tests.support.engines import PATIENT_S, patient

INSTANCES = Path(__file__).parents[3] / "instances"
OWN = list(find_cases(INSTANCES / "behaviour"))
SAMPLE = list(find_cases(INSTANCES / "cases"))[::9]

Document = dict[str, Any]
Write = Callable[[Document], Path]
Shuffle = Callable[[Document, int], Document]
Rename = Callable[[Document], Document]


def label(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"[:70]


@pytest.fixture(scope="module")
def decider() -> Iterator[Callable[[str], Decide]]:
    """A warm engine for each model that is asked for."""
    with ExitStack() as stack:
        known: dict[str, Decide] = {}

        def of(model: str) -> Decide:
            if model not in known:
                known[model] = stack.enter_context(open_decider(patient(load_model(model)), PATIENT_S))
            return known[model]

        yield of


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(document: Document) -> Path:
        path = tmp_path / "case.json"
        path.write_text(json.dumps(document))
        return path

    return to_file


def places(path: Path, decide: Decide) -> dict[str, tuple[str, str]]:
    """Status and node of every pod in the end; which device it has is no part of what a case is about."""
    case = read_case(path)
    states = run_case(load_instance(path).snapshot, case.run, decide, case.lasting).states
    return {pod: (state.status, state.node) for pod, state in states.items()}


def needs_solver(path: Path) -> bool:
    statement = read_case(path).statement
    return statement is not None and statement.needs_solver


def named(case: Case) -> frozenset[str]:
    """Jobs and tasks of a case, by every name that an assertion may use."""
    return case.jobs | case.tasks | {f"{job.namespace}/{job.name}" for job in case.instance.jobs}


@pytest.mark.parametrize("path", OWN, ids=label)
def test_a_case_states_what_kai_does_and_what_we_do(path: Path) -> None:
    case = read_case(path)
    assert case.statement is not None
    assert all(len(text) >= 3 for text in (case.statement.kai, case.statement.ours, case.statement.reference))
    assert case.statement.known_by in ("read", "run")
    assert case.suite == path.parent.name


@pytest.mark.parametrize("path", OWN, ids=label)
def test_a_case_asserts_only_what_it_has(path: Path) -> None:
    """A name that a case does not have asserts nothing: a slip would go unseen."""
    case, loaded = read_case(path), load_instance(path)
    assert case.expected.jobs or case.expected.tasks
    assert not (case.expected.jobs.keys() | case.expected.tasks.keys()) - named(case)
    assert not case.expected.nodes.keys() - {node.name for node in loaded.snapshot.nodes}
    assert not [notice.text for notice in loaded.snapshot.notices if "not known to this version" in notice.text]


@pytest.mark.parametrize("path", OWN, ids=label)
def test_it_comes_out_as_expected(path: Path, decider: Callable[[str], Decide]) -> None:
    result = run_file(path, path.name, decider("default"))
    assert result.verdict.kind == "as expected", result.verdict.differences


@pytest.mark.parametrize("path", [path for path in OWN if not needs_solver(path)], ids=label)
def test_the_greedy_alone_does_where_no_solver_is_needed(path: Path, decider: Callable[[str], Decide]) -> None:
    result = run_file(path, path.name, decider("greedy-only"))
    assert result.verdict.kind == "as expected", result.verdict.differences


@pytest.mark.slow
def test_the_mark_is_not_given_for_nothing(decider: Callable[[str], Decide]) -> None:
    """A case that the greedy alone gets right does not need the solver."""
    marked = [path for path in OWN if needs_solver(path)]
    results = [run_file(path, label(path), decider("greedy-only")) for path in marked]
    assert not [result.path for result in results if result.verdict.kind == "as expected"]
    assert marked


@pytest.mark.parametrize("path", [*OWN, *SAMPLE], ids=label)
def test_the_order_of_lists_changes_nothing(
    path: Path, write: Write, decider: Callable[[str], Decide], shuffled: Shuffle
) -> None:
    decide = decider("greedy-only")
    as_written = places(path, decide)
    for seed in (1, 2):
        assert places(write(shuffled(json.loads(path.read_text()), seed)), decide) == as_written


@pytest.mark.parametrize("path", OWN, ids=label)
def test_names_that_sort_otherwise_change_nothing(
    path: Path, write: Write, decider: Callable[[str], Decide], shuffled: Shuffle, renamed: Rename
) -> None:
    document = renamed(shuffled(json.loads(path.read_text()), 3))
    result = run_file(write(document), path.name, decider("default"))
    assert result.verdict.kind == "as expected", result.verdict.differences
