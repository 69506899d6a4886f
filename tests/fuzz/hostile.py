"""Hostile Kubernetes objects: whole objects of every kind with some of their parts spoilt.

An object is made from a `Recipe`, which is plain data: hypothesis draws recipes and shrinks them, and `random_recipe`
draws them by the hundred thousand. The seeds are ``seeds.yaml`` (every field that is read), the examples of
``deploy/``, and shipped instances written as Kubernetes objects.
"""

import copy
import random
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from hypothesis import strategies as st

from kai_solver.instances_io import load_instance
from kai_solver.kubeobjects import KINDS, objects_from_snapshot

Object = dict[str, Any]
Place = tuple[str | int, ...]

ROOT = Path(__file__).parents[2]
INSTANCES = (
    "features/claims-each-gets-a-device-that-matches.yaml",
    "features/gpus-slices-are-moved-together.yaml",
    "features/numa-a-move-frees-a-zone.yaml",
    "features/spread-two-in-each-zone.yaml",
    "features/segments-each-in-a-clique.yaml",
    "features/volumes-one-pod-at-a-time.yaml",
    "features/budgets-two-hold-for-ever.yaml",
    "solver/moves-repack-four-shares.yaml",
)


class Spoil(NamedTuple):
    """One part of an object is changed: ``place`` and ``value`` count modulo how many there are."""

    act: str
    place: int
    value: int


class Recipe(NamedTuple):
    """Which seed, and what is done to it in turn."""

    seed: int
    spoils: tuple[Spoil, ...]


def _deep(opening: str, closing: str, depth: int) -> str:
    return opening * depth + closing * depth


