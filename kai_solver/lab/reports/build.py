"""A report: sections made of what the folders hold."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kai_solver.lab.reports import openb, simulations, studies, tunings
from kai_solver.lab.reports.figure import Section, is_empty
from kai_solver.lab.reports.sources import Simulation, read_folders


@dataclass(frozen=True, slots=True)
class Report:
    """What is written down: a title, the folders it is of, and sections."""

    title: str
    folders: tuple[str, ...]
    sections: tuple[Section, ...]


def build_report(folders: Sequence[Path], title: str = "") -> Report:
    """Read the folders and make all figures; figures without a mark are left out.

    Raises
    ------
    InputError
        As `sources.read_folders`.
    """
    found = read_folders(folders)
    sections = [
        studies.section_of(study)
        for study in found.studies
        if study.frames.runs["primal_integral"].null_count() < study.frames.runs.height or not study.simulations
    ]
    sections += [tunings.section_of(one) for one in found.tunings]
    replays = (*found.simulations, *(one for study in found.studies for one in study.simulations))
    by_scenario: dict[str, list[Simulation]] = {}
    for one in replays:
        by_scenario.setdefault(one.scenario, []).append(one)
    sections += [simulations.section_of(runs) for runs in by_scenario.values()]
    sections += [openb.section_of(one) for one in found.openb]
    shown = [replace(section, figures=[one for one in section.figures if not is_empty(one)]) for section in sections]
    return Report(title or "; ".join(section.title for section in shown), tuple(map(str, folders)), tuple(shown))
