"""The judge of plans: all rules, in one order."""

from collections.abc import Iterator, Sequence
from functools import partial

from kai_solver.check.accounts import Bills, QueueTree, grow_tree, ledger_after, ledger_before
from kai_solver.check.allowance import judge_allowances
from kai_solver.check.budgets import judge_budgets
from kai_solver.check.capacity import judge_capacity, weigh
from kai_solver.check.claims import judge_claims
from kai_solver.check.devices import judge_devices
from kai_solver.check.disruption import judge_delay, judge_moves, judge_order
from kai_solver.check.domains import judge_topology
from kai_solver.check.drains import judge_drains
from kai_solver.check.entitlement import judge_entitlement, reclaims_hold
from kai_solver.check.form import judge_form
from kai_solver.check.gangs import judge_gangs
from kai_solver.check.gpurows import judge_rows
from kai_solver.check.needless import judge_needless
from kai_solver.check.numa import judge_numa
from kai_solver.check.optional import checks_of
from kai_solver.check.placement import judge_placement
from kai_solver.check.priority import judge_priority
from kai_solver.check.ranks import judge_ranks
from kai_solver.check.scene import Scene, set_scene
from kai_solver.check.shares import fair_shares
from kai_solver.check.spacing import judge_spacing
from kai_solver.check.spares import judge_spares
from kai_solver.check.stale import judge_stale
from kai_solver.check.tenants import judge_tenants
from kai_solver.check.units import judge_units
from kai_solver.check.victims import VictimBook
from kai_solver.check.violation import Violation
from kai_solver.domain import ACTIONS, Action, Plan, Snapshot


def check_plan(snapshot: Snapshot, plan: Plan, *, actions: Sequence[Action] = ACTIONS) -> tuple[Violation, ...]:
    """Judge ``plan`` against ``snapshot``; empty: it holds.

    Rules that need sound names are judged only where ``form`` and ``foreign`` hold, and the rights of victims
    (``entitlement``, ``priority``) only where ``order`` and ``moves`` hold. Violations that were there before the
    plan are none of its own; it may not make them larger.

    Parameters
    ----------
    actions
        Actions that the model may run; those that the policy of ``snapshot`` disables may not run.
    """
    actions = snapshot.policy.enabled(actions)
    scene = set_scene(snapshot, plan)
    tree = grow_tree(snapshot)
    malformed = tuple(judge_form(scene, tree))
    return malformed or tuple(_judge(scene, tree, actions))


def _judge(scene: Scene, tree: QueueTree, actions: Sequence[Action]) -> Iterator[Violation]:
    now, end = weigh(scene)
    before = ledger_before(scene, tree)
    bills = Bills(scene)
    after = ledger_after(scene, before, bills)
    yield from judge_capacity(scene, now, end)
    yield from judge_devices(scene, now, end)
    yield from judge_rows(scene)
    yield from judge_numa(scene)
    yield from judge_claims(scene)
    yield from judge_placement(scene)
    yield from judge_gangs(scene)
    yield from judge_allowances(tree, before, after, bills)
    yield from judge_topology(scene)
    yield from judge_spacing(scene, tree)
    yield from judge_tenants(scene)
    yield from judge_spares(scene)
    for check in checks_of(scene):
        yield from check.judge(scene)
    book = VictimBook(scene)
    rights = [*judge_order(scene, actions), *judge_moves(scene, book), *judge_drains(scene, actions)]
    yield from rights
    yield from judge_delay(scene)
    yield from judge_units(scene)
    shares = fair_shares(scene, before)
    may_stay = partial(reclaims_hold, scene, tree, before, shares, bills)
    yield from judge_needless(scene, tree, end, after, may_stay)
    if not rights:
        yield from judge_priority(scene, tree, book)
        yield from judge_entitlement(scene, tree, book, before, shares, bills)
    yield from judge_stale(scene, actions)
    yield from judge_budgets(scene)
    yield from judge_ranks(scene)