def _nested(depth: int) -> Any:
    value: Any = "bottom"
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2, 3, 100, 2**31, 2**53, 2**53 + 1, 2**63, -(2**63), 2**64, 10**30, 10**400),
    *(0.5, -0.5, 1e-320, 1e308, -1e308, float("nan"), float("inf"), float("-inf")),
)
QUANTITIES = (
    *("1e40000000", "-1e40000000", "1e-40000000", "9" * 5000, "1" + "0" * 20_000 + "Gi", "0." + "0" * 20_000 + "1"),
    *(
        "9Ei",
        "1e999",
        "1E",
        "1e",
        "-5",
        "-0",
        "+1",
        "0x10",
        "1_000",
        "١٢٣",
        "²",
        "½",
        " 1 ",
        "1 Gi",
        "1.5.5",
        ".5",
        "5.",
    ),
    *("NaN", "inf", "Infinity", "1n", "1u", "0.0000000001", "9223372036854775807", "50%", "-50%", "1e400%", "9" * 400),
)
TIMES = (
    *("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59Z"),
    *("2099-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "2026-13-45T99:99:99Z", "2026-01-01T00:00:00.123456789123Z"),
    *("2026-01-01T00:00:60Z", "2026-01-01 00:00:00", "2026-01-01", "now", "1767225600", "٢٠٢٦-01-01T00:00:00Z"),
    *("1h", "-1h", "0s", "1e9h", "9" * 400 + "h", "9" * 5000 + "s", ".5.5s", "1h1h1h", "h", "999999999h", "1ns", "1d"),
)
DOCUMENTS = (
    *("[" * 100_000, '{"a":' * 20_000, _deep("[", "]", 500), _deep("[", "]", 5_000), '{"a":' * 900 + "1" + "}" * 900),
    *("{", "[1", "[]", "{}", "null", "true", "1", '"x"', "[null]", "[[]]", "[{}]", '{"": ""}', '{"a": NaN}', "[1e999]"),
    *("[-1]", "[1e40]", "[0, 0]", "[1.5]", '["a", "a"]', '["0", 1]', '{"gpu": -1}', '{"gpu": "x"}', '{"links": 1}'),
    *(
        '{"links": [[0, 1]]}',
        '{"links": [[0, 1e9, "NV4"]]}',
        '{"links": [[0, 99999999, "NV4"]]}',
        '{"\\ud800": "\\udfff"}',
    ),
    *("[" + "1," * 50_000 + "1]", '{"uid": []}', '{"name": null}', "- a: [", "!!python/object/apply:os.system [echo]"),
    *("&a [*a]", '[{"zone": "node-0", "resources": []}]', '{"a": 1, "a": 2}', "9" * 5000, "-" + "9" * 5000, "1e400"),
)
TEXTS = (
    *(
        "",
        " ",
        "x",
        "\n",
        "a\nb",
        "a\x00b",
        "\x1b[2J",
        "\u202e",
        "\ud800",
        "\U0001f600",
        "e\u0301" * 300,
        "a" * 100_000,
    ),
    *(
        "/",
        "a/b",
        "a/b/c",
        "../..",
        "default/",
        "/default",
        "-",
        "--",
        ".",
        "a" * 254,
        "%s%n",
        "{0}",
        "${HOME}",
        "<script>",
    ),
    *(
        "hostile",
        "other",
        "hostile-parent",
        "node-whole",
        "group-whole",
        "pod-whole",
        "job-whole",
        "uid-job-whole",
        "uid-rs",
    ),
    *(
        "uid-deployment",
        "uid-pod-whole",
        "claim-whole",
        "pvc-whole",
        "hostile-topology",
        "gpu.nvidia.com",
        "no-such-thing",
    ),
    *("example.org/rack", "kubernetes.io/hostname", "zone", "kai-scheduler", "kai-resource-reservation", "kube-system"),
)
WORDS = (
    *("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal", "Never", "Always", "NoExecute", "PreferNoSchedule"),
    *("DoNotSchedule", "ScheduleAnyway", "Honor", "Ignore", "Running", "Succeeded", "Failed", "Unknown", "Releasing"),
    *(
        "preemptible",
        "non-preemptible",
        "semi-preemptible",
        "true",
        "false",
        "True",
        "yes",
        "ExactCount",
        "All",
        "binpack",
    ),
    *(
        "namespace",
        "queue",
        "Fraction",
        "Regular",
        "BestEffort",
        "restricted",
        "single-numa-node",
        "mixed",
        "single",
        "none",
    ),
    *("ReadWriteOncePod", "ReadWriteMany", "Immediate", "Bound", "Lost", "Terminating", "PodScheduled", "Ready"),
)
EXPRESSIONS = (
    *('quantity("1e40000000").isGreaterThan(quantity("1"))', "1/0 == 1", "device.x.y.z", "true", "1", "", "(" * 3_000),
    *("[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, a+b+c > 0)))", '"a" < 1'),
    *("device.attributes", 'device.attributes["gpu.nvidia.com"]', 'device.capacity["x"].y', "!" * 2_000 + "true"),
    *(
        "9223372036854775807 + 1 > 0",
        "double('1e999') > 0.0",
        '"' + "a" * 50_000 + '".matches("(a+)+b")',
        "[].map(x, x)",
    ),
    *(
        "1 +" * 3_000 + "1 > 0",
        'device.driver.matches("(((((")',
        "duration('9999999999999h') > duration('1s')",
        "int('x') > 0",
    ),
)
CONTAINERS: tuple[Any, ...] = (
    *([], {}, [None], [[]], [{}], {"": ""}, {"a": {"b": "c"}}, {"a\n": "b\n"}, {"x": None}, [1] * 1_000, ["a", "a"]),
    *({f"k{index}": str(index) for index in range(1_000)}, [{"key": "a", "operator": "In", "values": []}], _nested(60)),
    *(_nested(200), [{"name": "a"}] * 300, {"matchLabels": None}, {"matchExpressions": [{}]}, {"1": 2}, {"quota": {}}),
)
GROUPS: tuple[tuple[Any, ...], ...] = (
    *((None, True, False), NUMBERS, QUANTITIES, TIMES, DOCUMENTS, TEXTS, WORDS, EXPRESSIONS, CONTAINERS),
)
"""What parts are replaced by, as often of each group."""

STRINGS = tuple(value for group in GROUPS for value in group if isinstance(value, str))
"""What labels and annotations are made of; an API server takes no other values there."""

ACTS = (
    *("replace", "replace", "replace", "swap", "swap", "remove", "repeat", "wrap"),
    *("annotate", "annotate", "annotate", "label", "refer"),
)


@cache
def seeds() -> tuple[Object, ...]:
    """Whole objects, each with ``apiVersion`` and ``kind``; what users make most stands there more than once."""
    found = list(yaml.safe_load_all((ROOT / "tests" / "fuzz" / "seeds.yaml").read_text()))
    for file in sorted((ROOT / "deploy" / "examples").glob("*.yaml")):
        found += [one for one in yaml.safe_load_all(file.read_text()) if one]
    for name in INSTANCES:
        written = objects_from_snapshot(load_instance(ROOT / "instances" / name).snapshot)
        for kind in KINDS:
            named = {"apiVersion": kind.api_version, "kind": kind.kind}
            found += [named | dict(one) for one in getattr(written, kind.field)[:3]]
        found += [dict(one) for one in written.other[:3]]
    often = [one for one in found if one["kind"] in ("Pod", "PodGroup", "Queue", "Job")]
    return (*found, *often, *often)


@cache
def _pieces() -> tuple[Any, ...]:
    """Parts of the seeds, put where they do not belong; the large ones are left out."""
    parts = (_at(seed, place) for seed in seeds() for place in places(seed))
    return tuple(part for part in parts if len(str(part)) < 500)


@cache
def _keys() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Keys of all annotations, and of all labels, of the seeds."""
    found: dict[str, set[str]] = {"annotations": set(), "labels": set()}
    for seed in seeds():
        for part, keys in found.items():
            keys.update(seed.get("metadata", {}).get(part) or ())
    return tuple(sorted(found["annotations"])), tuple(sorted(found["labels"]))


def places(value: Any, path: Place = ()) -> list[Place]:
    """Paths of everything inside ``value``."""
    children: Iterator[tuple[Any, Any]] = iter(())
    if isinstance(value, dict):
        children = iter(value.items())
    elif isinstance(value, list):
        children = iter(enumerate(value[:20]))
    return [place for key, child in children for place in [(*path, key), *places(child, (*path, key))]]


@cache
def _seed_places(index: int) -> list[Place]:
    return places(seeds()[index])


def _at(value: Any, place: Place) -> Any:
    for key in place:
        value = value[key]
    return value


def made(recipe: Recipe) -> Object:
    """The object of a recipe; its kind is kept, and nothing of it is shared with another one."""
    index = recipe.seed % len(seeds())
    return spoilt(seeds()[index], recipe.spoils, _seed_places(index))


def spoilt(document: Object, spoils: Sequence[Spoil], known: Sequence[Place] = ()) -> Object:
    """A copy with some of its parts changed; ``known``: its `places`, if known already."""
    found = copy.deepcopy(document)
    for spoil in spoils:
        _apply(found, spoil, known or places(document))
    return found


def _apply(found: Object, spoil: Spoil, known: Sequence[Place]) -> None:
    """Do one thing to an object; a place that an earlier one took away is left alone."""
    if spoil.act in ("annotate", "label", "refer"):
        _add(found, spoil)
        return
    place = known[spoil.place % len(known)]
    try:
        above, old = _at(found, place[:-1]), _at(found, place)
    except (KeyError, IndexError, TypeError):
        return
    if place in (("kind",), ("apiVersion",)) or not isinstance(above, dict | list):
        return
    key: Any = place[-1]
    if spoil.act == "remove":
        del above[key]
    elif spoil.act == "repeat":
        above[key] = [copy.deepcopy(old) for _ in range((2, 3, 50)[spoil.value % 3])]
        if isinstance(above, list):
            above += above[key]
    elif spoil.act == "wrap":
        above[key] = ({"a": old}, [old], str(old))[spoil.value % 3]
    elif spoil.act == "swap":
        above[key] = copy.deepcopy(_pieces()[spoil.value % len(_pieces())])
    else:
        above[key] = _value(spoil.value)


def _value(number: int) -> Any:
    """One of `GROUPS`, and of it."""
    group = GROUPS[number % len(GROUPS)]
    return copy.deepcopy(group[number // len(GROUPS) % len(group)])


def _add(found: Object, spoil: Spoil) -> None:
    """A label or annotation that something reads, or an owner, perhaps the object itself."""
    metadata = found.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        return
    if spoil.act == "refer":
        owner = seeds()[spoil.place % len(seeds())]
        named = {key: owner["metadata"].get(key) for key in ("name", "uid")}
        owners = metadata.setdefault("ownerReferences", [])
        if isinstance(owners, list):
            owners.append({"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True, **named})
        return
    field, keys = ("annotations", _keys()[0]) if spoil.act == "annotate" else ("labels", _keys()[1])
    kept = metadata.setdefault(field, {})
    if isinstance(kept, dict):
        kept[keys[spoil.place % len(keys)]] = STRINGS[spoil.value % len(STRINGS)]


# -- drawing -----------------------------------------------------------------------------------------------------------

_FAR = 1 << 20


def spoiled() -> st.SearchStrategy[Spoil]:
    """One change; replacing by the first value is the simplest."""
    return st.builds(Spoil, st.sampled_from(ACTS), st.integers(0, _FAR), st.integers(0, _FAR))


def recipes(most: int = 4) -> st.SearchStrategy[Recipe]:
    """An object with up to ``most`` changes."""
    return st.builds(Recipe, st.integers(0, len(seeds()) - 1), st.lists(spoiled(), max_size=most).map(tuple))


def many_recipes(most: int = 20) -> st.SearchStrategy[list[Recipe]]:
    """Several objects."""
    return st.lists(recipes(), min_size=1, max_size=most)


def apart(values: list[Object], chance: random.Random) -> list[Object]:
    """The same objects, most of them with a name and a uid of their own; the others share theirs."""
    for number, value in enumerate(values):
        metadata = value.get("metadata")
        if not isinstance(metadata, dict):
            continue
        for field, share in (("name", 0.9), ("uid", 0.7)):
            if isinstance(metadata.get(field), str) and len(metadata[field]) < 100 and chance.random() < share:
                metadata[field] = f"{metadata[field]}-{number}"
    return values


def random_recipe(chance: random.Random) -> Recipe:
    """The same without hypothesis, a hundred times as fast: for campaigns."""
    count = chance.choice((0, 1, 1, 1, 2, 3, 6))
    drawn = (Spoil(chance.choice(ACTS), chance.randrange(_FAR), chance.randrange(_FAR)) for _ in range(count))
    return Recipe(chance.randrange(len(seeds())), tuple(drawn))
