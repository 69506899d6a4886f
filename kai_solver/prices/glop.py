"""Solving a linear programme by GLOP, with the patterns of shares on a device that pay.

This file imports the standard library and OR-tools alone: the solver's process runs it as well (`search.worker`), and
has neither numpy nor kai-solver. What it returns are prices in doubles; `Programme.bound` says what they prove.

Which solver: seconds of CPU without writing the model down, which takes 0.10, 0.02 and 0.06 s (2026-11-23, OR-tools
9.15, 2 busy cores; one run each).

==================================  =====================  ===========  ===========  ===========
programme (columns, rows, terms)    GLOP without presolve  with it      HiGHS        PDLP
==================================  =====================  ===========  ===========  ===========
openb (37,498, 623, 147,974)        0.13                   0.18         0.28         2.14
loaded-1000 (4,542, 3,543, 17,991)  0.05                   0.05         0.05         0.14
loaded-5000 (23,670, 2,307, 49,394) 0.21                   0.19         0.22         0.78
==================================  =====================  ===========  ===========  ===========

It is asked by way of ``pywraplp``, which keeps its basis: of a programme's 4 to 19 questions all but the first take 6
ms on 1,000 loaded nodes, and 45 ms without a basis, by ``model_builder_helper``. All of them, with the programme
written down (0.03 to 0.14 s slower that way): 0.17 s for 0.48 on 1,000 loaded nodes, 0.43 for 0.74 on 5,000, 0.67 for
0.86 on openb (2026-11-30). There all 1,429 patterns of openb's sizes at once are faster than one after the other, which
took 0.75 s for 19 rounds (2026-11-23).
"""

import importlib
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

PENALTY = 16.0
"""What a share without a device costs, relative to the dearest column: only patterns that are not made leave one."""
MOST_PATTERNS, MOST_TRIED = 3_000, 30_000
"""Patterns up to which all of a kind of device are made at once, and tries to find them; of more, those that pay."""
ROUNDS = 8
"""Most rounds of patterns that pay."""
TOLERANCE = 1e-6
"""A pattern that pays less than this part of the dearest column is not made: the bound is repaired for it anyway."""

WHOLE_COLUMNS, WHOLE_PART, WHOLE_COST = 40_000, 0.2, 0.01
"""How much units are made whole: programmes so often that their columns are so many, 0.03 s each of 4,500 on 1,000
loaded nodes; in this part of the time that is left: with half of it, victims and places there had 0.3 of 2 s, and now
0.7 (2026-11-28). What whole ones may cost more than parts that count as whole: such
parts may break rows."""
ROUNDING = 1e-6
"""Parts of units that are the solver's rounding."""

Sizes = Sequence[tuple[int, int]]
"""(Size, most copies) of shares, in steps of a device."""
Copies = tuple[int, ...]
"""How many shares of each size lie on a device."""
Pattern = tuple[tuple[int, int], ...]
"""The same, without sizes of which there is none: (which size, how many)."""
MoreRow = tuple[Sequence[int], Sequence[int], int]
"""Columns, coefficients, and the most that the sum may be."""


def solve(programme: Mapping[str, Any], seconds: float) -> list[dict[str, Any]]:
    """`Simplex.solve` of a ``programme`` that is asked once."""
    return Simplex(programme).solve(seconds)


