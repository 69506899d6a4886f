"""What a plan does to the pods of a gang, in words."""

from kai_solver.domain import Bind, Eviction, Move, Plan
from kai_solver.explaining.effects import effects_of

PLAN = Plan(
    binds=(Bind("ns/g-0", "ns/g", "n0"), Bind("ns/h-0", "ns/h", "n0", nominated=True), Bind("ns/h-1", "ns/h", "n1")),
    moves=(Move("ns/m-0", "ns/m", "n0", "n1", helps=("ns/g",)),),
    evictions=(Eviction("ns/v-0", "ns/v", "n0", "reclaim", helps=("ns/g",)), Eviction("ns/v-1", "ns/v", "n0", "stale")),
)


def said(gang: str) -> list[str]:
    return [effect.text for effect in effects_of(PLAN, gang, {"ns/g": "the large one"})]


def test_one_pod_and_several() -> None:
    assert said("ns/g")[0] == "1 pod gets n0"
    assert said("ns/h") == ["1 pod gets n1", "1 pod gets n0, once capacity there is released"]
    assert said("ns/m") == ["1 pod moves from n0 to n1 for the large one"]


def test_others_leave_for_a_gang_or_for_none() -> None:
    assert said("ns/g")[1:] == ["For it, 1 pod of ns/v evicted by reclaim", "For it, 1 pod of ns/m moved to n1"]
    assert said("ns/v") == ["1 pod evicted by reclaim for the large one", "1 pod evicted by stale"]
