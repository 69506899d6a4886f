"""Numbers in texts, and amounts with their units."""

import pytest

from kai_solver.units import counted, form, format_amount


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, ("pod",)), (1, ("pod",)), (2, ("pod",)), (4000, ("pod",)), (1, ("pod was", "pods were"))],
)
def test_counted(count: int, words: tuple[str, ...]) -> None:
    said = {0: "0 pods", 2: "2 pods", 4000: "4,000 pods"}
    assert counted(count, *words) == said.get(count, f"1 {words[0]}")


def test_a_noun_after_a_number_that_is_not_whole() -> None:
    assert [form(number, "GPU") for number in (0.5, 1.0, 1.5)] == ["GPUs", "GPU", "GPUs"]
    assert form(3, "gang names it", "gangs name it") == "gangs name it"


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("gpu", -1, "unlimited"),
        ("gpu", 1000, "1 GPU"),
        ("gpu", 500, "0.5 GPUs"),
        ("cpu", 1000, "1 CPU core"),
        ("cpu", 2500, "2.5 CPU cores"),
        ("pods", 1, "1 pod"),
        ("pods", 7, "7 pods"),
        ("memory", 10**9, "1 GB"),
    ],
)
def test_amounts(resource: str, amount: int, text: str) -> None:
    assert format_amount(resource, amount) == text
