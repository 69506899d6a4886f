"""Checks that are found by name: those of optional rules, and of other packages.

Nothing of the rule that is judged is imported: what ships has a module of its own here, and a package brings its check
by an entry point beside that of its rule.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module

from kai_solver.check.scene import Scene
from kai_solver.check.violation import OPTIONAL, Violation
from kai_solver.domain import Gang
from kai_solver.errors.extensions import entry_points, loaded, unusable

GROUP = "kai_solver.checks"


class Check:
    """The judge of one rule; ``name`` is that of its violations."""

    name: str = ""

    def concerns(self, scene: Scene, /) -> bool:
        """Whether any object of the snapshot uses the rule; without one the check is not asked."""
        return True

    def judge(self, scene: Scene, /) -> Iterator[Violation]:
        """What of the plan breaks the rule; what was so before the plan is none of its own."""
        raise NotImplementedError

    def may_need_gone(self, scene: Scene, gangs: Sequence[Gang], /) -> frozenset[str]:
        """Keys of those ``gangs`` whose pods may have had to leave by the rule; their evictions count as needed."""
        return frozenset(gang.key for gang in gangs)


def checks_of(scene: Scene) -> tuple[Check, ...]:
    """The installed checks of rules that some object of the snapshot uses."""
    return tuple(check for check in installed_checks() if check.concerns(scene))


@cache
def installed_checks() -> tuple[Check, ...]:
    """Checks that ship, each the object ``CHECK`` of its module, then those of other packages by name.

    Raises `InputError` where what a package names cannot be loaded, or is no check of that name.
    """
    found: list[Check] = [import_module(f"kai_solver.check.{name}").CHECK for name in OPTIONAL]
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        check = loaded(point)
        if not isinstance(check, Check) or check.name != point.name:
            raise unusable(point, "is not a Check of that name")
        found.append(check)
    return tuple(found)
