"""Hold an outcome against what a case asserts."""

from collections.abc import Iterator
from itertools import combinations

from kai_solver.domain import Gang, Plan, Pod, Snapshot
from kai_solver.lab.conformance.amounts import TOLERANCE, gpus_left, request_differences
from kai_solver.lab.conformance.casefile import Case, Expectation
from kai_solver.lab.conformance.equal_nodes import NodeNames, node_classes
from kai_solver.lab.conformance.outcome import Outcome
from kai_solver.lab.conformance.states import TaskState
from kai_solver.lab.conformance.zones import available_differences, zone_differences


def differences(case: Case, outcome: Outcome) -> tuple[str, ...]:
    """Everything asserted that does not hold, in words; empty when the case came out as expected."""
    return tuple(_Comparison(case, outcome).differences())


class Tasks:
    """Pods and gangs of a case by the short names that cases use."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.gang_of: dict[str, Gang] = {}
        self.by_id: dict[str, Pod] = {}
        self.job: dict[str, Gang] = {}
        for gang in snapshot.gangs:
            self.job[gang.key] = gang
            self.job.setdefault(gang.name, gang)
            for pod in gang.pods:
                self.gang_of[pod.key] = gang
                self.by_id[pod.key] = pod
                self.by_id.setdefault(pod.name, pod)


class _Comparison:
    """One comparison: the renaming of equal nodes grows while it runs."""

    def __init__(self, case: Case, outcome: Outcome) -> None:
        self._case = case
        self._outcome = outcome
        self._tasks = Tasks(outcome.before)
        self._nodes = {node.name: node for node in outcome.before.nodes}
        self._names = NodeNames(node_classes(outcome.before, outcome.states))

    def differences(self) -> Iterator[str]:
        asserted = list(self._asserted_pods())
        self._pin_unmoved(asserted)
        yield from self._unknown_names()
        for pod, expected in asserted:
            yield from self._state(pod, expected)
        yield from self._requests()
        yield from self._sharing(asserted)
        yield from self._node_amounts()
        yield from self._cache_calls()
        yield from self._outcome.unstable

    def _asserted_pods(self) -> Iterator[tuple[Pod, Expectation]]:
        for name, expected in self._case.expected.jobs.items():
            gang = self._tasks.job.get(name)
            for pod in gang.pods if gang else ():
                yield pod, expected
        for name, expected in self._case.expected.tasks.items():
            pod_of_task = self._tasks.by_id.get(name)
            if pod_of_task:
                yield pod_of_task, expected

    def _requests(self) -> Iterator[str]:
        jobs = {name: gang.pods for name, gang in self._tasks.job.items()}
        tasks = {name: (pod,) for name, pod in self._tasks.by_id.items()}
        for asserted, pods_of in ((self._case.expected.jobs, jobs), (self._case.expected.tasks, tasks)):
            for name, expected in asserted.items():
                if name in pods_of:
                    claims = name in self._case.claiming
                    yield from request_differences(name, pods_of[name], expected, self._outcome, claims=claims)

    def _unknown_names(self) -> Iterator[str]:
        """What the file has and the snapshot lost; a name that the file does not have asserts nothing, as in KAI."""
        for name in (self._case.expected.jobs.keys() & self._case.jobs) - self._tasks.job.keys():
            yield f"job {name} is not in the snapshot"
        for name in (self._case.expected.tasks.keys() & self._case.tasks) - self._tasks.by_id.keys():
            yield f"task {name} is not in the snapshot"

    def _pin_unmoved(self, asserted: list[tuple[Pod, Expectation]]) -> None:
        """Tasks expected to stay where they were make their node that very node."""
        for pod, expected in asserted:
            if pod.node and expected.node == pod.node and self._outcome.states[pod.key].node == pod.node:
                self._names.pin(pod.node)

    def _state(self, pod: Pod, expected: Expectation) -> Iterator[str]:
        state = self._outcome.states[pod.key]
        if expected.status is not None and state.status != expected.status:
            yield f"{pod.name} is {state}, expected {expected.status}{_at(expected.node)}"
        elif expected.node is not None and state.node and not self._is_at(pod, state, expected.node):
            yield f"{pod.name} is {state}, expected on {expected.node}"
        if expected.last_start_older_than_s is not None and self._restarted(pod):
            yield f"{pod.name} was restarted"
        if expected.error_message is not None and not self._says(pod, expected.error_message):
            yield f"{pod.name}: the message differs from {expected.error_message!r}"
        because = self._outcome.waits_because.get(self._tasks.gang_of[pod.key].key, "")
        for words in expected.says:
            if words not in because:
                yield f"{pod.name} waits because of {because.strip() or 'nothing'!r}, expected to say {words!r}"
        if expected.numa_zones is not None:
            yield from zone_differences(pod.name, state, self._nodes.get(state.node), expected.numa_zones)

    def _is_at(self, pod: Pod, state: TaskState, expected: str) -> bool:
        stayed = pod.node == state.node and state.status == pod.status.value
        return state.node == expected if stayed else self._names.same(expected, state.node)

    def _restarted(self, pod: Pod) -> bool:
        touched = {e.pod for p in self._outcome.plans for e in p.evictions}
        touched |= {m.pod for p in self._outcome.plans for m in p.moves}
        return pod.key in touched

    def _says(self, pod: Pod, text: str) -> bool:
        """Whether a message is ``text``; KAI's tables leave namespaces empty, which no cluster does."""
        gang = self._tasks.gang_of[pod.key]
        said = self._outcome.pending_messages.get(gang.key, ())
        if self._case.is_without_namespace(gang.name):
            said = tuple(message.replace(f"{gang.namespace}/", "/") for message in said)
        return text in said

    def _sharing(self, asserted: list[tuple[Pod, Expectation]]) -> Iterator[str]:
        """Tasks of one node that are given the same group share a device, others do not.

        KAI compares groups only where its own names equal the expected ones, so some tables assert what no outcome
        has, KAI's included. An assertion that the recorded outcome does not meet asserts nothing.
        """
        grouped = [
            (pod, expected)
            for pod, expected in asserted
            if expected.gpu_groups and not expected.dont_validate_gpu_group and pod.gpu.is_shared
        ]
        for (a, of_a), (b, of_b) in combinations(grouped, 2):
            state_a, state_b = self._outcome.states[a.key], self._outcome.states[b.key]
            if a.key == b.key or of_a.node != of_b.node or not (state_a.devices and state_b.devices):
                continue
            expected = not set(of_a.gpu_groups).isdisjoint(of_b.gpu_groups)
            shares = state_a.node == state_b.node and not state_a.devices.isdisjoint(state_b.devices)
            if shares != expected and self._kai_shares(a, b) in (None, expected):
                yield f"{a.name} and {b.name} {'share a GPU' if shares else 'do not share a GPU'}, expected otherwise"

    def _kai_shares(self, a: Pod, b: Pod) -> bool | None:
        """Whether the two shared a device in KAI's outcome; None where that is not recorded."""
        recorded = self._case.actual.at_match if self._case.actual else None
        if recorded is None or a.name not in recorded or b.name not in recorded:
            return None
        of_a, of_b = recorded[a.name], recorded[b.name]
        return of_a.node == of_b.node and not set(of_a.gpu_groups).isdisjoint(of_b.gpu_groups)

    def _node_amounts(self) -> Iterator[str]:
        for name, expected in self._case.expected.nodes.items():
            if name not in self._nodes:
                continue
            idle, releasing = gpus_left(self._outcome, self._tasks.by_id, self._names.ours(name))
            if expected.idle_gpus is not None and abs(idle - expected.idle_gpus) > TOLERANCE:
                yield f"{name} has {idle} idle GPUs, expected {expected.idle_gpus:g}"
            if expected.releasing_gpus is not None and abs(releasing - expected.releasing_gpus) > TOLERANCE:
                yield f"{name} has {releasing} releasing GPUs, expected {expected.releasing_gpus:g}"
            if expected.numa_zones_available is not None:
                node = self._nodes[self._names.ours(name)]
                yield from available_differences(node, self._outcome, expected.numa_zones_available)

    def _cache_calls(self) -> Iterator[str]:
        bounds = self._case.expected.max_cache_calls
        for number, plan in enumerate(self._outcome.plans, 1):
            binds, evictions, pipelined = cache_calls(plan)
            for what, count, bound in (
                ("binds", binds, bounds.binds),
                ("evictions", evictions, bounds.evictions),
                ("pipelined", pipelined, bounds.pipelined),
            ):
                if bound is not None and count > bound:
                    yield f"round {number}: {count} {what}, at most {bound} expected"


def cache_calls(plan: Plan) -> tuple[int, int, int]:
    """(binds, evictions, pipelined) in KAI's counting: a move is an eviction and a pipelined pod."""
    nominated = sum(bind.nominated for bind in plan.binds)
    return len(plan.binds) - nominated, len(plan.evictions) + len(plan.moves), nominated + len(plan.moves)


def _at(node: str | None) -> str:
    return f" on {node}" if node else ""
