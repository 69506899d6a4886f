"""Blocks of pods that lie in one domain each: rows that hold for whole blocks, and not for parts of them.

A domain with room for 18 pods takes four blocks of 4, and never half a fifth; a linear program does not know that. For
every size p among the blocks (the row of room divided by p and rounded down, Chvátal-Gomory)::

    sum_k floor(size[k] / p) lie[k, d]  <=  floor(room[d] / p)

and for every block that stays in d and every kind of block that may come there::

    lie[k, d] + (most[k, d] - fit) stay  <=  most[k, d],        fit = floor((room[d] - size) / size[k])

The second says that a domain is emptied of all that is in the way, or not used: a linear program would use halves of
domains.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kai_solver.model.spec import ModelSpec, Term, Var


class Block(NamedTuple):
    """``var`` counts (at most ``most``) blocks of ``size`` pods of one shape in one domain."""

    size: int
    var: Var
    most: int


def whole_blocks(blocks: Sequence[Block], room: int) -> Iterator[tuple[list[Term], int]]:
    """Rows ``sum terms <= most`` of one shape and domain that its row of room does not imply."""
    for size in sorted({block.size for block in blocks if block.size > 1}):
        large = [block for block in blocks if block.size >= size]
        is_implied = room % size == 0 and all(block.size % size == 0 for block in large)
        if not is_implied and sum(block.size // size * block.most for block in large) > room // size:
            yield [(block.size // size, block.var) for block in large], room // size


def keep_whole(spec: ModelSpec, asked: Sequence[Term], room: int, family: str) -> None:
    """Rows over blocks given as terms ``-pods x var`` of a row that asks for their places."""
    _, high = spec.domains
    for terms, most in whole_blocks([Block(-pods, var, int(high[var])) for pods, var in asked], room):
        spec.add_le(terms, most, family=family)


def emptying(coming: Sequence[Block], staying: Sequence[Block], room: int) -> Iterator[tuple[list[Term], int]]:
    """Rows ``sum terms <= most``: what comes beside each of those that may stay (Booleans)."""
    for come in coming:
        for stay in staying:
            fit = max(0, room - stay.size) // come.size
            if fit < come.most:
                yield [(1, come.var), (come.most - fit, stay.var)], come.most
