"""Campaigns: random clusters are planned, plans are checked, and what is wrong is told and made small.

    python -m tests.fuzz.plans --seeds 0..500 --models default,greedy-only,deterministic --sizes small --out out/fuzz

What counts as a fault: an exception, a plan that the checker refuses (also where the cycle then found another one), a
fault of the solver, and fewer gangs than ``greedy-only`` admits.
"""

import argparse
import copy
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from kai_solver.check import WASTE, check_plan
from kai_solver.domain import ACTIONS, Action, Plan, Snapshot, SolverModel
from kai_solver.engine import Engine
from kai_solver.engine.progress import Fault
from kai_solver.instances_io.native import load_native
from kai_solver.modelfiles import load_model
from kai_solver.search.child import SolverChild
from tests.fuzz.campaigns import run, write_offender
from tests.fuzz.clusters import cluster

Document = dict[str, Any]
MODELS = ("default", "greedy-only", "deterministic")


@dataclass(frozen=True)
class Offence:
    """What is wrong with the plan of one cluster; ``kind`` stays the same while the cluster is made smaller."""

    model: str
    kind: str
    text: str


class Planner:
    """Engines of the models, kept over many clusters."""

    def __init__(self, models: Iterable[str], budget_s: float = 1.0) -> None:
        self.engines = {
            name: Engine(_patient(load_model(name), budget_s), child=SolverChild(grace_s=10.0)) for name in models
        }
        self.budget_s = budget_s

    def __enter__(self) -> Self:
        for engine in self.engines.values():
            engine.__enter__()
            engine.wait()
        return self

    def __exit__(self, *_: object) -> None:
        for engine in self.engines.values():
            engine.__exit__()

    def decider(self, model: str) -> Callable[[Snapshot], Plan]:
        """Cycles of one of the models."""
        return lambda snapshot: self.engines[model].cycle(snapshot, budget_s=self.budget_s, on_fault=_not_unexpected)

    def offences(self, document: Document) -> list[Offence]:
        """What is wrong with the plans of all models."""
        found: list[Offence] = []
        admitted: dict[str, Plan] = {}
        for model, engine in self.engines.items():
            faults: list[Fault] = []
            try:
                snapshot = load_native(document).snapshot
                plan = engine.cycle(snapshot, budget_s=self.budget_s, on_fault=faults.append, memo=None)
                admitted[model] = plan
                found += [Offence(model, *_kind_of(fault.error)) for fault in faults]
                found += [Offence(model, v.rule, v.text) for v in check_plan(snapshot, plan) if v.rule not in WASTE]
            except Exception as error:  # whatever it is, it is what we look for
                where = traceback.extract_tb(error.__traceback__)[-1]
                kind = f"{type(error).__name__} in {Path(where.filename).stem}.{where.name}"
                found.append(Offence(model, kind, traceback.format_exc()))
        floor = admitted.pop("greedy-only", None)
        return [*found, *(o for model, plan in admitted.items() if floor for o in _fewer(model, plan, floor, document))]


def _not_unexpected(fault: Fault) -> None:
    """An unexpected error ends no cycle, and is a fault all the same."""
    if fault.error.startswith("an unexpected error"):
        raise AssertionError(fault.error)


def _fewer(model: str, plan: Plan, floor: Plan, document: Document) -> Iterator[Offence]:
    """Gangs that only the greedy serves, unless rank asks for it.

    Where the two first differ, the solver serves a gang that greedy passed over: on an earlier action, or on the same
    one before the other in the order of its queue.
    """
    served, others = ({gang for gang, _ in each.admitted} for each in (plan, floor))
    is_cut_short = any(note.startswith("stopped before") for note in (*plan.notes, *floor.notes))
    if len(served) >= len(others) or is_cut_short:
        return
    pairs = zip(plan.admitted, floor.admitted, strict=False)
    mine, other = next((pair for pair in pairs if pair[0] != pair[1]), ((("", None), ("", None))))
    if mine[1] is None or other[1] is None or not _is_first(mine, other, document):
        yield Offence(model, "fewer", f"{sorted(served)}, greedy-only {sorted(others)}")


def _is_first(mine: tuple[str, Action], other: tuple[str, Action], document: Document) -> bool:
    actions = list(ACTIONS)
    if mine[1] is not other[1]:
        return actions.index(mine[1]) < actions.index(other[1])
    gangs = {f"{gang.get('namespace', 'default')}/{gang['name']}": gang for gang in document["gangs"]}
    one, two = gangs[mine[0]], gangs[other[0]]
    return bool(one["queue"] != two["queue"] or one.get("priority", 50) >= two.get("priority", 50))


