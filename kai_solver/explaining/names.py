"""The gang that people mean: by its name, a pod's, its workload's, or the beginning of one of them."""

from collections.abc import Callable, Iterator
from difflib import get_close_matches

from kai_solver.domain import Gang, Snapshot
from kai_solver.domain.names import names_of, short_name
from kai_solver.errors import InputError

_LISTED = 5
_LONGEST = 253
"""Characters of a name of Kubernetes; nothing is like a longer one."""


def find_gang(snapshot: Snapshot, name: str) -> Gang:
    """The gang that ``name`` means, with a namespace before it or without.

    In this order: the name of a gang, of a pod, of the workload that a gang was made for, the beginning of one of them
    without the namespace, then with it.

    Raises
    ------
    InputError
        There is none, or there are several; names those that are like it.
    """
    ways: tuple[Callable[[Gang], Iterator[str]], ...] = (_of_gang, _of_pods, _of_workload)
    for way in ways:
        found = [gang for gang in snapshot.gangs if _is_named(name, way(gang))]
        if found:
            return _the_only(snapshot, found, name, "are named")
    for part in (_bare, str):
        begun = [
            gang
            for gang in snapshot.gangs
            if name and any(part(known).startswith(name) for way in ways for known in way(gang))
        ]
        if begun:
            return _the_only(snapshot, begun, name, "begin with")
    raise InputError(f"no gang, pod or workload is named {name!r}", cure=_nearest(snapshot, name))


def _of_gang(gang: Gang) -> Iterator[str]:
    yield gang.key


def _of_pods(gang: Gang) -> Iterator[str]:
    return (pod.key for pod in gang.pods)


def _of_workload(gang: Gang) -> Iterator[str]:
    yield short_name(gang.key)


def _bare(key: str) -> str:
    return key.rpartition("/")[2]


def _is_named(name: str, keys: Iterator[str]) -> bool:
    return any(name in (key, _bare(key)) for key in keys)


def _the_only(snapshot: Snapshot, found: list[Gang], name: str, how: str) -> Gang:
    exact = [gang for gang in found if gang.key == name]
    if len(exact or found) == 1:
        return (exact or found)[0]
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    names = names_of(snapshot.gangs)
    keys = ", ".join(names[gang.key] for gang in found[:_LISTED])
    raise InputError(f"several gangs {how} {name!r}", cure=f"Choose one: {keys}{more}")


def _nearest(snapshot: Snapshot, name: str) -> str:
    keys = [key for gang in snapshot.gangs for key in (short_name(gang.key), *_of_pods(gang))]
    known = list(dict.fromkeys(keys if "/" in name else map(_bare, keys)))
    like = get_close_matches(name, known, n=3) if len(name) <= _LONGEST else []
    if like:
        return f"Did you mean {' or '.join(like)}?"
    return "Name a gang, a pod or a workload, with its namespace or without: namespace/name"
