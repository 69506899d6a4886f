"""The format of what the controller stores in the cluster and reads again, and how a newer format is recognized.

``docs/upgrade.md`` lists what is stored where. A value without a prefix has format 1. From format 2 on, a value begins
with its format: ``v2:``. A value of a newer format than this version reads is set aside with a reason, and never
guessed at or removed: the version that wrote it may come back.
"""

import re
from collections.abc import Iterator, Mapping

from kai_solver.kubeobjects import names

FORMAT = 1
"""What this version writes, and the newest that it reads."""

_PREFIX = re.compile(r"v([1-9][0-9]{0,5}):")
_NUMBER = re.compile(r"[0-9]{1,6}")
_OURS = (names.OWN_SHARE, names.OWN_WISHED, names.OWN_CREATED, *names.SIGNATURES.values())


def newer_format(value: object) -> int:
    """The format of a value, where it is newer than this version reads; else 0."""
    found = _PREFIX.match(value) if isinstance(value, str) else None
    number = int(found[1]) if found else 0
    return number if number > FORMAT else 0


def newer_values(annotations: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    """Annotations that the controller writes and whose values have a newer format, with it.

    All annotations that name users of a device count as one.
    """
    found: dict[str, int] = {}
    for name, value in annotations.items():
        number = newer_format(value)
        if number and (name in _OURS or str(name).startswith(names.USER_PREFIX)):
            shown = f"{names.USER_PREFIX}UID" if name not in _OURS else name
            found[shown] = max(number, found.get(shown, 0))
    yield from found.items()


def newer_text(name: str, number: int) -> str:
    """Why the value of an annotation is set aside, and the cure."""
    return (
        f"{name} has format {number}, which a newer kai-solver wrote. This version reads up to format {FORMAT}, "
        "and sets the value aside. Upgrade, or leave it"
    )


def notes(version: str) -> dict[str, str]:
    """Annotations that say in which format what is stored is written, and by which version."""
    return {names.OWN_STORED_FORMAT: str(FORMAT), names.OWN_VERSION: version}


def noted_format(annotations: object) -> int:
    """The format that such annotations state, where it is newer than this version reads; else 0."""
    stated = annotations.get(names.OWN_STORED_FORMAT) if isinstance(annotations, Mapping) else None
    number = int(stated) if isinstance(stated, str) and _NUMBER.fullmatch(stated) else 0
    return number if number > FORMAT else 0
