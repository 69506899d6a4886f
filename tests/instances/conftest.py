"""Plans of the instances in ``instances/``, each made once per model, and how plans are compared."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from kai_solver.domain import Action, Plan
from kai_solver.engine import Engine, cycle
from kai_solver.instances_io import load_instance
from kai_solver.instances_io.importers import Loaded
from kai_solver.instances_io.native_schema import ExpectDoc
from tests.support.engines import PATIENT_S, patient, patient_engine

INSTANCES = Path(__file__).parents[2] / "instances"

START_S = 60.0
"""Longest start of the solver's process on a machine with much else to do; it is no part of the budget."""

Planner = Callable[..., Plan]
Reader = Callable[[Path], Loaded]


@pytest.fixture(scope="session")
def instances() -> Path:
    """The folder of instances."""
    return INSTANCES


@pytest.fixture(scope="session")
def read() -> Reader:
    """Reads an instance, each file once."""
    known: dict[Path, Loaded] = {}

    def instance(path: Path) -> Loaded:
        if path not in known:
            known[path] = load_instance(path)
        return known[path]

    return instance


@pytest.fixture(scope="session")
def plan_of(read: Reader) -> Iterator[Planner]:
    """``plan_of(path, model, seed=0)``: the plan of one cycle; engines stay warm, plans are kept."""
    with ExitStack() as stack:
        engines: dict[str, Engine] = {}
        plans: dict[tuple[Path, str, int], Plan] = {}

        def plan(path: Path, model: str, seed: int = 0) -> Plan:
            if model not in engines:
                engines[model] = stack.enter_context(patient_engine(model))
            if (path, model, seed) not in plans:
                assert engines[model].wait(START_S)  # each time: a plan before may have cost the solver its process
                plans[path, model, seed] = _solve(read(path), engines[model], seed)
            return plans[path, model, seed]

        yield plan


def _solve(loaded: Loaded, engine: Engine, seed: int) -> Plan:
    """One cycle with the actions that the instance names, the model's otherwise."""
    model, actions = engine.model, loaded.expect.actions if loaded.expect else None
    if actions is not None:
        model = replace(model, actions=tuple(Action(action) for action in actions))
    return cycle(loaded.snapshot, patient(model), budget_s=PATIENT_S, seed=seed, child=engine.child)


@pytest.fixture(scope="session")
def missed() -> Callable[[ExpectDoc, Plan], list[str]]:
    """What a plan does not hold of what its instance expects, in words; empty: all of it holds."""
    return _missed


def _missed(expect: ExpectDoc, plan: Plan) -> list[str]:
    pending = [p.gang for p in plan.pending]
    proven = {p.gang for p in plan.pending if p.proof.state == "proven"}
    found = [*_differs("placed", expect.placed, {gang for gang, _ in plan.admitted})]
    found += _differs("pending", expect.pending, set(pending))
    found += [f"{gang} is pending without a proof" for gang in map(key, expect.proven or ()) if gang not in proven]
    if expect.evictions is not None and len(plan.evictions) > expect.evictions:
        found.append(f"{len(plan.evictions)} pods evicted, expected at most {expect.evictions}")
    links = [stage.value for stage in plan.stages if stage.name == "link-loss"]
    if expect.link_loss is not None and (not links or links[0] > expect.link_loss):
        found.append(f"gangs lose {links} by their links, expected at most {expect.link_loss}")
    if expect.moves is not None and len(plan.moves) > expect.moves:
        found.append(f"{len(plan.moves)} pods moved, expected at most {expect.moves}")
    if expect.source is not None and plan.source != expect.source:
        found.append(f"the source is {plan.source}, expected {expect.source}; notes: {'; '.join(plan.notes) or 'none'}")
    return found


def _differs(what: str, expected: tuple[str, ...] | int | None, gangs: set[str]) -> list[str]:
    if expected is None:
        return []
    fits = len(gangs) == expected if isinstance(expected, int) else gangs == set(map(key, expected))
    return [] if fits else [f"{what}: {sorted(gangs)}, expected {expected}"]


def key(gang: str) -> str:
    """``namespace/name`` of a gang as an author may write it."""
    return gang if "/" in gang else f"default/{gang}"


@pytest.fixture(scope="session")
def is_better() -> Callable[[Plan, Plan], bool]:
    """``is_better(one, other)``: runs all of the other's gangs and more, or the same with less disruption."""
    return _is_better


def _is_better(one: Plan, other: Plan) -> bool:
    ours, theirs = ({gang for gang, _ in plan.admitted} for plan in (one, other))
    if ours != theirs:
        return ours > theirs
    strata = sorted(_strata(one) | _strata(other), reverse=True)
    return _disruption(one, strata) < _disruption(other, strata)


def _strata(plan: Plan) -> set[int]:
    """Priorities at which the plan evicts."""
    return {int(s.name.partition("/")[2]) for s in plan.stages if s.name.startswith("evicted-work/")}


def _disruption(plan: Plan, strata: list[int]) -> tuple[float, ...]:
    """Work lost from the highest priority down, gangs broken, pods evicted, pods moved: compared in this order."""
    value = {stage.name: stage.value for stage in plan.stages}
    names = [*(f"evicted-work/{stratum}" for stratum in strata), "gangs-broken", "evicted-pods", "moved-pods"]
    return tuple(value.get(name, 0.0) for name in names)
