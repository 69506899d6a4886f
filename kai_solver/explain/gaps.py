"""How far a value may be from the best one."""


def relative_gap(value: float, bound: float) -> float | None:
    """Distance of value and bound as a part of the value; None where the two say nothing about each other.

    That is so where one of them is 0 and the other is not, or where they differ in sign: no solver has looked yet.
    """
    if value == bound:
        return 0.0
    return abs(value - bound) / abs(value) if value * bound > 0 or bound == 0 else None