def _kind_of(error: str) -> tuple[str, str]:
    """Kind of a reported fault: the rule by which a plan was refused, or its first words."""
    refused = "the checker refused a"
    if error.startswith(refused):
        return "refused: " + error.split("(", 1)[1].split(":", 1)[0], error
    return "solver: " + " ".join(error.split()[:5]), error


def _patient(model: SolverModel, budget_s: float) -> SolverModel:
    search = model.search if model.search.deterministic else replace(model.search, question_s=budget_s)
    return replace(model, search=search)


# -- smaller clusters ------------------------------------------------------------------------------------------------


def shrunk(document: Document, is_bad: Callable[[Document], bool], seconds: float = 60.0) -> Document:
    """A smaller cluster that is bad in the same way: without gangs, nodes, pods, fields that make no difference."""
    end_s = time.monotonic() + seconds
    best, is_smaller = document, True
    while is_smaller and time.monotonic() < end_s:
        is_smaller = False
        for smaller in _smaller(best):
            if time.monotonic() > end_s:
                break
            if is_bad(smaller):
                best, is_smaller = smaller, True
                break
    return best


def _smaller(document: Document) -> Iterator[Document]:
    """One step smaller, coarse steps first."""
    for section in ("gangs", "nodes", "foreign", "disruptionBudgets", "resourceClaims", "queues"):
        entries = document.get(section, [])
        size = max(len(entries) // 2, 1)
        while entries and size:
            for start in range(0, len(entries), size):
                yield document | {section: entries[:start] + entries[start + size :]}
            size //= 2
    for section in ("gangs", "nodes", "queues", "topologies"):
        for place, entry in enumerate(document.get(section, [])):
            for smaller in _smaller_entry(entry):
                entries = list(document[section])
                entries[place] = smaller
                yield document | {section: entries}
    for key in document.get("policy", {}):
        yield document | {"policy": {k: v for k, v in document["policy"].items() if k != key}}


def _smaller_entry(entry: Document) -> Iterator[Document]:
    pods = entry.get("pods", [])
    for place in range(len(pods) if isinstance(pods, list) else 0):
        yield entry | {"pods": pods[:place] + pods[place + 1 :]}
    for key in entry.keys() - {"name", "queue", "pods", "levels", "gpus"}:
        yield {k: v for k, v in entry.items() if k != key}
    common = {key for pod in pods for key in pod} if isinstance(pods, list) else set()
    for key in sorted(common - {"name", "group", "status", "node"}):
        smaller = copy.deepcopy(entry)
        for pod in smaller["pods"]:
            pod.pop(key, None)
        yield smaller


# -- the campaign ----------------------------------------------------------------------------------------------------


def campaign(seeds: Iterable[int], sizes: Any, planner: Planner, out: Path | None, shrink_s: float) -> Counter[str]:
    """Plan every cluster; offenders are printed and written to ``out``. How many of each kind."""
    kinds: Counter[str] = Counter()
    for seed in seeds:
        document = cluster(seed, sizes)
        offences = planner.offences(document)
        kinds["clusters"] += 1
        kinds["plans"] += len(planner.engines)
        if kinds["clusters"] % 500 == 0:
            print(dict(kinds), flush=True)
        for offence in offences:
            kinds[offence.kind] += 1
            print(f"{sizes} {seed} {offence.model}: {offence.kind}: {offence.text.strip()[-700:]}", flush=True)
        if offences and out is not None:
            _write(document, offences[0], planner, out, shrink_s)
    return kinds


def _write(document: Document, offence: Offence, planner: Planner, out: Path, shrink_s: float) -> None:
    def is_bad(smaller: Document) -> bool:
        return any((o.model, o.kind) == (offence.model, offence.kind) for o in planner.offences(smaller))

    small = shrunk(document, is_bad, shrink_s) if shrink_s else document
    text = f"{offence.model}: {offence.kind}: {offence.text[-500:]}"
    write_offender(small, text, out, str(document["name"]))


def main() -> int:
    """Run a campaign; 1 where something was wrong."""

    def all_of(options: argparse.Namespace) -> Mapping[str, int]:
        with Planner(options.models.split(","), options.budget) as planner:
            return campaign(options.seeds, options.sizes, planner, options.out, options.shrink)

    return run("Plan random clusters and check the plans.", MODELS, 1.0, all_of, harmless=2)


if __name__ == "__main__":
    sys.exit(main())
