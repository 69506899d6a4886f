"""The page: one HTML file with plotly's script, styles and data inside, which loads nothing."""

from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import orjson

from kai_solver.errors import InputError
from kai_solver.errors.extras import check_package
from kai_solver.instances_io.output import replacing
from kai_solver.lab.reports.build import Report
from kai_solver.lab.reports.figure import Figure, Section, Table
from kai_solver.lab.reports.gantt import gantt_content
from kai_solver.lab.reports.plotly_json import plotly_figure
from kai_solver.pictures import COLOURS

GANTT = "Gantt chart: which pod was on which GPU, and why"
_HOW_TO_READ = (
    "A row is a node, a lane in it a GPU. Put the pointer on a bar: it says which gang, why it is here, and what it "
    "waited for. Drag to zoom in; double-click to see all again. Black: the node was down."
)
_COLOURS_OF_BARS = 10


def check_plotly() -> None:
    """Refuse to go on without plotly.

    Raises
    ------
    InputError
        It is not installed.
    """
    check_package("plotly", "reports need")


def check_place(path: Path) -> None:
    """Find out before any work whether the page could be written there.

    Raises
    ------
    InputError
        It is a folder, or its name does not end in .html.
    """
    if path.is_dir():
        raise InputError("is a folder", file=str(path), field="--output", cure="Name a file, like report.html")
    if path.suffix not in (".html", ".htm"):
        problem = f"{path.suffix or 'no ending'} is no page"
        raise InputError(problem, file=str(path), field="--output", cure="Name a file that ends in .html")


def write_page(report: Report, path: Path) -> None:
    """Write the report as one HTML file, in one step.

    Raises
    ------
    InputError
        It cannot be written, or plotly is not installed.
    """
    text = page_text(report)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            partial.write_text(text)
    except OSError as error:
        reason, cure = (error.strerror or str(error)).lower(), "Make room, or name a writable place"
        raise InputError(f"cannot be written: {reason}", file=str(path), cure=cure) from None


def page_text(report: Report) -> str:
    """The page as text.

    Raises
    ------
    InputError
        plotly is not installed.
    """
    check_plotly()
    from plotly.offline import get_plotlyjs

    room = files("kai_solver.lab.reports")
    sections = "\n".join(_section(section, f"s{number}") for number, section in enumerate(report.sections, 1))
    return Template(room.joinpath("page.html").read_text()).substitute(
        title=escape(report.title),
        folders=escape(", ".join(report.folders)),
        style=room.joinpath("page.css").read_text() + room.joinpath("gantt.css").read_text(),
        plotly=_in_script(get_plotlyjs()),
        script=room.joinpath("gantt.js").read_text() + room.joinpath("page.js").read_text(),
        contents=_contents(report),
        sections=sections,
    )


def _contents(report: Report) -> str:
    links = [
        f'<li><a href="#s{number}-{escape(figure.name)}">{escape(figure.title)}</a></li>'
        for number, section in enumerate(report.sections, 1)
        for figure in section.figures
    ]
    links += [
        f'<li><a href="#s{number}-gantt">{escape(GANTT)}</a></li>'
        for number, section in enumerate(report.sections, 1)
        if section.charts
    ]
    return f"<ul>{''.join(links)}</ul>"


def _section(section: Section, key: str) -> str:
    parts = [f'<section id="{key}">', f"<h2>{escape(section.title)}</h2>"]
    if section.verdicts:
        parts.append(f'<ul class="verdicts">{"".join(f"<li>{escape(one)}</li>" for one in section.verdicts)}</ul>')
    parts += [f'<p class="note">{escape(note)}</p>' for note in section.notes]
    parts += [_table(table) for table in section.tables]
    parts += [_figure(figure, key) for figure in section.figures]
    if section.charts:
        parts.append(_framed(f"{key}-gantt", GANTT, _HOW_TO_READ, "gantt", gantt_content(section.charts), 400))
    return "\n".join([*parts, "</section>"])


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.columns)
    rows = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in row[1:])}</tr>'
        for row in table.rows
    )
    return f"<table><caption>{escape(table.title)}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _figure(figure: Figure, key: str) -> str:
    content = plotly_figure(figure)
    return _framed(f"{key}-{figure.name}", figure.title, figure.text, "plot", content, content["layout"]["height"])


def _framed(name: str, title: str, text: str, kind: str, content: dict[str, Any], height: float) -> str:
    key, data = escape(name), _in_script(orjson.dumps(content).decode())
    colours = escape(orjson.dumps(COLOURS[:_COLOURS_OF_BARS]).decode())
    role = "img" if kind == "plot" else "group"  # a chart has filters inside
    return (
        f'<figure id="{key}"><h3>{escape(title)}</h3><figcaption>{escape(text)}</figcaption>'
        f'<div class="{kind}" data-of="{key}-data" data-colours="{colours}" role="{role}" aria-label="{escape(title)}" '
        f'style="min-height:{height:.0f}px"></div>'
        f'<script type="application/json" id="{key}-data">{data}</script></figure>'
    )


def _in_script(text: str) -> str:
    """Text that ends no script element early."""
    return text.replace("</", "<\\/").replace("<!--", "<\\u0021--")
