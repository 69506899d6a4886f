"""Past usage from a metrics store: which one a SchedulingShard or the Config names, and how the past counts.

Source: docs/kai-behaviour.md#usage, #shard.
"""

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from kai_solver.errors import InputError, shown
from kai_solver.fairness import UsageParams
from kai_solver.kubeobjects.honoured import ANYTHING, Rules
from kai_solver.kubeobjects.raw import Raw

ALLOCATED = ("kai_queue_allocated_cpu_cores", "kai_queue_allocated_memory_bytes", "kai_queue_allocated_gpus")
CAPACITY = tuple(f'sum(kube_node_status_capacity{{resource="{name}"}})' for name in ("cpu", "memory", "nvidia_com_gpu"))
"""KAI's metrics of CPU, memory and GPUs: of queues, by the label ``queue_name``, and of the cluster."""

HONOURED: Rules = {
    re.compile(r"spec\.usageDBConfig\.clientType"): re.compile("prometheus"),
    re.compile(r"spec\.usageDBConfig\.connectionString(EnvVar)?"): ANYTHING,
    re.compile(r"spec\.usageDBConfig\.usageParams\.windowType"): re.compile("sliding|tumbling"),
    re.compile(
        r"spec\.usageDBConfig\.usageParams\.(halfLifePeriod|windowSize|tumblingWindowStartTime|fetchInterval"
        r"|stalenessPeriod|waitTimeout)"
    ): ANYTHING,
    re.compile(
        r"spec\.usageDBConfig(\.usageParams)?\.extraParams\.((cpu|memory|gpu)(Allocation|Capacity)Metric"
        r"|usageQueryTimeout|queryResolution)"
    ): ANYTHING,
}
"""Fields below ``usageDBConfig`` that are used."""

