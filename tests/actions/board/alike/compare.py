"""Prints on which of the first small loaded clusters compiled turns decide something else: ``compare.py NUMBER``."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4]))

import kai_solver.actions.context as shared
from kai_solver import compiled
from kai_solver.actions import Actions
from kai_solver.domain import Action
from kai_solver.problem import build_problem
from tests.support.loaded import a_loaded_cluster
from tests.support.oracles import Unasked

ACTIONS = (Action.ALLOCATE, Action.CONSOLIDATION, Action.RECLAIM, Action.PREEMPT)

Found = list[tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...]]]


def found(seed: int) -> Found:
    """What was admitted, in order: the action, the pods, their nodes, and the units that left or moved."""
    actions = Actions(build_problem(a_loaded_cluster(seed)), ACTIONS, Unasked(), by_board=True)
    outcome = actions.run()
    places = outcome.state.places
    return [
        (a.action.value, pods := a.allocation_unit.pods, tuple(places[pod].node for pod in pods), a.units)
        for a in outcome.admissions
    ]


def main(number: int) -> dict[str, object]:
    vars(shared)["MOST_WAITING"] = 0
    seeds = range(1, number + 1)
    plain = {seed: found(seed) for seed in seeds}
    compiled.load()
    return {
        "compiled": compiled.is_loaded(),
        "victims": sum(len(units) for one in plain.values() for *_, units in one),
        "different": [seed for seed in seeds if found(seed) != plain[seed]],
    }


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
