"""The next moment of a cluster: a plan takes effect, and a part of the gangs is exchanged."""

from dataclasses import replace

import numpy as np

from kai_solver.domain import Gang, Plan, Pod, PodStatus, Snapshot

CHANGED = 0.01
"""Of the gangs, from one cycle to the next."""
PERIOD_S = 1.0


def next_moment(snapshot: Snapshot, plan: Plan, seed: int) -> Snapshot:
    """The cluster one period later: pods that the plan binds run, pods that it evicts wait.

    Then one running gang of a hundred has finished, and one waiting gang of a hundred, drawn at random, has a twin that
    has just arrived.
    """
    now_s = snapshot.now_s + PERIOD_S
    gangs = _applied(snapshot, plan, now_s)
    draw = np.random.default_rng([seed, round(now_s)])
    running = [i for i, gang in enumerate(gangs) if gang.pods[0].status is PodStatus.RUNNING]
    waiting = [gang for gang in gangs if gang.pods[0].status is PodStatus.PENDING]
    finished = set(draw.permutation(running)[: _part(len(running))].tolist())
    arrived = [waiting[i] for i in draw.permutation(len(waiting))[: _part(len(waiting))].tolist()]
    stay = [gang for i, gang in enumerate(gangs) if i not in finished]
    new = [_twin(gang, f"{gang.name}-at-{round(now_s)}", now_s) for gang in arrived]
    return replace(snapshot, now_s=now_s, gangs=(*stay, *new))


def _part(count: int) -> int:
    return max(1, round(CHANGED * count)) if count else 0


def _applied(snapshot: Snapshot, plan: Plan, now_s: float) -> list[Gang]:
    """Gangs after the plan; the pods that nothing happens to stay the same objects."""
    places = {bind.pod: bind.node for bind in plan.binds} | {move.pod: move.target for move in plan.moves}
    gone = {eviction.pod for eviction in plan.evictions}
    touched = {bind.gang for bind in plan.binds}
    touched |= {move.gang for move in plan.moves} | {eviction.gang for eviction in plan.evictions}
    return [_gang(gang, places, gone, now_s) if gang.key in touched else gang for gang in snapshot.gangs]


def _gang(gang: Gang, places: dict[str, str], gone: set[str], now_s: float) -> Gang:
    pods = tuple(_pod(pod, places.get(pod.key, ""), pod.key in gone) for pod in gang.pods)
    started = any(pod.key in places and pod.status is PodStatus.PENDING for pod in gang.pods)
    evicted = any(pod.key in gone for pod in gang.pods)
    return replace(
        gang,
        pods=pods,
        last_start_s=now_s if started else gang.last_start_s,
        last_eviction_s=now_s if evicted else gang.last_eviction_s,
    )


def _pod(pod: Pod, node: str, is_gone: bool) -> Pod:
    if node:
        return replace(pod, node=node, status=PodStatus.RUNNING, devices=(), nominated_node="")
    return replace(pod, node="", status=PodStatus.PENDING, devices=()) if is_gone else pod


def _twin(gang: Gang, name: str, now_s: float) -> Gang:
    pods = []
    for number, pod in enumerate(gang.pods):
        new = f"{name}-{number:03}"
        pods.append(replace(pod, name=new, order=(0, 0.0, new)))
    return replace(gang, name=name, pods=tuple(pods), created_s=now_s, last_start_s=None, last_eviction_s=None)
