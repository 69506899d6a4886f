"""Scenarios for tests: small documents, and what holds of every replay."""

from typing import Any

import pytest

from kai_solver.domain import Plan, Snapshot
from kai_solver.modelfiles import load_model
from kai_solver.simulate import ModelPolicy, Result, Scenario, replay, scenario_of
