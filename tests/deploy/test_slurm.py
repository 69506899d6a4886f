"""Workers that Slurm starts by deploy/slurm/workers.sh: a real Slurm of one node, a real scheduler, a real study."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kai_solver.instances_io.bench_schema import LoadedDoc
from kai_solver.lab.runs import DaskCluster, Definition, Generated, Standing, Study, run_study
from kai_solver.modelfiles import load_model
from tests.deploy.conftest import ROOT
from tests.support.dask_cluster import cluster
from tests.support.slurm import MISSING, WHY_NOT, Slurm, slurm

SCRIPT = ROOT / "deploy" / "slurm" / "workers.sh"
TINY = Generated("tiny", LoadedDoc(kind="loaded", nodes=10, gangs=5, contested=0))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=WHY_NOT),
    pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: slurmd starts jobs as root alone"),
]


@pytest.fixture
def one_node() -> Iterator[Slurm]:
    folder = Path(tempfile.mkdtemp(prefix="kai-slurm-"))  # pytest's own names are too long for sockets
    try:
        with slurm(folder) as found:
            yield found
    finally:
        shutil.rmtree(folder)


def test_a_study_is_run_by_jobs_and_one_that_is_ended_loses_no_run(one_node: Slurm, tmp_path: Path) -> None:
    programs = str(Path(sys.executable).parent)
    asked = Definition("compare", (TINY,), (load_model("greedy-only"),), tuple(range(40)), 1.0)
    cancelled: list[int] = []

    def running() -> list[str]:
        return one_node.run("squeue", "--noheader", "--array", "--states", "RUNNING", "--format", "%i").split()

    with cluster(tmp_path / "cluster") as dask:
        said = one_node.run("sbatch", "--array=1-3", str(SCRIPT), dask.address, path=programs)
        job = said.split()[-1]

        def report(at: Standing) -> None:
            if at.done >= 4 and not cancelled and len(running()) == 3:
                one_node.run("scancel", f"{job}_2")
                cancelled.append(at.done)

        with Study.create(tmp_path / "study", asked) as study:
            run_study(study, runner=DaskCluster(dask.address), report=report)
        assert cancelled, "the study ended before there were three workers"
        end_s = time.monotonic() + 60
        while (left := sorted(running())) != [f"{job}_1", f"{job}_3"]:
            assert time.monotonic() < end_s, left
            time.sleep(0.2)
        one_node.run("scancel", job)
    assert len(study.records) == 40
    assert {record.status for record in study.records} == {"ok"}
    assert len((tmp_path / "study" / "runs.jsonl").read_text().splitlines()) == 40