_UNITS_S = {"y": 365 * 86_400.0, "w": 604_800.0, "d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile("".join(rf"(?:(\d{{1,9}}(?:\.\d{{1,9}})?){unit})?" for unit in _UNITS_S))
"""As Prometheus writes them, and as Go does: KAI reads the window so, and the others so."""

_LONGEST_S = 100 * _UNITS_S["y"]
"""No clock or network library counts much longer ones."""

_DURATION_CURE = 'Write a duration as Prometheus does, "1w", "1d12h", "10m", or as Go does, "1.5h"'


@dataclass(frozen=True, slots=True)
class UsageStore:
    """A Prometheus with what queues held, and how that counts (KAI: ``usageDBConfig``, with its defaults).

    Attributes
    ----------
    url
        Its address; a user and a password may be in it.
    url_variable
        The environment variable that holds the address, if ``url`` is empty.
    interval_s
        How often it is asked.
    wait_s
        For how long nothing is decided before its first answer.
    timeout_s
        How long all answers together may take.
    allocated, capacity
        Expressions for CPU in cores, memory in bytes, and GPUs: by the label ``queue_name``, and of the cluster.
    stated_in
        The object or setting that names it, for notices.
    """

    url: str = field(default="", repr=False)
    url_variable: str = ""
    params: UsageParams = field(default_factory=UsageParams)
    interval_s: float = 60.0
    wait_s: float = 60.0
    timeout_s: float = 10.0
    allocated: tuple[str, ...] = ALLOCATED
    capacity: tuple[str, ...] = CAPACITY
    stated_in: str = field(default="", compare=False)

    def __str__(self) -> str:
        """Without user and password: logs and events show it."""
        return place_of(self.url) if self.url else f"${self.url_variable}"


def place_of(url: str) -> str:
    """Scheme, host and port of an address.

    Raises
    ------
    InputError
        It is none of a server that speaks HTTP.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError("is no address of a Prometheus", cure="Write http://HOST:PORT or https://HOST:PORT")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{port}" if port is not None else "")


def without_login(url: str) -> str:
    """An address without user and password."""
    return re.sub("//.*@", "//", url)


def store_of_config(raw: Raw) -> str:
    """Address of the Prometheus that KAI's Config names, or that KAI's operator runs by it; empty where there is none.

    Raises
    ------
    InputError
        A value has the wrong type.
    """
    external = raw.text("spec.prometheus.externalPrometheusUrl")
    if external or not raw.flag("spec.prometheus.enabled"):
        return external
    return f"http://usage-prometheus.{raw.text('spec.namespace') or 'kai-scheduler'}.svc.cluster.local:9090"


def read_store(spec: Raw, usual_url: str, stated_in: str) -> UsageStore | None:
    """The store that the spec of a SchedulingShard names; None where it names none that can be asked.

    ``usual_url``: the address where the shard names none; ``stated_in``: the shard. Windows by cron cannot be asked.

    Raises
    ------
    InputError
        A value cannot be read; names the field.
    """
    stated = spec.get("usageDBConfig")
    params = stated.get("usageParams")
    window = params.text("windowType", "sliding")
    if stated.text("clientType") != "prometheus" or window not in ("sliding", "tumbling"):
        return None
    variable = stated.text("connectionStringEnvVar")
    url = stated.text("connectionString") or ("" if variable else usual_url)
    if not (url or variable):
        cure = "State one, or enable Prometheus in KAI's Config"
        raise InputError("names no Prometheus", field=f"{stated.path}.connectionString", cure=cure)
    if url:
        try:
            place_of(url)
        except InputError as error:
            raise InputError(error.problem, field=f"{stated.path}.connectionString", cure=error.cure) from None
    base, usual = UsageStore(), UsageParams()
    half_life_s = _duration_s(params.get("halfLifePeriod"), 0.0)
    extra = params.get("extraParams") or stated.get("extraParams")
    return UsageStore(
        url=url,
        url_variable="" if url else variable,
        params=UsageParams(
            window="tumbling" if window == "tumbling" else "sliding",
            size_s=_duration_s(params.get("windowSize"), usual.size_s, positive=True),
            start_s=params.get("tumblingWindowStartTime").time_s() or usual.start_s,
            half_life_s=half_life_s or None,
            resolution_s=_duration_s(extra.get("queryResolution"), usual.resolution_s, positive=True),
            staleness_s=_duration_s(params.get("stalenessPeriod"), usual.staleness_s),
        ),
        interval_s=_duration_s(params.get("fetchInterval"), base.interval_s, positive=True),
        wait_s=_duration_s(params.get("waitTimeout"), base.wait_s),
        timeout_s=_duration_s(extra.get("usageQueryTimeout"), base.timeout_s, positive=True),
        allocated=_metrics(extra, "AllocationMetric", base.allocated),
        capacity=_metrics(extra, "CapacityMetric", base.capacity),
        stated_in=stated_in,
    )


def _metrics(extra: Raw, kind: str, usual: tuple[str, ...]) -> tuple[str, ...]:
    stated = (extra.text(f"{resource}{kind}") for resource in ("cpu", "memory", "gpu"))
    return tuple(one or other for one, other in zip(stated, usual, strict=True))


def _duration_s(raw: Raw, usual_s: float, *, positive: bool = False) -> float:
    """Seconds of a duration of Prometheus or Go; ``usual_s`` where there is none."""
    if not raw:
        return usual_s
    text = raw.text()
    found = _DURATION.fullmatch(text) if text not in ("", "0") else None
    if found is None and text != "0":
        raise InputError(f"{shown(text)} is no duration", field=raw.path, cure=_DURATION_CURE)
    parts = found.groups() if found is not None else ()
    seconds = sum(float(part) * unit_s for part, unit_s in zip(parts, _UNITS_S.values(), strict=False) if part)
    if positive and seconds <= 0:
        raise InputError("is not above zero", field=raw.path, cure=_DURATION_CURE)
    if seconds > _LONGEST_S:
        raise InputError(f"{shown(text)} is more than 100 years", field=raw.path, cure="Write a shorter duration")
    return seconds
