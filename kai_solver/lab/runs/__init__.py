"""Runs of the solver: what one measured, as a row of one table that every command writes."""

from kai_solver.lab.runs.record import FORMAT, Improvement, RunRecord, StageResult, Status

__all__ = ["FORMAT", "Improvement", "RunRecord", "StageResult", "Status"]
