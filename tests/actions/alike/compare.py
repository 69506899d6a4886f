"""Prints on which of the first drawn clusters compiled sweeps share out victims otherwise: ``compare.py NUMBER``."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from kai_solver import compiled
from kai_solver.actions.sharing import Shared, Tries, VictimGroup, share_out
from kai_solver.search.attribution import EVICTING, Evictors
from kai_solver.search.rights import rights_of
from tests.search.test_least_victims import drawn


def found(seed: int) -> list[Shared]:
    """All that may leave, or half of it, shared out with and without tries."""
    outcome = drawn(seed)
    if outcome.pool is None:
        return []
    rights = rights_of(outcome)
    evictors = Evictors(outcome.admissions, rights.takers)
    units = sorted({unit for action in EVICTING for unit in rights.by_action.get(action, ())})
    every = [VictimGroup((unit,), evictors.by(unit, EVICTING), unit % 5 > 0) for unit in units]
    return [share_out(outcome, groups, tries) for groups in (every, every[::2]) for tries in (None, Tries())]


def main(number: int) -> dict[str, object]:
    plain = [found(seed) for seed in range(number)]
    compiled.load()
    return {
        "compiled": compiled.is_loaded(),
        "left": sum(len(shared.left) for one in plain for shared in one),
        "taken": sum(len(admission.units) for one in plain for shared in one for admission in shared.admissions),
        "different": [seed for seed in range(number) if found(seed) != plain[seed]],
    }


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
