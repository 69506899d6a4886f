"""Metrics can be scraped, and are named as their users expect."""

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kai_solver.metrics import Metrics

TAUGHT = (
    "kai_queue_depth",
    "kai_queue_depth_total",
    "kai_quota_usage_percent",
    "kai_fairshare_quota_usage",
    "kai_scheduling_decisions",
    "kai_gang_scheduling_success_rate",
    "kai_gang_job_completion_time_seconds",
    "kai_preemptions",
    "kai_preemption_grace_period_seconds",
    "kai_queue_wait_time_p99_seconds",
)


def families(metrics: Metrics) -> dict[str, str]:
    text = generate_latest(metrics.registry).decode()
    return {family.name: family.documentation for family in text_string_to_metric_families(text)}


def test_every_metric_says_what_it_is() -> None:
    found = families(Metrics())
    assert all(text.endswith(".") for name, text in found.items() if name.startswith("kai_"))
    assert len(found) > 50


@pytest.mark.parametrize("name", TAUGHT)
def test_what_articles_teach_is_there(name: str) -> None:
    assert name in families(Metrics())


def test_counters_end_in_total_when_scraped() -> None:
    metrics = Metrics()
    metrics.decisions.labels("accept").inc()
    text = generate_latest(metrics.registry).decode()
    assert 'kai_scheduling_decisions_total{decision="accept"} 1.0' in text


def test_another_namespace_renames_all() -> None:
    renamed = {name for name in families(Metrics(namespace="gpu")) if not name.startswith(("process_", "python_"))}
    assert renamed
    assert all(name.startswith("gpu_") for name in renamed)


def test_two_processes_do_not_share_a_registry() -> None:
    first, second = Metrics(), Metrics()
    first.depth_total.set(3)
    assert second.registry.get_sample_value("kai_queue_depth_total") == 0.0


def test_the_process_is_measured_under_the_names_of_all_exporters() -> None:
    registry = Metrics().registry
    found = {name: registry.get_sample_value(name) for name in ("process_resident_memory_bytes", "process_open_fds")}
    assert all(value is not None and value > 0 for value in found.values()), found
    assert "process_cpu_seconds" in families(Metrics())
    assert "python_info" in families(Metrics())
