"""Figures as plotly's JSON: traces and a layout for each, which the page's script hands to plotly."""

from collections.abc import Sequence
from html import escape
from typing import Any

from kai_solver.lab.reports.figure import Figure, Panel, Series
from kai_solver.pictures import COLOURS, GREY, INK, PALE

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MARKERS = ("circle", "diamond", "square", "triangle-up", "x", "cross")
HATCHES = ("", "/", "x", ".", "-", "|")
_ROW_PX, _GAP_PX, _HEAD_PX, _FOOT_PX = 240, 70, 40, 60
_BETWEEN = 0.09
"""Share of the width between two columns."""


def plotly_figure(figure: Figure) -> dict[str, Any]:
    """``data`` and ``layout``, numbers rounded to six digits."""
    rows = -(-len(figure.panels) // figure.columns)
    inside = rows * _ROW_PX + (rows - 1) * _GAP_PX
    layout = _frame(inside + _HEAD_PX + _FOOT_PX)
    data: list[dict[str, Any]] = []
    shown: set[str] = set()
    for index, panel in enumerate(figure.panels):
        row, column = divmod(index, figure.columns)
        top = 1 - row * (_ROW_PX + _GAP_PX) / inside
        width = (1 - _BETWEEN * (figure.columns - 1)) / figure.columns
        left = column * (width + _BETWEEN)
        number = "" if index == 0 else str(index + 1)
        layout[f"xaxis{number}"] = _x_axis(panel, (left, left + width), number)
        layout[f"yaxis{number}"] = _y_axis(panel, (max(0.0, top - _ROW_PX / inside), top), number)
        above = index - figure.columns
        if above >= 0 and not panel.has_names and figure.panels[above].x_label == panel.x_label != "":
            layout[f"xaxis{number}"]["matches"] = "x" + ("" if column == 0 else str(column + 1))
        if panel.title:
            layout["annotations"].append(_panel_title(panel.title, left, top))
        if panel.has_diagonal:
            layout["shapes"].append(_diagonal(panel, number))
        for series in panel.series:
            trace = _trace(series, panel) | {"xaxis": f"x{number}", "yaxis": f"y{number}"}
            data.append(trace | {"legendgroup": series.name, "showlegend": series.name not in shown})
            shown.add(series.name)
    layout["showlegend"] = len(shown) > 1
    if any(series.kind == "stack" for panel in figure.panels for series in panel.series):
        layout["barmode"] = "stack"
    return {"data": data, "layout": layout}


def _frame(height: float) -> dict[str, Any]:
    return {
        "height": height,
        "margin": {"l": 70, "r": 20, "t": _HEAD_PX, "b": _FOOT_PX},
        "font": {"family": "system-ui, 'DejaVu Sans', sans-serif", "size": 13, "color": INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "bgcolor": "white", "font": {"color": INK}},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "top", "yref": "container"},
        "annotations": [],
        "shapes": [],
    }


def _axis(label: str) -> dict[str, Any]:
    return {
        "title": {"text": escape(label).replace("\n", "<br>"), "standoff": 8},
        "gridcolor": PALE,
        "linecolor": GREY,
        "showline": True,
        "zeroline": False,
        "ticks": "outside",
        "tickcolor": GREY,
        "automargin": True,
    }


_LOGARITHMIC = {"type": "log", "tickformat": "~g", "nticks": 6}
"""Whole numbers at every tick, so that an axis of less than a decade has some, too."""


def _x_axis(panel: Panel, domain: tuple[float, float], number: str) -> dict[str, Any]:
    axis = _axis(panel.x_label) | {"domain": [round(at, 4) for at in domain], "anchor": f"y{number}"}
    if panel.has_names:
        order = {"categoryorder": "array", "categoryarray": list(map(escape, panel.names))} if panel.names else {}
        return axis | {"type": "category"} | order
    return axis | (_LOGARITHMIC if panel.is_log_x else {})


def _y_axis(panel: Panel, domain: tuple[float, float], number: str) -> dict[str, Any]:
    axis = _axis(panel.y_text) | {"domain": [round(at, 4) for at in domain], "anchor": f"x{number}"}
    if panel.is_log_y:
        return axis | _LOGARITHMIC
    if panel.is_signed:
        return axis | {"zeroline": True, "zerolinecolor": GREY}
    if panel.highest is not None:
        axis |= {"range": [panel.least, panel.highest]}
    else:
        axis |= {"range": [panel.least, None], "autorange": "max"} if panel.least else {"rangemode": "tozero"}
    return axis | ({"tickformat": ".0%" if panel.highest else "~%"} if panel.is_share else {})


def _panel_title(title: str, left: float, top: float) -> dict[str, Any]:
    return {
        "text": f"<b>{escape(title)}</b>",
        "showarrow": False,
        "xref": "paper",
        "yref": "paper",
        "x": left,
        "y": top,
        "xanchor": "left",
        "yanchor": "bottom",
        "yshift": 4,
    }


def _diagonal(panel: Panel, number: str) -> dict[str, Any]:
    values = [
        float(value)
        for series in panel.series
        for value in (*series.x, *series.y)
        if value is not None and (float(value) > 0 or not panel.is_log_x)
    ]
    ends = [min(values, default=0.0), max(values, default=1.0)]
    return {
        "type": "line",
        "xref": f"x{number}",
        "yref": f"y{number}",
        "x0": ends[0],
        "y0": ends[0],
        "x1": ends[1],
        "y1": ends[1],
        "line": {"color": GREY, "width": 1, "dash": "dash"},
        "layer": "below",
    }


def _trace(series: Series, panel: Panel) -> dict[str, Any]:
    colour = COLOURS[series.style % len(COLOURS)]
    trace: dict[str, Any] = {"name": escape(series.name), "x": _values(series.x), "y": _values(series.y)}
    y = "%{y:.2%}" if panel.is_share else "%{y:,.4~g}"
    text = "<br>%{text}" if series.texts else ""
    x = "%{x}" if panel.has_names else "%{x:,.4~g}"
    trace["hovertemplate"] = (
        f"<b>{escape(series.name)}</b><br>{escape(panel.y_label)}: {y}<br>{escape(panel.x_label)}: {x}{text}"
        "<extra></extra>"
    )
    if series.texts:
        trace["text"] = [escape(text) for text in series.texts]
    marker: dict[str, Any] = {"color": colour}
    if series.kind in ("bars", "stack"):
        hatch = HATCHES[series.style % len(HATCHES)]
        marker["pattern"] = {"shape": hatch, "fillmode": "overlay", "fgcolor": "white", "size": 6, "solidity": 0.25}
        marker["line"] = {"color": "white", "width": 1}
        return trace | {"type": "bar", "marker": marker, "textposition": "none"}
    if series.kind == "points":
        marker |= {"symbol": MARKERS[series.style % len(MARKERS)], "size": 8, "opacity": 0.8}
        return trace | {"type": "scatter", "mode": "markers", "marker": marker}
    if series.kind == "area":
        line = {"width": 0, "shape": "hv"}
        return trace | {"type": "scatter", "mode": "lines", "line": line, "fill": "tozeroy", "fillcolor": f"{colour}4d"}
    shape = "hv" if series.kind == "step" else "linear"
    line = {"color": colour, "dash": DASHES[series.style % len(DASHES)], "width": 2, "shape": shape}
    return trace | {"type": "scatter", "mode": "lines", "line": line}


def _values(values: Sequence[float | str | None]) -> list[float | str | None]:
    return [_value(value) for value in values]


def _value(value: float | str | None) -> float | str | None:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return escape(value) if isinstance(value, str) else value
