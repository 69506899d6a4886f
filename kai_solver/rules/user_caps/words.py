"""Caps per user in words: why a gang waits, what blocks, and the cluster without the cap."""

from dataclasses import replace

from kai_solver.domain import Blocker, Snapshot
from kai_solver.rules.user_caps.problem import NAME, Group, UserCaps, say

CURE = "no cap per user in queue {name}"


def message(group: Group, place: int, more: int, held: int) -> str:
    """Why pods that need ``more`` are refused, beside the ``held``."""
    most = group.most[place] or 0
    return (
        f"User {group.user} of queue {group.title} holds {say(place, held)} and asks for {say(place, more)} more, "
        f"at most {say(place, most)} are allowed"
    )


def blocker(group: Group, place: int, more: int, held: int) -> Blocker:
    """The element of a blocking set."""
    have = f"at most {say(place, group.most[place] or 0)} each, {say(place, held)} in use"
    return Blocker(NAME, group.title, f"{say(place, more)} for user {group.user}", have)


def element(caps: UserCaps, pods: tuple[int, ...]) -> Blocker:
    """The same where the model proved it, which does not say how much there would be."""
    needed = caps.needed(pods)
    for index, more in needed.items():
        for place, most in enumerate(caps.groups[index].most):
            if most is not None and more[place]:
                need = f"{say(place, more[place])} for user {caps.groups[index].user}"
                return Blocker(NAME, caps.groups[index].title, need, f"at most {say(place, most)} each")
    return Blocker(NAME, "", "room within the caps of users", "too little")


def without(snapshot: Snapshot, title: str) -> Snapshot:
    """The cluster without the caps of the queue of that title; of all queues for an empty one."""
    queues = (
        replace(queue, rules=tuple(pair for pair in queue.rules if pair[0] != NAME))
        if title in (queue.title, "")
        else queue
        for queue in snapshot.queues
    )
    return replace(snapshot, queues=tuple(queues))
