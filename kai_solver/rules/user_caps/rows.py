"""usercaps: where a queue says so, each of its users holds at most so much.

With g the group of one user in one queue and below, per resource (GPUs, pods)::

    sum_{arrivals a} need[a, g] admit[a]  -  sum_{movers m} has[m, g] out[m]  <=  most[g] - held[g]

``held`` is what all pods hold that run when the cycle begins. A cap that is passed already forbids that more comes, and
nothing else. Source: our rule (KAI has none); docs/operating.md#user-caps.
"""

from kai_solver.model.spec import Term, Var
from kai_solver.model.variables import Variables
from kai_solver.rules.user_caps.problem import NAME, Amount, UserCaps


def add(v: Variables, caps: UserCaps) -> None:
    """Add the rows of the groups that arrivals add to."""
    held = caps.needed(pod for gang in v.joint.problem.gangs for pod in gang.active)
    coming: dict[int, list[tuple[Amount, Var]]] = {}
    for arrival, admit in zip(v.joint.arrivals, v.admit, strict=True):
        for group, need in caps.needed(pod for piece in arrival.pieces for pod in piece.pods).items():
            coming.setdefault(group, []).append((need, admit))
    leaving: dict[int, list[tuple[Amount, Var]]] = {}
    for movers in v.classes:
        for group, has in caps.needed(movers.first.pieces[0].pods).items():
            leaving.setdefault(group, []).extend([(has, movers.out_reclaim), (has, movers.out_preempt)])
    for unit in v.units:
        for group, has in caps.needed(pod for piece in unit.mover.pieces for pod in piece.pods).items():
            leaving.setdefault(group, []).extend([(has, unit.out_reclaim), (has, unit.out_preempt)])
    for group, arrivals in coming.items():
        for place, most in enumerate(caps.groups[group].most):
            adding: list[Term] = [(need[place], admit) for need, admit in arrivals if need[place]]
            if most is None or not adding:
                continue
            room = most - held.get(group, (0, 0))[place] - caps.kept.get(group, (0, 0))[place]
            row = [*adding, *((-has[place], out) for has, out in leaving.get(group, ()) if has[place])]
            if room >= 0:
                v.spec.add_le(row, room, family=NAME)
            else:
                for _, admit in adding:
                    v.spec.add_le(row, room, family=NAME, only_if=(admit,))
