"""Tools that the tests of the chart need, each with a loud skip where it cannot be had."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client
from pydantic import BaseModel

from tests.support.gotools import HELM, KUBECONFORM, GoTool, ToolMissingError, go_tool
from tests.support.manifests import template

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "kai-solver"
Render = Callable[..., list[dict[str, Any]]]
OTHERS = {"ServiceMonitor", "PrometheusRule", "Queue"}
"""Kinds that the Kubernetes client has no model of."""


def _tool(tool: GoTool) -> Path:
    try:
        return go_tool(tool)
    except ToolMissingError as error:
        pytest.skip(f"NOT TESTED: {error}")


@pytest.fixture(scope="session")
def helm() -> Path:
    return _tool(HELM)


@pytest.fixture(scope="session")
def kubeconform() -> Path:
    return _tool(KUBECONFORM)


@pytest.fixture(scope="session")
def promtool() -> Path:
    found = shutil.which("promtool")
    if not found:
        pytest.skip("NOT TESTED: promtool is not there (Debian: apt-get install prometheus)")
    return Path(found)


@pytest.fixture
def render(helm: Path) -> Render:
    """The chart's objects with values given as ``--set-json`` takes them."""

    def rendered(**values: str) -> list[dict[str, Any]]:
        done = template(helm, *(word for key, value in values.items() for word in ("--set-json", f"{key}={value}")))
        assert done.returncode == 0, done.stderr
        return [found for found in yaml.safe_load_all(done.stdout) if found]

    return rendered


def model_of(value: dict[str, Any]) -> type[BaseModel]:
    """The Kubernetes client's model of an object; it forbids what it does not know."""
    version = value["apiVersion"].rpartition("/")[2].capitalize()
    found: type[BaseModel] = getattr(client, f"{version}{value['kind']}")
    return found
