"""Plans side by side: what becomes of a gang is said in a word, and equal fates are one group."""

from kai_solver.domain import Action, Bind, Eviction, Move, Pending, Plan, Proof, Reason, Stage
from kai_solver.explaining import Difference, Placing, PlanFigures, differences, placings, plan_figures
from tests.support.builders import a_cluster, a_gang, a_node

CLUSTER = a_cluster(
    [a_node("n0"), a_node("n1")],
    [
        a_gang("new"),
        a_gang("newer"),
        a_gang("old", pods=2, on="n0"),
        a_gang("elastic", pods=3, on="n0 n1", need=1),
        a_gang("quiet", on="n1"),
    ],
)


def waits(gang: str, state: str = "proven") -> Pending:
    return Pending(gang, Reason.NOT_ENOUGH_RESOURCES, "no room", Proof(state))  # type: ignore[arg-type]


NOTHING = Plan(pending=(waits("ns/new"), waits("ns/newer", "unknown"), waits("ns/elastic")))
ONE = Plan(
    binds=(Bind("ns/new-0", "ns/new", "n0"), Bind("ns/elastic-2", "ns/elastic", "n1")),
    moves=(Move("ns/elastic-1", "ns/elastic", "n1", "n0"),),
    evictions=tuple(Eviction(f"ns/old-{i}", "ns/old", "n0", "reclaim") for i in range(2)),
    pending=(waits("ns/newer", "unknown"),),
    admitted=(("ns/new", Action.RECLAIM), ("ns/elastic", Action.ALLOCATE)),
    stages=(
        Stage("pending-gangs", 1, 1, optimal=True),
        Stage("evicted-work/75", 3600, 0, optimal=False),
        Stage("evicted-work/50", 1800, 1800, optimal=True),
    ),
)
OTHER = Plan(
    evictions=(Eviction("ns/old-1", "ns/old", "n0", "reclaim"),),
    pending=(waits("ns/newer"),),
    admitted=(("ns/new", Action.RECLAIM),),
)


def test_a_plan_in_numbers() -> None:
    assert plan_figures(ONE) == PlanFigures(
        admitted=2,
        pending=1,
        proven_pending=0,
        evicted_pods=2,
        evicted_gpu_hours=1.5,
        moved_pods=1,
        proven_stages=2,
        stages=3,
    )
    assert plan_figures(NOTHING).proven_pending == 2


def test_gangs_that_fare_differently_have_a_word_for_each_plan() -> None:
    assert differences(CLUSTER, (NOTHING, ONE, OTHER)) == (
        Difference(("waits", "starts", "starts"), ("ns/new",)),
        Difference(("stays", "is evicted", "shrinks"), ("ns/old",)),
        Difference(("stays", "grows, moves", "stays"), ("ns/elastic",)),
    )


def test_equal_plans_have_no_differences() -> None:
    assert differences(CLUSTER, (ONE, ONE)) == ()


def test_gangs_that_get_other_nodes_are_named_also_where_their_fate_is_the_same() -> None:
    other = Plan(binds=(Bind("ns/new-0", "ns/new", "n1"), Bind("ns/elastic-2", "ns/elastic", "n1")), moves=ONE.moves)
    assert differences(CLUSTER, (other, other)) == ()
    assert placings(CLUSTER, (ONE, other)) == (Placing("ns/new", ({"n0": 1}, {"n1": 1})),)
    assert placings(CLUSTER, (NOTHING, ONE)) == (
        Placing("ns/new", ({}, {"n0": 1})),
        Placing("ns/elastic", ({}, {"n0": 1, "n1": 1})),
    )
    assert placings(CLUSTER, (ONE, ONE)) == ()
