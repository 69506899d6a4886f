"""Which Prometheus a SchedulingShard or KAI's Config names for past usage, and what of that is not usable."""

from typing import Any

import pytest

from kai_solver.errors import InputError
from kai_solver.fairness import UsageParams
from kai_solver.kubeobjects.notices import Notices
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.settings import KubeSettings
from kai_solver.kubeobjects.shards import with_config, with_shard
from kai_solver.kubeobjects.usagedb import ALLOCATED, CAPACITY, UsageStore, place_of

URL = "http://store:9090"


def read(stated: Any, config: dict[str, Any] | None = None) -> tuple[UsageStore | None, list[str]]:
    notices, settings = Notices(), KubeSettings()
    if config is not None:
        settings = with_config(Raw({"kind": "Config", "spec": config}), settings, notices)
    shard = {"kind": "SchedulingShard", "metadata": {"name": "default"}, "spec": {"kValue": 3, "usageDBConfig": stated}}
    found = with_shard(Raw(shard), settings, notices)
    assert found.policy.k_value == 3.0, "the rest of the shard counts"
    return found.past_usage, [notice.text for notice in notices.all()]


def test_what_is_not_stated_is_kais_default() -> None:
    found, told = read({"clientType": "prometheus", "connectionString": URL})
    assert told == []
    assert found == UsageStore(URL)
    assert found is not None
    assert found.params == UsageParams()
    assert (found.interval_s, found.wait_s, found.timeout_s, found.stated_in) == (
        60.0,
        60.0,
        10.0,
        "SchedulingShard default",
    )


def test_everything_that_can_be_stated() -> None:
    params = {
        "halfLifePeriod": "10m",
        "windowSize": "1w2d",
        "windowType": "tumbling",
        "tumblingWindowStartTime": "2026-11-02T00:00:00Z",
        "fetchInterval": "30s",
        "stalenessPeriod": "1.5h",
        "waitTimeout": "500ms",
        "extraParams": {"usageQueryTimeout": "5s", "queryResolution": "2m", "gpuAllocationMetric": "gpus"},
    }
    found, told = read({"clientType": "prometheus", "connectionStringEnvVar": "STORE", "usageParams": params})
    assert told == []
    assert found == UsageStore(
        url_variable="STORE",
        params=UsageParams("tumbling", 9 * 86_400.0, 1_793_577_600.0, 600.0, 120.0, staleness_s=5400.0),
        interval_s=30.0,
        wait_s=0.5,
        timeout_s=5.0,
        allocated=(*ALLOCATED[:2], "gpus"),
    )


def test_an_address_is_not_in_what_is_printed_of_a_store() -> None:
    assert "secret" not in repr(UsageStore("http://me:secret@h")) + str(UsageStore("http://me:secret@h"))


def test_extra_parameters_stand_where_kais_documentation_has_them_too() -> None:
    stated = {"clientType": "prometheus", "connectionString": URL, "extraParams": {"cpuCapacityMetric": "sum(cores)"}}
    found, told = read(stated)
    assert told == []
    assert found is not None
    assert found.capacity == ("sum(cores)", *CAPACITY[1:])


@pytest.mark.parametrize(
    ("config", "url"),
    [
        ({"prometheus": {"enabled": True}}, "http://usage-prometheus.kai-scheduler.svc.cluster.local:9090"),
        ({"prometheus": {"enabled": True}, "namespace": "kai"}, "http://usage-prometheus.kai.svc.cluster.local:9090"),
        ({"prometheus": {"enabled": True, "externalPrometheusUrl": URL}}, URL),
        ({"prometheus": {"externalPrometheusUrl": URL}}, URL),
    ],
)
def test_a_shard_without_an_address_takes_the_one_of_the_config(config: dict[str, Any], url: str) -> None:
    found, told = read({"clientType": "prometheus"}, config)
    assert told == []
    assert found == UsageStore(url)


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ({"clientType": "prometheus"}, "names no Prometheus. State one, or enable Prometheus in KAI's Config"),
        ({"clientType": "prometheus", "connectionString": "store"}, "is no address of a Prometheus"),
        ({"clientType": "prometheus", "connectionString": "http://h:x"}, "is no address of a Prometheus"),
        ({"clientType": "fake"}, "not honoured yet: spec.usageDBConfig.clientType"),
        ({"clientType": "prometheus", "usageParams": {"windowType": "cron", "cronString": "* * * * *"}}, "cronString"),
        ({"clientType": "prometheus", "connectionString": URL, "usageParams": {"windowSize": "a week"}}, "no duration"),
        ({"clientType": "prometheus", "connectionString": URL, "usageParams": {"windowSize": "0"}}, "not above zero"),
        ({"clientType": "prometheus", "connectionString": URL, "usageParams": {"fetchInterval": 5}}, "fetchInterval"),
        (
            {
                "clientType": "prometheus",
                "connectionString": URL,
                "extraParams": {"usageQueryTimeout": "900000000y"},
            },
            "usageQueryTimeout: '900000000y' is more than 100 years",
        ),
        (["prometheus"], "past usage is not used"),
    ],
)
def test_what_cannot_be_used_is_told_and_the_shard_counts(stated: Any, told: str) -> None:
    found, texts = read(stated)
    assert found is None
    assert told in " ".join(texts)


@pytest.mark.parametrize("url", ["", "store:9090", "file:///etc/passwd", "http://", "http://[::1", "http://h:99999"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(InputError):
        place_of(url)
