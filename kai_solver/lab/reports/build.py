"""A report: sections made of what the folders hold."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kai_solver.lab.reports.figure import Section, is_empty
from kai_solver.lab.reports.simulations import section_of
from kai_solver.lab.reports.sources import read_folders


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
    sections: list[Section] = []
    if found.simulations:
        sections.append(section_of(found.simulations))
    shown = [replace(section, figures=[one for one in section.figures if not is_empty(one)]) for section in sections]
    return Report(title or "; ".join(section.title for section in shown), tuple(map(str, folders)), tuple(shown))
