"""Which neighbourhood next: where much is lost, beside what could be lost for less. What helped is tried more often."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.model.joint import IntArray
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.victims import VictimPool
from kai_solver.search.joint_input import BoolArray
from kai_solver.search.rights import Rights
from kai_solver.units import GPU

FloatArray = NDArray[np.float64]

FIRST, FEWEST, MOST = 24.0, 8.0, 120.0
"""Nodes of a neighbourhood: at first, and between which its size is fitted to what is searched to the end."""
SPREAD = 0.7
"""Standard deviation of the logarithm of the noise on prices, so that equal seeds do not get equal neighbours."""
WANTED = 0.01
"""What a unit counts that would leave if nodes did not count, as a part of its price."""
WIDEST = 8
"""Nodes of an allocation unit up to which a neighbourhood that it touches includes it; larger ones stay."""
MEMORY, REWARD, CURIOSITY = 0.9, 0.5, 0.02
"""How much of a kind's weight is kept each time, what a success adds, and what a failure leaves in any case."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How nodes are drawn, and whether queues may lose more there than they do now (``is_wide``)."""

    name: str
    is_wide: bool


KINDS = tuple(Kind(name, wide) for name in ("swap", "rack", "move") for wide in (False, True))


class Chooser:
    """Draws nodes; deterministic by its seed."""

    def __init__(
        self, outcome: Outcome, pool: VictimPool, rights: Rights, seed: int, leaving: frozenset[int] | None = None
    ) -> None:
        """``leaving``: units that would leave if nodes did not count; where the plan differs the bound is loose."""
        self.outcome = outcome
        self.pool = pool
        self.size = FIRST
        self.weights = dict.fromkeys(KINDS, 1.0)
        self.last = KINDS[0]
        self._rng = np.random.default_rng(seed)
        self._tries: dict[int, int] = {}
        self._racks = _racks(outcome)
        origin = outcome.state.problem.pod_node
        self._origins = [sorted({origin[pod] for pod in unit.pods}) for unit in pool.units]
        evictable = sorted(frozenset().union(*rights.by_action.values()))
        pairs = [(unit, node) for unit in evictable for node in self._origins[unit]]
        self._pairs: IntArray = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        gpus = np.array([max(1, unit.charge[GPU]) for unit in pool.units], dtype=np.float64)
        self._price: FloatArray = np.array(pool.cost, dtype=np.float64) / gpus
        self._leaving = leaving or frozenset()
        self._price[sorted(self._leaving)] *= WANTED

    def choose(self) -> BoolArray | None:
        """(N,) nodes of the next neighbourhood; None if nothing is disturbed."""
        evicted = [unit.index for unit in self.pool.units if self.pool.has_left(unit.index)]
        moved = [unit.index for unit in self.pool.units if self.pool.is_moved(unit.index)]
        useful = {"swap": bool(evicted), "rack": len(self._racks) > 1 and bool(evicted), "move": bool(moved)}
        kinds = [kind for kind in KINDS if useful[kind.name]]
        if not kinds:
            return None
        odds = np.array([self.weights[kind] for kind in kinds])
        self.last = kinds[int(self._rng.choice(len(kinds), p=odds / odds.sum()))]
        if self.last.name == "rack":
            return self._two_racks(self._seed(evicted))
        return self._swap(evicted if self.last.name == "swap" else moved)

    def learn(self, *, success: bool, proven: bool) -> None:
        """Whether the last choice helped; where it was searched to the end (``proven``), the next may be larger."""
        self.weights[self.last] = MEMORY * self.weights[self.last] + (REWARD if success else CURIOSITY)
        self.size = min(MOST, self.size * 1.1) if proven else max(FEWEST, self.size * 0.8)

    def _seed(self, units: list[int]) -> int:
        """One of ``units``, dear ones and those seldom tried before first."""
        ranked = sorted(units, key=lambda u: (u in self._leaving, -self.pool.cost[u]))
        tries = np.array([self._tries.get(u, 0) for u in ranked], dtype=np.float64)
        odds = 1.0 / (5.0 + np.arange(len(ranked))) / (1.0 + tries) ** 2
        unit = ranked[int(self._rng.choice(len(ranked), p=odds / odds.sum()))]
        self._tries[unit] = self._tries.get(unit, 0) + 1
        return unit

    def _swap(self, units: list[int]) -> BoolArray:
        """Where some of ``units`` ran, with all nodes of the pods that came there, and the cheapest others."""
        chosen = self._around(self._seed(units))
        for _ in range(3):
            if chosen.sum() < self.size / 2:
                chosen |= self._around(self._seed(units))
        prices = self._cheapest() * np.exp(self._rng.normal(0.0, SPREAD, len(chosen)))
        for node in np.argsort(prices, kind="stable").tolist():
            if chosen.sum() >= self.size or not np.isfinite(prices[node]):
                break
            chosen |= self._with_comers([node])
        return chosen

    def _around(self, unit: int) -> BoolArray:
        """Nodes where the unit's gang runs, ran or goes."""
        own = self.pool.of_gang[self.pool.units[unit].gang]
        now = {self.pool.node_of(pod) for u in own for pod in self.pool.units[u].pods}
        return self._with_comers(now.union(*(self._origins[u] for u in own)))

    def _with_comers(self, nodes: Iterable[int]) -> BoolArray:
        places, touched = self.outcome.state.places, set(nodes)
        found = np.zeros(len(self.outcome.state.problem.nodes), dtype=np.bool_)
        found[list(touched)] = True
        for admission in self.outcome.admissions:
            there = {places[pod].node for pod in admission.allocation_unit.pods if pod in places}
            if len(there) <= WIDEST and not there.isdisjoint(touched):
                found[list(there)] = True
        return found

    def _cheapest(self) -> FloatArray:
        """(N,) the least cost by GPU of units there that may be evicted and are not disturbed."""
        found: FloatArray = np.full(len(self.outcome.state.problem.nodes), np.inf)
        calm = np.array([not self.pool.is_disturbed(u) for u in range(len(self.pool.units))], dtype=np.bool_)
        unit, node = self._pairs[calm[self._pairs[:, 0]]].T
        np.minimum.at(found, node, self._price[unit])
        return found

    def _two_racks(self, unit: int) -> BoolArray:
        """The racks of a victim, and another one."""
        found = np.zeros(len(self.outcome.state.problem.nodes), dtype=np.bool_)
        for rack in self._racks:
            if not set(self._origins[unit]).isdisjoint(rack.tolist()):
                found[rack] = True
        found[self._racks[int(self._rng.integers(len(self._racks)))]] = True
        return found


def _racks(outcome: Outcome) -> list[IntArray]:
    """Domains of the finest level that holds several nodes, of no more nodes than a neighbourhood may have."""
    best: list[IntArray] = []
    for tree in outcome.state.problem.domains.values():
        for level in tree.nodes:
            if any(1 < len(nodes) <= MOST / 2 for nodes in level):
                best = [nodes for nodes in level if len(nodes) <= MOST / 2]
    return best
