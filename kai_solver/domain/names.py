"""Names of gangs for people: without what KAI's pod grouper adds."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from kai_solver.domain.gangs import Gang

_MADE_NAME = re.compile(r"^pg-(.+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def short_name(gang: str) -> str:
    """The name, or the key, of a gang without what KAI's pod grouper adds: ``ns/pg-train-<uid>`` is ``ns/train``."""
    namespace, slash, name = gang.rpartition("/")
    made = _MADE_NAME.match(name)
    return f"{namespace}{slash}{made.group(1)}" if made else gang


def names_of(gangs: Iterable[Gang]) -> dict[str, str]:
    """Names of ``gangs`` by key: `short_name` where it means no other gang and no pod of another, else the key."""
    every = list(gangs)
    short = {gang.key: short_name(gang.key) for gang in every}
    wearers = Counter(short.values())
    made = {name: key for key, name in short.items() if name != key}
    taken = {pod.key for gang in every for pod in gang.pods if made and made.get(pod.key, gang.key) != gang.key}
    return {key: name if wearers[name] == 1 and name not in taken else key for key, name in short.items()}


def titled(subject: str, names: Mapping[str, str]) -> str:
    """``gang ns/name``, the subject of a notice or finding, with the gang's name of ``names_of``."""
    kind, blank, key = subject.rpartition(" ")
    return f"{kind}{blank}{names.get(key, key)}"
