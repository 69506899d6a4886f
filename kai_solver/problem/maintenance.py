"""Nodes that are to be drained, as a rule of the pods: each says which of them it may not start on any more.

A pod starts on no node where its run time would pass the node's drain time (`Node.drain_at_s`). A pod of unknown run
time starts there, if it is preemptible, until pods like it are moved away (`lead_s`): else what was moved could come
back. So the nodes that are closed to a pod are those drained up to some time, and that time is what the pod says
(`Constraints`). Nothing of this leaves the problem.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace

from kai_solver.domain import Constraints, Gang, Pod, Policy, Snapshot

_MOST_KNOWN = 20_000
"""Pairs of constraints and times that are held on to."""


def lead_s(policy: Policy, pod: Pod) -> float:
    """Seconds before a drain at which ``pod`` is moved away: time to end, and time to start elsewhere."""
    return policy.drain_lead_s + pod.grace_s


class Maintenance:
    """Writes the rule into snapshots of one cluster; what did not change stays the same object."""

    def __init__(self) -> None:
        self._gangs: dict[int, tuple[Gang, tuple[float | None, ...], Gang]] = {}
        self._known: dict[tuple[int, float], tuple[Constraints, Constraints]] = {}

    def written(self, snapshot: Snapshot) -> Snapshot:
        """``snapshot`` with the rule as its pods' own; the very same where no node is to be drained."""
        times = sorted({node.drain_at_s for node in snapshot.nodes if node.drain_at_s is not None})
        if not times:
            self._gangs = {}
            return snapshot
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        closed_until_s = _ClosedUntil(times, snapshot.now_s)
        before, self._gangs = self._gangs, {}
        gangs = []
        for gang in snapshot.gangs:
            closed = tuple(
                closed_until_s(pod.run_time_s, gang.preemptible, lead_s(snapshot.policy, pod))
                if pod.status.is_alive
                else None
                for pod in gang.pods
            )
            known = before.get(id(gang))
            if known is None or known[1] != closed:
                known = gang, closed, self._gang(gang, closed)
            self._gangs[id(gang)] = known
            gangs.append(known[2])
        return replace(snapshot, gangs=tuple(gangs))

    def _gang(self, gang: Gang, closed: tuple[float | None, ...]) -> Gang:
        if not any(until_s is not None for until_s in closed):
            return gang
        pods = zip(gang.pods, closed, strict=True)
        return replace(gang, pods=tuple(pod if s is None else self._pod(pod, s) for pod, s in pods))

    def _pod(self, pod: Pod, until_s: float) -> Pod:
        key = id(pod.constraints), until_s
        if key not in self._known:
            self._known[key] = pod.constraints, replace(pod.constraints, closed_until_s=until_s)
        return replace(pod, constraints=self._known[key][1])


class _ClosedUntil:
    """The last of the drain ``times_s``, in order, that a pod would pass which starts now; None where there is none."""

    def __init__(self, times_s: Sequence[float], now_s: float) -> None:
        self._times_s = times_s
        self._now_s = now_s
        self._known: dict[tuple[float | None, bool, float], float | None] = {}

    def __call__(self, run_time_s: float | None, preemptible: bool, lead_s: float) -> float | None:
        key = run_time_s, preemptible, lead_s
        if key not in self._known:
            unknown_s = lead_s if preemptible else math.inf
            end_s = self._now_s + (unknown_s if run_time_s is None else run_time_s)
            past = max(bisect_right(self._times_s, self._now_s), bisect_left(self._times_s, end_s))
            self._known[key] = self._times_s[past - 1] if past else None
        return self._known[key]
