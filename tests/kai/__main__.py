"""Random clusters, decided by KAI itself and by a model of ours: ``python -m tests.kai --seeds 0..400``.

Clusters are printed on which KAI serves a gang that waits here, and we serve none that waits there. The cause may be
KAI's older version (``oracle.py``), or a fault of ours.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from kai_solver.engine import Engine
from kai_solver.modelfiles import load_model
from tests.fuzz.draws import FEATURES
from tests.kai.comparing import PLAIN, differences, is_worse, snapshot_of, two_level_cluster
from tests.kai.oracle import KaiFailedError, Oracle, archive_of
from tests.support.gotools import KAI, go_module

BUDGET_S = 5.0
WORSE = "KAI serves more"


def main() -> int:
    """Compare, print, and end with 1 where a gang has no place that KAI gives it."""
    parser = argparse.ArgumentParser(prog="python -m tests.kai", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", default="0..100", metavar="FIRST..LAST", help="one cluster each (default: 0..100)")
    parser.add_argument("--model", default="default", help="of ours (default: default)")
    parser.add_argument("--features", metavar="NAME,...", help=f"of {', '.join(FEATURES)}; default: what KAI 0.12 has")
    parser.add_argument(
        "--sizes", default="small", choices=("small", "mixed", "large"), help="1 to 8, 300, 100 to 300 nodes"
    )
    parser.add_argument("--all", action="store_true", help="print all other differences, too")
    asked = parser.parse_args()
    first, last = map(int, asked.seeds.split(".."))
    features = frozenset(asked.features.split(",")) if asked.features else PLAIN
    counts: Counter[str] = Counter()
    program = go_module(KAI) / "kai-decides"
    with (
        tempfile.TemporaryDirectory() as folder,
        Oracle(program, Path(folder)) as kai,
        Engine(load_model(asked.model)) as engine,
    ):
        engine.wait()
        for seed in range(first, last):
            snapshot = snapshot_of(two_level_cluster(seed, features, asked.sizes), time.time())
            try:
                kais = kai.decide(archive_of(snapshot))
            except KaiFailedError as error:
                counts["KAI failed"] += 1
                print(f"{seed}: KAI failed: {error}")
                continue
            found = differences(snapshot, engine.cycle(snapshot, budget_s=BUDGET_S, memo=None), kais)
            worse = is_worse(found)
            counts[WORSE if worse else "other differences" if found else "the same"] += 1
            for difference in found if worse or asked.all else ():
                print(f"{seed}: {difference}")
    print(", ".join(f"{count} {name}" for name, count in counts.most_common()))
    return bool(counts[WORSE])


if __name__ == "__main__":
    sys.exit(main())
