"""Caps per user in words: why a gang waits, what blocks, and the cluster without the cap."""

from kai_solver.domain import Blocker
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
