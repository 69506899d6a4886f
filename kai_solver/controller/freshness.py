"""What changed while a plan was made: orders that hold no more are dropped by gang; the next cycle decides again."""

from collections.abc import Mapping
from dataclasses import replace

from kai_solver.cluster.api import Object, meta
from kai_solver.cluster.binding import GangPlacement, Placement
from kai_solver.cluster.evicting import Departure
from kai_solver.cluster.resources import NODES, PODS
from kai_solver.cluster.store import Store, is_worth_a_cycle
from kai_solver.controller.orders import Orders
from kai_solver.errors.barrier import caught


def still_holding(orders: Orders, nodes: Mapping[str, Object], store: Store) -> tuple[Orders, frozenset[str]]:
    """The orders that still hold, and the gangs whose orders do not.

    Parameters
    ----------
    nodes
        By name, as they were when the cluster was looked at.
    store
        The cluster as it is now.

    Notes
    -----
    A gang is dropped whole: its pods were placed together. Evictions for a dropped gang alone are dropped with it.
    """
    lost = {gang.gang for gang in orders.binds if not _holds(gang, nodes, store)}
    departures = tuple(
        d for d in orders.departures if _is_there(d, store) and not (d.helps and lost.issuperset(d.helps))
    )
    if not lost and len(departures) == len(orders.departures):
        return orders, frozenset()
    binds = tuple(gang for gang in orders.binds if gang.gang not in lost)
    return replace(orders, binds=binds, departures=departures), frozenset(lost)


def _holds(gang: GangPlacement, nodes: Mapping[str, Object], store: Store) -> bool:
    try:
        return all(
            _waits(placement, store) and _is_as_it_was(placement.node, nodes, store) for placement in gang.placements
        )
    except Exception as error:  # the orders for other gangs hold
        caught("ordering", gang.gang, error)
        return False


def _waits(placement: Placement, store: Store) -> bool:
    pod = store.get(PODS, placement.key)
    if pod is None or meta(pod).get("uid") != placement.uid or meta(pod).get("deletionTimestamp"):
        return False
    spec = pod.get("spec")
    return isinstance(spec, dict) and not spec.get("nodeName") and not spec.get("schedulingGates")


def _is_as_it_was(name: str, nodes: Mapping[str, Object], store: Store) -> bool:
    now = store.get(NODES, name)
    return now is not None and not is_worth_a_cycle(NODES, nodes.get(name), now)


def _is_there(departure: Departure, store: Store) -> bool:
    pod = store.get(PODS, departure.key)
    return pod is not None and meta(pod).get("uid") == departure.uid
