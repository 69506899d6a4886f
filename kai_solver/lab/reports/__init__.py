"""Reports: what a study, a simulation or an experiment measured, as one page that needs no network, and as figures."""

from kai_solver.lab.reports.build import Report, build_report
from kai_solver.lab.reports.page import write_page
from kai_solver.lab.reports.static import write_figures

__all__ = ["Report", "build_report", "write_figures", "write_page"]