class Simplex:
    """A programme with the basis of its last solution.

    Parameters
    ----------
    programme
        ``most``: of every column; the least is 0. ``end``, ``column``, ``coefficient``: terms of the rows, one row
        after the other; ``row_low``, ``row_high``: their ends, infinite where there is none. ``devices``: (row, level,
        sizes, most copies, rows of the sizes) of devices that are free to one level. ``stages``: (columns,
        coefficients). ``at``: by stage, what it costs in the plan so far.
    """

    def __init__(self, programme: Mapping[str, Any]) -> None:
        library = importlib.import_module("ortools.linear_solver.pywraplp")
        self._solved = (library.Solver.OPTIMAL, library.Solver.FEASIBLE)
        self._solver = library.Solver.CreateSolver("GLOP")
        self._solver.SetSolverSpecificParametersAsString("use_preprocessing:false dual_feasibility_tolerance:1e-9")
        self._columns: list[Any] = []
        self._rows: list[Any] = []
        self._more: list[Any] = []
        """Rows of `solve_with`."""
        self._minimised: int | None = None
        self._end_s = math.inf
        self._programme = programme
        self._stages = programme["stages"]
        self._devices = programme["devices"]
        for most in programme["most"]:
            self._add_column(float(most))
        self._scale = [self._add_row(*row) for row in _rows_of(programme)]
        self._dearest = [float(max(map(abs, amounts), default=0)) or 1.0 for _, amounts in self._stages]
        for dearest, (columns, amounts) in zip(self._dearest, self._stages, strict=True):
            terms = [(column, amount / dearest) for column, amount in zip(columns, amounts, strict=True) if amount]
            self._add_row(terms, -math.inf, math.inf)
        self._unserved: list[int] = []
        self._made: set[tuple[int, tuple[tuple[int, int], ...]]] = set()
        self._is_complete = True
        self._begin()

    def solve(self, seconds: float) -> list[dict[str, Any]]:
        """Minimise the stages, each with those before it held; in ``seconds``, writing the programme down apart.

        Returns
        -------
        list
            One entry a solution: ``number`` of the stage, ``cost``, ``held`` (that, as a whole number), ``duals`` (of
            every row), ``holds`` (of the stages before it), ``out`` (how many of each of its columns leave; of the last
            stage nearly whole ones, if it has them: what they cost is near the cost, not at it). First every stage with
            those before it at their least; then those stages before which the plan so far costs more, with these held
            at what they cost there: the bound of such a stage is another one for that plan.
        """
        self._end_s = time.monotonic() + seconds
        found = self._each_at_its_least()
        at, whole = self._programme["at"], len(found)
        for number in range(1, whole):
            if any(at[k] > found[k]["held"] for k in range(number)):
                for k in range(len(self._stages)):
                    self._hold(k, at[k] if k < number else math.inf)
                if self._solve_stage(number):
                    found.append(self._found(number))
        return found

    def solve_with(self, rows: Iterable[MoreRow], seconds: float) -> list[dict[str, Any]]:
        """Minimise every stage with ``rows`` as well, in place of those of the last time; without their duals."""
        self._end_s = time.monotonic() + seconds
        for row in self._more:
            row.SetBounds(-math.inf, math.inf)
        for columns, amounts, most in rows:
            self._add_row(list(zip(columns, amounts, strict=True)), -math.inf, most)
            self._more.append(self._rows.pop())
        for number in range(len(self._stages)):
            self._hold(number, math.inf)
        return self._each_at_its_least()

    def _each_at_its_least(self) -> list[dict[str, Any]]:
        """Every stage with those before it at their least, as far as there is time."""
        found = self._last_at_once() or list(self._in_order())
        if len(found) == len(self._stages):
            found[-1]["out"] = self._whole(len(found) - 1, found[-1]["out"])
        return found

    def _in_order(self) -> Iterator[dict[str, Any]]:
        for number in range(len(self._stages)):
            if not self._solve_stage(number):
                return
            found = self._found(number)
            yield found
            self._hold(number, found["held"])

    def _last_at_once(self) -> list[dict[str, Any]] | None:
        """All stages where those before the last one may cost nothing: then nothing is to be solved of them.

        That is usual of the work of high priorities, and saves half of the time.
        """
        last = len(self._stages) - 1
        if last < 1:
            return None
        for number in range(last):
            self._hold(number, 0)
        if not self._solve_stage(last):
            for number in range(last):
                self._hold(number, math.inf)
            return None
        nothing = [0.0] * len(self._scale)
        return [
            *(
                {"number": n, "cost": 0.0, "held": 0, "duals": nothing, "holds": [0.0] * n, "out": self._out(n)}
                for n in range(last)
            ),
            self._found(last),
        ]

    def _solve_stage(self, number: int) -> bool:
        """Whether there is a solution, which the solver keeps until it is asked again."""
        if self._minimised != number:
            objective = self._solver.Objective()
            objective.Clear()
            objective.SetMinimization()
            for column, amount in zip(*self._stages[number], strict=True):
                if amount:
                    objective.SetCoefficient(self._columns[column], amount / self._dearest[number])
            for column in self._unserved:
                objective.SetCoefficient(self._columns[column], PENALTY)
            self._minimised = number
        return self._solve_with_patterns()

    def _found(self, number: int) -> dict[str, Any]:
        dearest, rows = self._dearest[number], self._rows
        cost = self._cost(number)
        return {
            "number": number,
            "cost": cost,
            "held": math.ceil(cost * (1 - 1e-9) - 1e-6),
            "duals": [row.dual_value() * dearest / scale for row, scale in zip(rows, self._scale, strict=False)],
            "holds": [rows[len(self._scale) + k].dual_value() * dearest / self._dearest[k] for k in range(number)],
            "out": self._out(number),
        }

    def _cost(self, number: int) -> float:
        cost: float = self._solver.Objective().Value() * self._dearest[number]
        return cost

    def _out(self, number: int) -> list[float]:
        columns, _ = self._stages[number]
        return [self._columns[column].solution_value() for column in columns]

    def _whole(self, number: int, out: list[float]) -> list[float]:
        """Near ``out``, but without costly parts: the unit of which most would leave in vain stays, or leaves.

        A part of a large gang counts as all of it when it leaves: of one with 192 GPUs that was 20% of all work.
        """
        columns, amounts = self._stages[number]
        now_s = time.monotonic()
        end_s, self._end_s = self._end_s, now_s + WHOLE_PART * (self._end_s - now_s)
        steps = WHOLE_COLUMNS // max(1, len(self._programme["most"]))
        best, cheapest = out, _rounded_up(amounts, out)
        self._hold(number, math.inf)
        held: list[int] = []
        while len(held) < steps:
            lost = [math.ceil(part - ROUNDING) - part for part in out]
            parts = [number for number, part in enumerate(lost) if part > ROUNDING]
            if not parts:
                best = out if _rounded_up(amounts, out) <= (1 + WHOLE_COST) * cheapest else best
                break
            at = max(parts, key=lambda number: lost[number] * amounts[number])
            column, floor = columns[at], float(math.floor(out[at]))
            held.append(column)
            self._columns[column].SetUb(floor)
            if not self._solve_stage(number) or self._cost(number) >= cheapest:
                self._columns[column].SetBounds(floor + 1, floor + 1)
                if not self._solve_stage(number):
                    break
            out = self._out(number)
            if _rounded_up(amounts, out) < cheapest:
                best, cheapest = out, _rounded_up(amounts, out)
        for column in held:
            self._columns[column].SetBounds(0.0, float(self._programme["most"][column]))
        self._end_s = end_s
        return best

    def _hold(self, number: int, most: float) -> None:
        """Let the stage cost the others no more than ``most``."""
        self._rows[len(self._scale) + number].SetUb(most / self._dearest[number])

    def _add_column(self, most: float) -> int:
        self._columns.append(self._solver.NumVar(0.0, most, ""))
        return len(self._columns) - 1

    def _add_row(self, terms: Sequence[tuple[int, float]], low: float, high: float) -> float:
        """A row, divided by its largest coefficient, which is returned. A column may be named several times."""
        scale = float(max((abs(amount) for _, amount in terms), default=1)) or 1.0
        row, columns = self._solver.Constraint(low / scale, high / scale), self._columns
        totals: dict[int, float] = {}
        for column, amount in terms:
            totals[column] = totals.get(column, 0) + amount
        for column, amount in totals.items():
            row.SetCoefficient(columns[column], amount / scale)
        self._rows.append(row)
        return scale

    def _begin(self) -> None:
        """All patterns where they are few, else those of one size; and shares without a device, at a penalty."""
        known: dict[tuple[int, tuple[int, ...], tuple[int, ...]], list[Pattern]] = {}
        for number, (_, level, sizes, most, rows) in enumerate(self._devices):
            key = (level, tuple(sizes), tuple(most))
            if key not in known:
                known[key] = [_held(copies) for copies in all_patterns(level, list(zip(sizes, most, strict=True)))]
            patterns = known[key]
            if not patterns:
                self._is_complete = False
                alone = [min(level // size, copies) for size, copies in zip(sizes, most, strict=True)]
                patterns = [((at, copies),) for at, copies in enumerate(alone) if copies]
                for row in rows:
                    self._unserved.append(self._add_column(math.inf))
                    self._add_term(row, self._unserved[-1], 1.0)
            for pattern in patterns:
                self._add_pattern(number, pattern)

    def _add_pattern(self, number: int, pattern: Pattern) -> None:
        device, _, _, _, rows = self._devices[number]
        column = self._add_column(math.inf)
        self._add_term(device, column, 1.0)
        for at, count in pattern:
            self._add_term(rows[at], column, count)

    def _add_term(self, row: int, column: int, amount: float) -> None:
        self._rows[row].SetCoefficient(self._columns[column], amount / self._scale[row])

    def _solve_with_patterns(self) -> bool:
        """Whether there is a solution; False where it ran out of time, or there is none.

        Nothing is added after the last question: its solution would be forgotten.
        """
        for number in range(ROUNDS):
            left_s = self._end_s - time.monotonic()
            if left_s <= 0:
                return False
            self._solver.set_time_limit(math.ceil(left_s * 1000) if left_s < math.inf else 0)
            if self._solver.Solve() not in self._solved:
                return False
            if self._is_complete or number == ROUNDS - 1 or not self._add_paying():
                break
        return True

    def _add_paying(self) -> bool:
        """Add what pays most on each kind of device, to every kind: what pays on one is likely to pay on others."""
        prices = [row.dual_value() / scale for row, scale in zip(self._rows, self._scale, strict=False)]
        paying: dict[tuple[tuple[int, int], ...], None] = {}
        for device, level, sizes, most, rows in self._devices:
            shares = [max(0.0, prices[row]) for row in rows]
            value, copies = best_pattern(level, list(zip(sizes, most, strict=True)), shares)
            if value > TOLERANCE - prices[device]:
                paying[tuple((sizes[at], count) for at, count in _held(copies))] = None
        before = len(self._made)
        for number, (_, level, sizes, most, _) in enumerate(self._devices):
            place = {size: at for at, size in enumerate(sizes)}
            for pattern in paying:
                fits = all(size in place and count <= most[place[size]] for size, count in pattern)
                if (
                    fits
                    and sum(size * count for size, count in pattern) <= level
                    and (number, pattern) not in self._made
                ):
                    self._made.add((number, pattern))
                    self._add_pattern(number, tuple((place[size], count) for size, count in pattern))
        return len(self._made) > before


def _rounded_up(amounts: Sequence[int], out: Sequence[float]) -> int:
    """What ``out`` costs where a part counts as the whole unit."""
    return sum(amount * math.ceil(part - ROUNDING) for part, amount in zip(out, amounts, strict=True))


def _held(copies: Copies) -> Pattern:
    return tuple((at, count) for at, count in enumerate(copies) if count)


def _rows_of(programme: Mapping[str, Any]) -> Iterator[tuple[list[tuple[int, float]], float, float]]:
    first, columns, coefficients = 0, programme["column"], programme["coefficient"]
    for end, low, high in zip(programme["end"], programme["row_low"], programme["row_high"], strict=True):
        yield list(zip(columns[first:end], coefficients[first:end], strict=True)), low, high
        first = end


def all_patterns(level: int, sizes: Sizes) -> list[Copies]:
    """All patterns to which nothing can be added; none where they are more than `MOST_PATTERNS`."""
    found: list[Copies] = []
    copies, tried = [0] * len(sizes), 0

    def fill(at: int, room: int) -> bool:
        nonlocal tried
        if at == len(sizes):
            tried += 1
            if all(size > room or count >= most for (size, most), count in zip(sizes, copies, strict=True)):
                found.append(tuple(copies))
            return len(found) <= MOST_PATTERNS and tried <= MOST_TRIED
        size, most = sizes[at]
        for count in range(min(room // size, most), -1, -1):
            copies[at] = count
            if not fill(at + 1, room - count * size):
                return False
        copies[at] = 0
        return True

    return found if fill(0, level) else []


def best_pattern(level: int, sizes: Sizes, prices: Sequence[float]) -> tuple[float, Copies]:
    """The most that shares with ``prices`` bring on one device, and how many of each it holds.

    A knapsack with bounded copies; exact where the prices are integers.
    """
    value: list[float] = [0] * (level + 1)
    taken: list[list[int]] = []
    for (size, most), price in zip(sizes, prices, strict=True):
        copies = [0] * (level + 1)
        taken.append(copies)
        if price <= 0 or size > level:
            continue
        before = value[:]
        for at in range(size, level + 1):
            for count in range(1, min(most, at // size) + 1):
                if before[at - count * size] + count * price > value[at]:
                    value[at] = before[at - count * size] + count * price
                    copies[at] = count
    found, at = [0] * len(sizes), level
    for number in range(len(sizes) - 1, -1, -1):
        found[number] = taken[number][at]
        at -= found[number] * sizes[number][0]
    return value[level], tuple(found)
