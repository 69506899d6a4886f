"""A workload replayed in simulated time against the pure cycle, and against what users come from."""

from kai_solver.lab.simulate.load import load_scenario, scenario_of
from kai_solver.lab.simulate.policies import Decider, KubeDefault, ModelPolicy
from kai_solver.lab.simulate.replay import ReplayError, Result, Standing, replay
from kai_solver.lab.simulate.scenario import Job, Outage, Scenario
from kai_solver.lab.simulate.summary import Summary, measures_of, summarize
from kai_solver.lab.simulate.tables import frame_of, has_parquet, write_tables

__all__ = [
    "Decider",
    "Job",
    "KubeDefault",
    "ModelPolicy",
    "Outage",
    "ReplayError",
    "Result",
    "Scenario",
    "Standing",
    "Summary",
    "frame_of",
    "has_parquet",
    "load_scenario",
    "measures_of",
    "replay",
    "scenario_of",
    "summarize",
    "write_tables",
]
