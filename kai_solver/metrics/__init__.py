"""Every metric, its name and its help, in one place: dashboards, alerts and docs may name these and no others.

Three families. KAI's own, where its dashboards use them (docs/kai-behaviour.md#metrics): same names, same units. Those
that the articles on KAI teach. And ours, in base units, named ``kai_solver_*``. The client library adds ``process_*``
and ``python_info``, as every exporter has them.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector

QUEUE = ("queue_name", "queue_metadata_name", "queue_display_name")
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_WAITS = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)
_MILLISECONDS = tuple(5.0 * 2**exponent for exponent in range(10))


class Metrics:
    """The metrics of one process, on a registry of their own.

    Parameters
    ----------
    namespace
        Prefix of all names but those of the client library.
    """

    def __init__(self, registry: CollectorRegistry | None = None, namespace: str = "kai") -> None:
        self.registry = registry if registry is not None else CollectorRegistry()
        self._namespace = namespace
        self._of_kai_scheduler()
        self._of_kai_queues()
        self._of_articles()
        self._own()
        for collector in (ProcessCollector(registry=None), PlatformCollector(registry=None)):
            self.registry.register(collector)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"{self._namespace}_{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{self._namespace}_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"{self._namespace}_{name}", text, labels, buckets=buckets, registry=self.registry)

    def _of_kai_scheduler(self) -> None:
        self.e2e_ms = self._gauge("e2e_scheduling_latency_milliseconds", "Duration of the last cycle.")
        self.open_session_ms = self._gauge("open_session_latency_milliseconds", "Time to read the cluster, last cycle.")
        self.close_session_ms = self._gauge(
            "close_session_latency_milliseconds", "Time to act on the plan, last cycle."
        )
        self.action_ms = self._gauge("action_scheduling_latency_milliseconds", "Time of a phase, last cycle.", "action")
        self.task_ms = self._histogram(
            "task_scheduling_latency_milliseconds", "From a pod's creation to its place in a plan.", _MILLISECONDS
        )
        self.bind_ms = self._histogram(
            "task_bind_latency_milliseconds", "From a plan to the pod's binding.", _MILLISECONDS
        )
        self.scheduled = self._counter("podgroups_scheduled_by_action", "PodGroups that were placed.", "action")
        self.acted_on = self._counter(
            "podgroups_acted_on_by_action", "PodGroups that were tried, once a cycle.", "action"
        )
        self.preemption_attempts = self._counter("total_preemption_attempts", "Plans that evict pods.")
        self.evicted = self._counter(
            "pod_group_evicted_pods", "Evicted pods.", "podgroup", "namespace", "uid", "nodepool", "action"
        )
        self.fair_share_cpu = self._gauge("queue_fair_share_cpu_cores", "Fair share of the queue.", *QUEUE)
        self.fair_share_memory = self._gauge("queue_fair_share_memory_gb", "Fair share of the queue.", *QUEUE)
        self.fair_share_gpu = self._gauge("queue_fair_share_gpu", "Fair share of the queue.", *QUEUE)
        self.past_cpu = self._gauge("queue_cpu_usage", "Past usage of the queue.", *QUEUE)
        self.past_memory = self._gauge("queue_memory_usage", "Past usage of the queue.", *QUEUE)
        self.past_gpu = self._gauge("queue_gpu_usage", "Past usage of the queue.", *QUEUE)
        self.usage_query_ms = self._histogram(
            "usage_query_latency_milliseconds", "Time to ask Prometheus for past usage.", _MILLISECONDS
        )

    def _of_kai_queues(self) -> None:
        self.queue_info = self._gauge("queue_info", "1 for each queue.", *QUEUE)
        self.deserved_gpus = self._gauge("queue_deserved_gpus", "Quota; -1 is unlimited.", *QUEUE)
        self.quota_cpu = self._gauge("queue_quota_cpu_cores", "Quota; -1 is unlimited.", *QUEUE)
        self.quota_memory = self._gauge("queue_quota_memory_bytes", "Quota; -1 is unlimited.", *QUEUE)
        self.allocated_gpus = self._gauge("queue_allocated_gpus", "What the queue holds.", *QUEUE)
        self.allocated_cpu = self._gauge("queue_allocated_cpu_cores", "What the queue holds.", *QUEUE)
        self.allocated_memory = self._gauge("queue_allocated_memory_bytes", "What the queue holds.", *QUEUE)

    def _of_articles(self) -> None:
        self.depth = self._gauge("queue_depth", "Pending gangs, by priority class.", "priority")
        self.depth_total = self._gauge("queue_depth_total", "Pending gangs.")
        self.quota_percent = self._gauge("quota_usage_percent", "GPUs held, in percent of the quota.", "team")
        self.fair_share_usage = self._gauge("fairshare_quota_usage", "GPUs held, as a part of the fair share.", "team")
        self.decisions = self._counter("scheduling_decisions", "Gangs: accept, queue or reject.", "decision")
        self.gang_success = self._gauge(
            "gang_scheduling_success_rate", "Share of tried gangs that were placed.", "priority"
        )
        self.completion = self._histogram(
            "gang_job_completion_time_seconds", "From a gang's creation to its last pod's end.", _WAITS, "team"
        )
        self.preemptions = self._counter("preemptions", "Evicted pods, by priority class.", "priority")
        self.grace = self._histogram("preemption_grace_period_seconds", "From an eviction to the pod's end.", _WAITS)
        self.wait_p99 = self._gauge("queue_wait_time_p99_seconds", "99th percentile of the last 1,000 gangs' waits.")

    def _own(self) -> None:
        self.build_info = self._gauge("solver_build_info", "1, with the versions that run.", "version", "ortools")
        self.cycles = self._counter("solver_cycles", "Cycles, by source of the plan.", "source")
        self.phase = self._histogram("solver_phase_seconds", "Time of a phase of a cycle.", _SECONDS, "phase")
        self.stage_value = self._gauge("solver_stage_value", "Value of an objective stage, last plan.", "stage")
        self.stage_bound = self._gauge("solver_stage_bound", "Proven bound of an objective stage, last plan.", "stage")
        self.stage_gap = self._gauge(
            "solver_stage_gap_ratio", "(value - bound) / max(bound, 1% of the stake), last plan.", "stage"
        )
        self.fallbacks = self._counter(
            "solver_fallbacks", "Plans made by the greedy scheduler alone, by cause.", "cause"
        )
        self.faults = self._counter(
            "solver_faults", "Unexpected errors that affected one object, gang or part, by activity.", "where"
        )
        self.quarantined = self._gauge(
            "solver_quarantined_gangs", "Gangs in quarantine: decisions leave them out for a while."
        )
        self.compiled = self._gauge("solver_compiled", "1 if cycles of a large cluster run compiled kernels.")
        self.proofs = self._gauge("solver_pending_gangs", "Pending gangs, by the state of their proof.", "proof")
        self.pending_since = self._gauge(
            "solver_pending_since_timestamp_seconds",
            "Creation of the 20 oldest pending gangs, as namespace/name, with the reason why they wait.",
            "gang",
            "queue",
            "reason",
        )
        self.free_block = self._gauge(
            "solver_largest_free_block_gpus", "Most free GPUs in one row on the node.", "node"
        )
        self.held_gpus = self._gauge(
            "solver_held_gpus", "GPUs that pods hold, by how it is known which ones: fact, wish or unknown.", "known"
        )
        self.wait = self._histogram("solver_gang_wait_seconds", "From a gang's creation to its place.", _WAITS)
        self.binds = self._counter("solver_binds", "Pods bound, by outcome.", "outcome")
        self.evictions = self._counter("solver_evictions", "Requested evictions, by outcome.", "outcome")
        self.kills = self._counter("solver_evicted_pods_ended", "Evicted pods: gracefully, or killed.", "how")
        self.set_aside = self._gauge("solver_objects_set_aside", "Objects that cannot be used, by kind.", "kind")
        self.without_queue = self._gauge(
            "solver_pods_without_queue", "Running pods of a queue that was deleted or has children.", "queue"
        )
        self.assumed_expired = self._counter("solver_assumptions_expired", "Writes that no watch ever showed.")
        self.promises_broken = self._counter("solver_promises_broken", "Moved pods that were not created again.")
        self.usage_age = self._gauge(
            "solver_past_usage_age_seconds", "Age of the past usage that counts; 0 if none is configured."
        )
        self.usage_failures = self._counter("solver_past_usage_failures", "Failed attempts to ask for past usage.")
        self.status_writes = self._counter(
            "solver_status_writes",
            "Writes of statuses and events: written, failed (and tried again), refused or dropped.",
            "outcome",
        )
        self.relists = self._counter("solver_watch_faults", "Lists and watches that failed.", "resource", "reason")
        self.api_seconds = self._histogram(
            "solver_api_request_seconds", "Requests to the API server, without watches.", _SECONDS, "verb"
        )
        self.api_silent = self._gauge(
            "solver_api_silent_seconds", "Seconds since the API server last answered; 0 while it answers."
        )
        self.admission = self._counter(
            "solver_admission_reviews", "Admission reviews, by outcome.", "kind", "operation", "outcome"
        )
        self.admission_seconds = self._histogram("solver_admission_seconds", "Time of an admission review.", _SECONDS)
        self.dropped_connections = self._counter(
            "solver_connections_dropped",
            "Connections that were closed: head, body or answer overdue, idle, full, or too many bytes.",
            "listener",
            "reason",
        )
        self.leader = self._gauge("solver_leader", "1 if this process leads.")
        self.beside_kai = self._gauge("solver_beside_kai", "1 if KAI's own scheduler schedules the same pods.")
        self.loop_alive = self._gauge(
            "solver_loop_timestamp_seconds", "When the loop last moved, with or without a cycle."
        )
        self.beat = self._gauge("solver_last_cycle_timestamp_seconds", "When the last cycle ended.")
