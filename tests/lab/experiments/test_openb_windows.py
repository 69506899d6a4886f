"""Our policy: valid, within its budget of moves, and worth its while."""

from pathlib import Path

import numpy as np
import pytest

from kai_solver.lab.experiments import windows
from kai_solver.lab.experiments.baselines import run_baseline
from kai_solver.lab.experiments.record import Record, allocation, waited_allocation
from kai_solver.lab.experiments.report import size_of
from kai_solver.lab.experiments.trace import load_trace
from kai_solver.lab.experiments.verify import verify
from kai_solver.lab.experiments.windows import expected_demand, run_windows

OPENB = Path(__file__).parents[3] / "instances" / "openb"


def run(small: Path, seed: int, window: int, moves: float) -> Record:
    record = run_windows(load_trace(small, "small", seed), window, moves)
    assert record is not None
    return record


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("window", "moves"), [(1, 0.0), (40, 0.0), (40, 0.1), (1000, 0.0)])
def test_the_end_is_valid_and_moves_stay_in_budget(small: Path, seed: int, window: int, moves: float) -> None:
    trace, record = load_trace(small, "small", seed), run(small, seed, window, moves)
    verify(trace, record)
    arrived = np.arange(len(record.node)) // window * window + window
    assert (record.moved <= moves * np.minimum(arrived, len(record.node))).all()
    assert (np.diff(record.moved) >= 0).all()


def test_pods_move_where_that_pays(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "MOVE_ABOVE_MILLI", 1.0)
    trace, record = load_trace(small, "small", 1), run(small, 1, 20, 0.5)
    verify(trace, record)
    assert record.moved[-1] > 0


@pytest.mark.slow
def test_no_more_pods_of_a_whole_node_fail_than_with_fgd(small: Path) -> None:
    trace = load_trace(small, "small", 1)
    record = run_windows(trace, 1, 0.0)
    assert record is not None
    fgd = run_baseline(trace, "fgd")
    assert fgd is not None
    sizes = np.array([size_of(shape) for shape in trace.shapes])[trace.arrivals]
    assert (~record.placed[sizes == "8"]).sum() <= (~fgd.placed[sizes == "8"]).sum()


@pytest.mark.parametrize(
    ("rule", "limit", "refused"),
    [("LEAST_PACKED", 1.1, ("share",)), ("REFUSE_ABOVE", -1.0, ("share", "cpu"))],
)
def test_only_shares_and_pods_without_gpus_are_refused(
    small: Path, monkeypatch: pytest.MonkeyPatch, rule: str, limit: float, refused: tuple[str, ...]
) -> None:
    """Each rule at a limit that refuses all that it may: shares by what is packed, and small pods by what they take."""
    monkeypatch.setattr(windows, rule, limit)
    trace, record = load_trace(small, "small", 1), run(small, 1, 40, 0.0)
    sizes = np.array([size_of(shape) for shape in trace.shapes])[trace.arrivals]
    for size in np.unique(sizes).tolist():
        assert record.placed[sizes == size].any() == (size not in refused)


def test_what_waits_for_the_window_does_not_run_yet(small: Path) -> None:
    trace, record = load_trace(small, "small", 1), run(small, 1, 40, 0.0)
    assert record.decided[:40].tolist() == [39] * 40
    assert waited_allocation(trace, record)[38] == 0.0
    assert allocation(trace, record)[38] > 0.0


def test_memory_counts_as_the_cpu_that_comes_with_it() -> None:
    trace = load_trace(OPENB, "default", 42)
    demand, kind = expected_demand(trace)
    row = next(row for row, shape in enumerate(trace.shapes) if shape.memory_mib > 4 * shape.cpu_milli * 1024 / 1000)
    node = int(np.flatnonzero((trace.cpu == 96_000) & (trace.memory == 384 * 1024))[0])
    shape = trace.shapes[row]
    assert demand.cpu[row, kind[node]] == np.ceil(shape.memory_mib * 96_000 / (384 * 1024)) > shape.cpu_milli
    assert (demand.cpu[row] >= shape.cpu_milli).all()


def test_a_run_stops_when_told(small: Path) -> None:
    assert run_windows(load_trace(small, "small", 1), 40, 0.0, lambda decided: decided >= 80) is None


@pytest.mark.slow
def test_a_nearly_full_real_cluster_holds_more_than_with_fgd() -> None:
    trace = load_trace(OPENB, "default", 42)
    record, fgd = run_windows(trace, 200, 0.0), run_baseline(trace, "fgd")
    assert record is not None
    assert fgd is not None
    verify(trace, record)
    full = int(np.searchsorted(trace.arrived(), trace.capacity_milli, side="right")) - 1
    assert allocation(trace, record)[full] > allocation(trace, fgd)[full] + 0.5  # Percent; measured: 0.9.
