"""Prints in which of the first small random problems compiled chains find something else: ``compare.py NUMBER``."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from kai_solver import compiled
from kai_solver.chains.search import ChainSearch
from tests.support.chain_problems import random_problem

Found = list[object]


def found(seed: int) -> Found:
    problem = random_problem(seed)
    search = ChainSearch(problem, seed)
    admitted = search.admit(len(problem.turn), leaving=bool(seed % 2))
    search.lessen(20, heat=seed % 3)
    search.lessen(10)
    result = search.result()
    return [admitted, result.node.tolist(), result.devices.tolist(), result.cost, result.moves]


def main(number: int) -> dict[str, object]:
    plain = [found(seed) for seed in range(number)]
    compiled.load()
    return {
        "compiled": compiled.is_loaded(),
        "moves": sum(int(str(one[-1])) for one in plain),
        "different": [seed for seed in range(number) if found(seed) != plain[seed]],
    }


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
