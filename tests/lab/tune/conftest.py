"""A search space over clusters that are decided in a tenth of a second."""

from pathlib import Path

import pytest

SMALL = """format: kai-tune/v1
name: small
budget: 300ms
parameters:
  search.question_s: {low: 0.1, high: 2.0, log: true}
  search.presolve: {choices: [none, light]}
  stages.disruption.share: {low: 0.1, high: 0.8}
  search.parameters.linearization_level: {choices: [0, 1, 2]}
instances:
  - {name: quiet, generate: {kind: quiet, nodes: 3, nodeGpus: 2, pods: 1}, draws: [1, 2, 3]}
  - {name: empty, generate: {kind: empty, nodes: 2}, draws: [1, 2]}
split: {families: [empty]}
finalists: 1
finalSeeds: 1
race: {p: 0.4, least: 2}
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path
