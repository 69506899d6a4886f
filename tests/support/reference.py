"""Tables of docs/settings.md and docs/metrics.md, which are written from the code.

``python -m tests.support.reference`` writes them again; tests/project compares.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import Counter, Gauge, Histogram, Metric
from pydantic import BaseModel

from kai_solver.controller.settings import ControllerSettings
from kai_solver.metrics import Metrics

ROOT = Path(__file__).parents[2]
_TYPES: dict[Any, str] = {Counter: "counter", Gauge: "gauge", Histogram: "histogram"}


def settings_table() -> str:
    """Every key, its default and what it does."""
    rows = (f"| `{key}` | `{value}` | {text} |" for key, value, text in _settings(ControllerSettings()))
    return "\n".join(["| key | default | |", "|---|---|---|", *rows])


def _settings(part: BaseModel, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if isinstance(value, BaseModel):
            yield from _settings(value, f"{prefix}{name}.")
        else:
            text = str(field.description).replace("<", "&lt;").replace("|", "\\|")
            yield (
                f"{prefix}{name}",
                yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip(),
                text,
            )


def metrics_table() -> str:
    """Every metric as it is scraped, its labels, what it means, and whether anything fills it."""
    used = _used()
    rows = sorted(_metric_row(name, metric, name in used) for name, metric in metrics().items())
    rows += sorted(map(_library_row, library_metrics()))
    return "\n".join(["| metric | kind | labels | | |", "|---|---|---|---|---|", *rows])


def metrics() -> dict[str, Any]:
    """All metrics by their attribute of `Metrics`."""
    return {name: value for name, value in vars(Metrics()).items() if isinstance(value, Counter | Gauge | Histogram)}


def library_metrics() -> list[Metric]:
    """Those of the process, which the client library measures when they are scraped."""
    ours = {metric.describe()[0].name for metric in metrics().values()}
    return [metric for metric in Metrics().registry.collect() if metric.name not in ours]


def scraped_names(metric: Any) -> set[str]:
    """Names of a metric's series."""
    name, kind = metric.describe()[0].name, _TYPES[type(metric)]
    series = {"counter": ["_total", "_created"], "gauge": [""], "histogram": ["_bucket", "_sum", "_count", "_created"]}
    return {f"{name}{ending}" for ending in series[kind]}


def _metric_row(attribute: str, metric: Any, is_filled: bool) -> str:
    described, kind = metric.describe()[0], _TYPES[type(metric)]
    name = described.name + ("_total" if kind == "counter" else "")
    labels = ", ".join(f"`{label}`" for label in metric._labelnames)
    return f"| `{name}` | {kind} | {labels} | {described.documentation} | {'' if is_filled else 'not filled yet'} |"


def _library_row(metric: Metric) -> str:
    name = metric.name + ("_total" if metric.type == "counter" else "")
    labels = ", ".join(f"`{label}`" for label in metric.samples[0].labels)
    return f"| `{name}` | {metric.type} | {labels} | {metric.documentation.removesuffix('.')}. |  |"


def _used() -> set[str]:
    """Attributes of `Metrics` that some module mentions."""
    modules = (path for path in (ROOT / "kai_solver").rglob("*.py") if path.parent.name != "metrics")
    return {name for module in modules for name in re.findall(r"metrics\.(\w+)", module.read_text())}


TABLES = {"settings": settings_table, "metrics": metrics_table}


def page(name: str) -> Path:
    """The page with the table of this name."""
    return ROOT / "docs" / f"{name}.md"


def between(text: str, name: str) -> tuple[str, str, str]:
    """A page before, in and after the table of this name."""
    begin, end = f"<!-- {name}: begin -->\n\n", f"\n\n<!-- {name}: end -->"
    found = re.fullmatch(f"(.*{begin})(.*)({end}.*)", text, re.DOTALL)
    if found is None:
        raise ValueError(f"there is no place for the table {name!r}")
    return found[1], found[2], found[3]


def main() -> None:
    """Write both tables again."""
    for name, table in TABLES.items():
        before, _, after = between(page(name).read_text(), name)
        page(name).write_text(before + table() + after)


if __name__ == "__main__":
    main()
