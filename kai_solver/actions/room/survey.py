"""What room for one more pod costs at the least, for all nodes at once.

A relaxation of `NodeRoom`, node by node: whole devices by an exact choice of units, every other resource alone and with
units divisible. Where it says "infinite", no eviction helps; elsewhere `NodeRoom` says what it really costs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.planstate.holdings import HoldRows
from kai_solver.planstate.victims import IMPOSSIBLE, VictimPool
from kai_solver.units import GPU, PODS
from kai_solver.units.shares import WHOLE

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """Ways to free devices, O of them: of the options of one ``group`` at one place at most one may be chosen.

    Attributes
    ----------
    at
        (O,) index of the place (a node), ascending.
    group
        (O,) ascending within a place; ``devices`` and ``price`` of a group ascend.
    """

    at: IntArray
    group: IntArray
    devices: IntArray
    price: FloatArray


def cheapest_cover(need: IntArray, options: Options) -> FloatArray:
    """(M,) the least price of options that free ``need`` (M,) devices at each place; infinite where all do not suffice.

    Exact: a knapsack over all places at once, one numpy step for each option that a place may have. Where all
    must leave there is nothing to choose.
    """
    least = np.where(need > 0, IMPOSSIBLE, 0.0)
    if not len(options.at):
        return least
    last = np.ones(len(options.at), dtype=np.bool_)
    last[:-1] = (options.at[1:] != options.at[:-1]) | (options.group[1:] != options.group[:-1])
    most = np.bincount(options.at[last], weights=options.devices[last], minlength=len(need))
    all_of_it = np.bincount(options.at[last], weights=options.price[last], minlength=len(need))
    all_go = (most == need) & (need > 0)
    least[all_go] = all_of_it[all_go]
    open_ = np.flatnonzero((most > need) & (need > 0))
    if len(open_):
        least[open_] = _knapsack(need, open_, options)
    return least


def _knapsack(need: IntArray, places: IntArray, options: Options) -> FloatArray:
    number = np.full(len(need), -1, dtype=np.int64)
    number[places] = np.arange(len(places))
    kept = number[options.at] >= 0
    at, group = number[options.at[kept]], options.group[kept]
    devices, price = options.devices[kept], options.price[kept]
    if need[places].max() == 1:
        cheapest = np.full(len(places), IMPOSSIBLE)
        np.minimum.at(cheapest, at, price)
        return cheapest
    rank, step = _rounds(at, group)
    amounts = np.arange(int(need[places].max()) + 1)
    best = np.full((len(places), len(amounts)), IMPOSSIBLE)
    best[:, 0] = 0.0
    before = best
    for key in np.unique(rank * (int(step.max()) + 1) + step):
        round_, next_gang = divmod(int(key), int(step.max()) + 1)
        rows = np.flatnonzero((rank == round_) & (step == next_gang))
        if next_gang == 0:
            before, best = best, best.copy()
        where = at[rows]
        source = np.maximum(amounts[None, :] - devices[rows, None], 0)
        offer = np.take_along_axis(before[where], source, axis=1) + price[rows, None]
        best[where] = np.minimum(best[where], offer)
    found: FloatArray = best[np.arange(len(places)), need[places]]
    return found


def _rounds(at: IntArray, group: IntArray) -> tuple[IntArray, IntArray]:
    """Of each option, which group of its place it belongs to, and its position in that group; both from 0."""
    index = np.arange(len(at))
    new_place = np.ones(len(at), dtype=np.bool_)
    new_place[1:] = at[1:] != at[:-1]
    new_group = new_place.copy()
    new_group[1:] |= group[1:] != group[:-1]
    groups = np.cumsum(new_group) - 1
    rank = groups - np.maximum.accumulate(np.where(new_place, groups, 0))
    step = index - np.maximum.accumulate(np.where(new_group, index, 0))
    return rank, step


class Survey:
    """Asks for one shape, at one price list: ``prices`` (U,) by unit."""

    def __init__(self, pool: VictimPool, shape: int, prices: FloatArray) -> None:
        self.pool = pool
        self.state = pool.state
        spec = self.state.problem.shapes.shapes[shape]
        self._gpu = spec.gpu
        self._mask = self.state.problem.shapes.mask(shape)
        self._parts = self.state.problem.shapes.parts(shape)
        self._need = [(r, amount) for r, amount in enumerate(spec.request) if amount and r not in (GPU, PODS)]
        self._prices = prices

    def bounds(self, eligible: BoolArray, nodes: IntArray) -> FloatArray:
        """(M,) least cost on ``nodes``, ascending, where ``eligible`` (U,) units may leave.

        Of nodes where the pod does not fit as it is.
        """
        rows = self.pool.rows(eligible, nodes)
        bound = np.full(len(nodes), IMPOSSIBLE)
        np.minimum.at(bound, rows.node, self._prices[rows.unit])
        for resource, amount in self._need:
            np.maximum(bound, self._divisible(rows, nodes, resource, amount), out=bound)
        if self._gpu.is_whole:
            np.maximum(bound, self._whole(rows, nodes), out=bound)
        elif self._gpu.devices:
            np.maximum(bound, self._shared(rows, nodes), out=bound)
        bound[~self._mask[nodes]] = IMPOSSIBLE
        return bound

    def _divisible(self, rows: HoldRows, nodes: IntArray, resource: int, amount: int) -> FloatArray:
        """What the lack of ``resource`` costs at the rate of the cheapest unit; infinite where all are not enough."""
        lack = np.maximum(amount - self.state.future[resource, nodes], 0)
        if not lack.any():
            return np.zeros(len(nodes))
        held = rows.request[resource]
        freed = np.bincount(rows.node, weights=held, minlength=len(nodes))
        gives = held > 0
        cost = np.full(len(nodes), IMPOSSIBLE)
        # By the part of the unit that is needed: never above its price, not even by rounding.
        np.minimum.at(cost, rows.node[gives], self._prices[rows.unit[gives]] * (lack[rows.node[gives]] / held[gives]))
        found: FloatArray = np.where(lack > 0, np.where(freed >= lack, cost, IMPOSSIBLE), 0.0)
        return found

    def _whole(self, rows: HoldRows, nodes: IntArray) -> FloatArray:
        need = self._gpu.devices - self.state.whole_later[nodes]
        slots, shared_price = self._by_slot(rows)
        gives = rows.whole > 0
        unit, node, whole = rows.unit[gives], rows.node[gives], rows.whole[gives]
        gang, closures = self.pool.gang_of[unit], self.pool.closure_prices(self._prices, unit)
        price = np.where(slots[gives] > whole, self._prices[unit] * whole / np.maximum(slots[gives], 1), closures)
        bundle_node, bundle_device, bundle_price = self._bundles(rows, nodes, shared_price)
        return cheapest_cover(
            need,
            _options(
                np.concatenate([node, bundle_node]),
                np.concatenate([gang, len(self.state.problem.gangs) + bundle_device]),
                np.concatenate([whole, np.ones_like(bundle_node)]),
                np.concatenate([price, bundle_price]),
            ),
        )

    def _by_slot(self, rows: HoldRows) -> tuple[IntArray, FloatArray]:
        """(H,) devices that each row's unit holds there in any way; (S,) the part of its price for a shared one."""
        if not len(rows.shared_unit):
            return rows.whole, np.zeros(0)
        width = len(self._prices)
        key = rows.node * width + rows.unit
        position = np.searchsorted(key, rows.shared_node * width + rows.shared_unit)
        slots = rows.whole + np.bincount(position, minlength=len(key))
        return slots, self._prices[rows.shared_unit] / np.maximum(slots[position], 1)

    def _bundles(self, rows: HoldRows, nodes: IntArray, price: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
        """Shared devices that are free once all pods that may leave them have left: node, device, price of all."""
        if not len(price):
            return rows.shared_node, rows.shared_device, price
        free = self.state.device_future[nodes]
        flat = rows.shared_node * free.shape[1] + rows.shared_device
        which, position = np.unique(flat, return_inverse=True)
        held = np.bincount(position, weights=rows.shared_parts) + free.reshape(-1)[which]
        is_freed = (held >= WHOLE) & (free.reshape(-1)[which] < WHOLE)
        total = np.bincount(position, weights=price)
        return which[is_freed] // free.shape[1], which[is_freed] % free.shape[1], total[is_freed]

    def _shared(self, rows: HoldRows, nodes: IntArray) -> FloatArray:
        """One device with room: a whole one that its holder leaves, or a shared one at the rate of its cheapest."""
        free, parts = self.state.device_future[nodes], self._parts[nodes, None]
        bound = np.full(len(nodes), IMPOSSIBLE)
        alone = rows.whole > 0
        np.minimum.at(bound, rows.node[alone], self._prices[rows.unit[alone]])
        lack = np.maximum(parts - free, 0).reshape(-1)
        flat = rows.shared_node * free.shape[1] + rows.shared_device
        freed = np.bincount(flat, weights=rows.shared_parts, minlength=len(lack))
        rate = np.full(len(lack), IMPOSSIBLE)
        np.minimum.at(rate, flat, self._prices[rows.shared_unit] / np.maximum(rows.shared_parts, 1))
        usable = np.flatnonzero((freed >= lack) & (freed > 0))
        np.minimum.at(bound, usable // free.shape[1], rate[usable] * lack[usable])
        bound[(free >= parts).sum(axis=1) >= self._gpu.devices] = 0.0
        return bound


def _options(node: IntArray, group: IntArray, devices: IntArray, price: FloatArray) -> Options:
    """Options by node and group, in the order given within a group, where devices add up (later units go last)."""
    key = node * (int(group.max(initial=0)) + 1) + group
    if bool((key[1:] < key[:-1]).any()):
        order = np.argsort(key, kind="stable")
        node, group, devices, price = node[order], group[order], devices[order], price[order]
    new = np.ones(len(node), dtype=np.bool_)
    new[1:] = (node[1:] != node[:-1]) | (group[1:] != group[:-1])
    total = np.cumsum(devices)
    before = np.maximum.accumulate(np.where(new, total - devices, 0))
    return Options(node, group, total - before, price)
