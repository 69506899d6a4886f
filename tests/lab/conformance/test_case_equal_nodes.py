"""The renaming of equal nodes: any bijection is accepted, nothing else is."""

from hypothesis import given
from hypothesis import strategies as st

from kai_solver.lab.conformance.equal_nodes import NodeNames

NAMES = tuple("abcd")
CLASSES = dict.fromkeys(NAMES, "alike") | {"other": "unlike"}


@given(st.permutations(NAMES), st.lists(st.sampled_from(NAMES), max_size=12))
def test_any_renaming_of_equal_nodes_is_accepted_throughout(order: list[str], expected: list[str]) -> None:
    ours = dict(zip(NAMES, order, strict=True))
    names = NodeNames(CLASSES)
    assert all(names.same(name, ours[name]) for name in expected)


@given(st.lists(st.tuples(st.sampled_from((*NAMES, "other")), st.sampled_from((*NAMES, "other"))), max_size=12))
def test_what_is_accepted_is_one_to_one_and_keeps_classes(pairs: list[tuple[str, str]]) -> None:
    names = NodeNames(CLASSES)
    accepted = {(expected, actual) for expected, actual in pairs if names.same(expected, actual)}
    assert len({expected for expected, _ in accepted}) == len({actual for _, actual in accepted}) == len(accepted)
    assert all(CLASSES[expected] == CLASSES[actual] for expected, actual in accepted)


def test_a_pinned_node_stands_for_itself_only() -> None:
    names = NodeNames(CLASSES)
    names.pin("a")
    assert not names.same("b", "a")
    assert not names.same("a", "b")
    assert names.same("a", "a")


def test_a_node_that_does_not_exist_is_no_nodes_equal() -> None:
    assert not NodeNames(CLASSES).same("a", "nowhere")
