"""Campaigns over time: random clusters live through chains of cycles in which nothing happens but what plans say.

    python -m tests.fuzz.chains --seeds 0..500 --models default,greedy-only,deterministic --sizes small --out out/chains

Faults are those of `tests.support.chains`, and exceptions.
"""

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any

from kai_solver.domain import Plan, Snapshot
from kai_solver.instances_io.native import load_native
from tests.fuzz.campaigns import run, write_offender
from tests.fuzz.clusters import cluster
from tests.fuzz.plans import MODELS, Document, Planner, shrunk
from tests.support.chains import CYCLES, Course, Fault, judge_chain

LONG = {"loop", "moved-again", "promised-for-nothing", "restless"}
"""Faults that do not end by themselves."""


PLAIN = (
    "elastic", "subgroups", "segments", "topology", "fractions", "gpu-memory", "mig", "spares", "tenants", "limits",
    "queue-trees", "budgets", "claims", "placement", "affinity",
)  # fmt: skip
"""Features for clusters of few of them, where gangs contend for the same nodes."""


TELL_EVERY = 100
"""Chains after which a campaign says how far it is."""


def cluster_of(seed: int, sizes: Any) -> Document:
    """The cluster of that seed: every other one has few features."""
    r = Random(f"features-{seed}")
    few = frozenset(r.sample(PLAIN, r.randint(0, 4)))
    return cluster(seed, sizes, few if seed % 2 else None)


def course_of(seed: int) -> Course:
    """How the cluster of that seed carries plans out."""
    r = Random(f"course-{seed}")
    return Course(leaving=r.choice((0, 1, 1, 2)), keeps_nominations=r.random() < 0.3)


def chain(decide: Callable[[Snapshot], Plan], document: Document, course: Course, cycles: int = CYCLES) -> list[Fault]:
    """Faults of one chain; an exception is one."""
    try:
        return judge_chain(load_native(document).snapshot, decide, course, cycles=cycles)
    except Exception as error:  # whatever it is, it is what we look for
        where = traceback.extract_tb(error.__traceback__)[-1]
        return [Fault(f"{type(error).__name__} in {Path(where.filename).stem}.{where.name}", -1, str(error))]


def campaign(seeds: Iterable[int], sizes: Any, planner: Planner, out: Path | None, shrink_s: float) -> Counter[str]:
    """Run every chain; faults are printed and offenders written to ``out``. How many chains have each kind."""
    kinds: Counter[str] = Counter()
    for seed in seeds:
        document = cluster_of(seed, sizes)
        course = course_of(seed)
        for model in planner.engines:
            found = chain(planner.decider(model), document, course)
            kinds["chains"] += 1
            kinds.update({fault.kind for fault in found})
            for kind in dict.fromkeys(fault.kind for fault in found):
                first = next(fault for fault in found if fault.kind == kind)
                print(f"{sizes} {seed} {model} ({course.leaving}, {course.keeps_nominations}): {first}", flush=True)
            if kinds["chains"] % TELL_EVERY == 0:
                print(f"{dict(kinds)}", flush=True)
            if found and out is not None:
                _write(document, found, planner, model, course, out, shrink_s)
    return kinds


def _write(
    document: Document, found: list[Fault], planner: Planner, model: str, course: Course, out: Path, shrink_s: float
) -> None:
    kind = next((fault.kind for fault in found if fault.kind in LONG), found[0].kind)

    def is_bad(smaller: Document) -> bool:
        return any(fault.kind == kind for fault in chain(planner.decider(model), smaller, course))

    small = shrunk(document, is_bad, shrink_s) if shrink_s else document
    name = f"{kind.split()[0]}-{document['name']}-{model}"
    write_offender(small, f"{model}, {course}: {kind}", out, name)


def main() -> int:
    """Run a campaign; 1 where something was wrong."""

    def all_of(options: argparse.Namespace) -> Mapping[str, int]:
        with Planner(options.models.split(","), options.budget) as planner:
            return campaign(options.seeds, options.sizes, planner, options.out, options.shrink)

    return run("Let random clusters live through chains of cycles.", MODELS, 5.0, all_of, harmless=1)


if __name__ == "__main__":
    sys.exit(main())
