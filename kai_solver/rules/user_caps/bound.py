"""What a user would hold at least, with every gang gone that may be evicted."""

from collections.abc import Callable, Sequence

from kai_solver.domain import Blocker
from kai_solver.rules.user_caps.ledger import Held
from kai_solver.rules.user_caps.problem import UserCaps, passed
from kai_solver.rules.user_caps.words import blocker


def lacks(caps: UserCaps, pods: Sequence[int], so_far: Held | None, gone: Callable[[int], bool]) -> Blocker | None:
    """Proof that ``pods`` pass a cap whatever leaves; ``so_far`` None: no other pod is there."""
    for index, more in caps.needed(pods).items():
        gpus, count = (0, 0) if so_far is None else caps.kept.get(index, (0, 0))
        for gang, amounts in (so_far or {}).items():
            if (index, 1) in amounts and not gone(gang):
                gpus, count = gpus + amounts[index, 0], count + amounts[index, 1]
        place = passed(caps.groups[index], (gpus, count), more)
        if place is not None:
            return blocker(caps.groups[index], place, more[place], (gpus, count)[place])
    return None
