"""The order of the subgroups and podsets of a gang, in which they are served; victims leave in reverse.

Source: docs/kai-behaviour.md#order (KAI's plugin subgrouporder).
"""


def subgroup_rank(held: int, minimum: int) -> tuple[int, int, float]:
    """Below the minimum first, then minimums above 0, then the smaller part of the minimum that is ``held``.

    Of two with a minimum of 0, the one with fewer. The name decides last.
    """
    if held < minimum:
        return 0, 0, 0.0
    return 1, 0 if minimum else 1, held / minimum if minimum else float(held)
