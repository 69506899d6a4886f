"""The stage ``leftover``: guests, usual pods that the rest of each node would still take, at their worth.

For every kind of usual pod g and every node n on which any pod may come, stay or leave::

    guest[g, n]    integer, how many of them n would take beside all that the plan puts there
    minimise       worth of what was free there before - sum_g,n worth[g] guest[g, n]

Guests are in the rows of ``capacity`` beside the pods of the plan, and in no other rule: no rule requires them.
Their worths are fixed in advance (`kai_solver.bounds.outlook`): by dual prices of the demand that usually arrives, so
that no row has to count over nodes how many of them there are.
"""

from kai_solver.model.rows import Ints
from kai_solver.model.spec import Term, Var
from kai_solver.model.variables import Variables

MOST_GUESTS = 6_000
"""Variables beyond which none are invited: the stage is then the greedy's alone."""


def invite_guests(v: Variables) -> None:
    """Make the variables, where the problem has an outlook and they are not too many."""
    outlook = v.joint.problem.outlook
    if outlook is None or len(outlook.shapes) * len(v.nodes_concerned()) > MOST_GUESTS:
        return
    v.invite(shape for shape, guest in zip(outlook.shapes, outlook.guests, strict=True) if guest.worth)


def worth_lost(v: Variables) -> tuple[tuple[Term, ...], int]:
    """Terms and constant of what is minimised."""
    problem = v.joint.problem
    outlook = problem.outlook
    if outlook is None:
        return (), 0
    worth = {shape: guest.worth for shape, guest in zip(outlook.shapes, outlook.guests, strict=True)}
    before = outlook.worth(v.nodes_concerned(), problem.room)
    return tuple((-worth[s], var) for s, places in v.guests.items() for var in places.values()), before


def guests_of(v: Variables, free: Ints, devices: Ints) -> dict[Var, int]:
    """Guests of a plan that leaves ``free`` (R, N) and ``devices`` (N, D), for a hint."""
    outlook = v.joint.problem.outlook
    found = {var: 0 for places in v.guests.values() for var in places.values()}
    if outlook is None or not found:
        return found
    for node in v.nodes_concerned():
        for shape, count in outlook.packed(node, free[:, node], devices[node])[1].items():
            if node in v.guests[shape]:
                found[v.guests[shape][node]] = count
    return found
