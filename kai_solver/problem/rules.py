"""What an optional rule is to the rest of the program, and which rules there are.

A rule is a package of its own (`kai_solver/rules/<rule>/`, or one that a user installs). Hosts (the working state, the
model, the bounds, the explanations) iterate over `Problem.rules` and name no rule; what they ask is written here, with
defaults that ask for nothing. So a rule overrides only what it has an opinion about, and a cycle in which no object
uses a rule has an empty list: what that costs is one check of a tuple.

Three objects, by how long they live:

- `Rule`: installed, without state. It prepares its facts from the problem of a cycle, and knows how the cluster looks
  without the rule ("what if").
- `RuleFacts`: of one cycle, never changed. They add rows to the model, bound what a count may still use, and word the
  element of a blocking set.
- `Ledger`: of one working state, changed step by step. It works on shapes, nodes and counts, and every step is undone
  by the same call with the sign turned, so that compiled code can take it over.

The rules that ship are named in `domain.RULES` and loaded by name, as those of users are: so this room, and every host,
imports none of them. What belongs to rooms above is passed as `Any`; a rule, which is above them, names the type.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import RULE_GROUP, Blocker, Node, Pod, Reason, Snapshot, loaded_rule, rule_names
from kai_solver.errors import InputError
from kai_solver.errors.extensions import CURE
from kai_solver.units import ResourceSchema

if TYPE_CHECKING:
    from kai_solver.problem.problem import Problem
    from kai_solver.problem.shapes import Shape

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


class Refused(NamedTuple):
    """Why pods may not be added: the reason that is published, a sentence, and the element of a blocking set."""

    reason: Reason
    message: str
    blocker: Blocker


class Leaver(NamedTuple):
    """A running pod that has to leave its node, for no other gang.

    ``by_s``: epoch seconds until when; ``allowed``: (N,) nodes where it may go; ``why``: a clause for people.
    """

    pod: int
    by_s: float
    allowed: BoolArray
    why: str


class Compartments(NamedTuple):
    """Parts of M of the N nodes, at most Z each, with which pods are aligned. The ledger goes on changing them.

    ``row_of``: (N,) which of the M nodes it is, -1 for the others; ``aware``: (M, R) resources that are counted by
    part; ``now``, ``later``: (M, Z, R) what is free now, and once all that is leaving has left.
    """

    row_of: IntArray
    aware: BoolArray
    now: IntArray
    later: IntArray


class Weight(Enum):
    """What a preference of a rule outweighs where a node is chosen (docs/kai-behaviour.md#scoring).

    ``NEIGHBOURS``: the preferred topology, and all below it. ``NODES``: nothing more than the pod's own preference of
    nodes, to which it is added. ``WORKLOAD``: what is free on the node.
    """

    NEIGHBOURS, NODES, WORKLOAD = range(3)


class Ledger:
    """What one rule counts while a plan is made: of N nodes, by shape of pod. The defaults forbid nothing.

    ``pod`` is one pod of the shape, for rules that ask about its gang; ``count`` pods like it are meant.

    Attributes
    ----------
    kind
        That of its facts.
    by_device
        Whether it matters which devices of its node a pod has: one that stays on its node keeps its own.
    grants
        Whether pods get something of their node beside resources and devices: ``grant`` says what.
    """

    kind: str = ""
    by_device: bool = False
    grants: bool = False

    # -- nodes and counts --------------------------------------------------------------------------------------------

    def is_plain(self, shape: int, /) -> bool:
        """True where the ledger neither masks nor counts pods of ``shape``: they are then placed without asking it."""
        return False

    def mask(self, shape: int, pod: int, /) -> BoolArray | None:
        """(N,) nodes that one more pod of ``shape`` may take; None: all."""
        return None

    def counts_alike(self, shape: int, /) -> bool:
        """True where each pod of ``shape`` lowers the counts of its node by one and no score changes, as if plain.

        Such pods are placed many at once. They are granted what the rule grants, and asked nothing else.
        """
        return self.is_plain(shape)

    def adds_up(self, shape: int, /) -> bool:
        """True where a node has room for one more pod of ``shape`` with each that leaves it."""
        return True

    def limits(self, shape: int, /) -> bool:
        """Whether ``limit`` may lower counts of pods of ``shape``; shapes with the same room have the same limit."""
        return False

    def limited_nodes(self, shape: int, /) -> BoolArray | None:
        """(N,) nodes on which ``limit`` may lower counts of pods of ``shape``, where it limits them; None: on all."""
        return None

    def limit(self, shape: int, nodes: IntArray, now: IntArray, later: IntArray, /) -> None:
        """Lower the counts of pods of ``shape`` that fit ``nodes`` (K,): at once, and later, (K,) each."""

    def compartments(self) -> Compartments | None:
        """Parts of nodes by which the rule limits counts, for code that counts in arrays; None: it has none.

        A rule with compartments says by `in_compartments` what its limits are. Grants are then ((part, amounts), ...).
        """
        return None

    def in_compartments(self, shape: int, /) -> tuple[Sequence[int], IntArray] | None:
        """What a pod of ``shape`` asks for of compartments, (R,), and (M,) of how many: none, one, or all together.

        It takes the first that fits, or of all of them the first first. None where this does not say it.
        """
        return None

    def avoided(self, shape: int, /) -> BoolArray | None:
        """(N,) nodes that pods of ``shape`` take only where they fit no other that is as good; None: none."""
        return None

    def score(self, shape: int, nodes: IntArray, /) -> IntArray | None:
        """(K,) of ``nodes``, from 0 to 100, by how well they suit one more pod of ``shape``; None: all do."""
        return None

    def preferences(self, shape: int, pod: int, candidates: BoolArray, /) -> Iterable[tuple[Weight, IntArray]]:
        """How much better than others (N,) nodes suit one more pod, scaled over ``candidates`` (N,), and its weight."""
        return ()

    # -- steps -------------------------------------------------------------------------------------------------------

    def place(self, shape: int, pod: int, node: int, count: int, sign: int, *, now: bool) -> None:
        """``count`` pods are to run on ``node`` (+1), or no longer (-1). ``now``: they start there at once."""

    def leave(self, shape: int, pod: int, node: int, count: int, sign: int, /) -> None:
        """``count`` pods that ran on ``node`` before the cycle leave it (+1), or stay after all (-1)."""

    def join(self, gang: int, pods: Sequence[int], sign: int, /) -> None:
        """``pods`` of ``gang`` are to run, wherever (+1), or no longer (-1); those that run already are counted."""

    def refuses(self, gang: int, pods: Sequence[int], /) -> Refused | None:
        """What forbids that ``pods`` of ``gang`` join, wherever they go; None where nothing does."""
        return None

    def keeps_caps(self) -> bool:
        """False where pods have joined that the rule would refuse, with all that left since taken into account."""
        return True

    def so_far(self) -> Any:
        """What `RuleFacts.lacks` has to know of the plan so far; it is kept, so it must be a copy."""
        return None

    def take(self, node: int, grant: Any, sign: int, *, now: bool) -> None:
        """A pod with ``grant`` is to be on ``node`` (+1), or no longer (-1). ``now``: it starts there at once."""

    def may_start(self, shape: int, pod: int, node: int, /) -> bool:
        """False where ``pod`` has to wait on ``node`` although there is room for it now."""
        return True

    def expect(self, pod: int, node: int, sign: int, /) -> None:
        """A pod is about to start on ``node`` (+1), so others may rely on it; or that is no longer known (-1)."""

    def may_rely(self, pod: int, node: int, /) -> bool:
        """False where ``pod``, which starts on ``node``, relied on a pod that leaves or waits after all."""
        return True

    def has_room_at_origin(self, pod: int, /) -> bool:
        """False where an evicted ``pod`` finds the node where it ran no longer as it left it."""
        return True

    def may_return(self, pod: int, /) -> bool:
        """True where an evicted ``pod`` may stay where it ran, whatever was placed since; else ``holds`` is asked."""
        return False

    def holds(self) -> bool:
        """Whether the plan so far keeps the rule."""
        return True

    # -- gangs whose pods must lie in a certain way (`GangShape.is_spaced`) --------------------------------------------

    def keeps_spacing(self, gang: int, /) -> bool:
        """Whether the pods of ``gang`` that got places lie as the rule asks."""
        return True

    def has_company(self, gang: int, /) -> bool:
        """Whether it matters where pods are with which those of ``gang`` must lie: no other gang's "no" is its own."""
        return False

    def spacing(self, gang: int, /) -> "Spacing | None":
        """What it asks of waiting pods of ``gang`` wherever others are; None: nothing."""
        return None

    def in_the_way(self, gang: int, pods: Sequence[int], placed: int, /) -> Refused | None:
        """What is said where ``pods`` of ``gang`` would find places without the rule, and only ``placed`` do with it.

        None where the rule asks nothing of the gang, or ``reasons`` say all.
        """
        return None

    def for_rows(self, arrivals: Sequence[Any], movers: Sequence[Any], /) -> Any:
        """What its rows have to know of the working state: they find it in `Joint.of_rules`; None: nothing.

        ``arrivals``, ``movers``: `kai_solver.model.joint.Arrival` and ``Mover``.
        """
        return None

    # -- what pods get of a node -------------------------------------------------------------------------------------

    def grant(self, pod: int, node: int, wanted: Any, *, now: bool) -> Any:
        """What ``pod`` gets of ``node``, which has room for it: ``wanted`` where that is free; None: nothing."""
        return None

    def grants_at(self, node: int, /) -> bool:
        """False where ``grant`` gives no pod anything of ``node``."""
        return True

    def is_free(self, node: int, grant: Any, /) -> bool:
        """True where ``grant`` could be had on ``node`` at once."""
        return True

    def held(self, pod: int, /) -> Any:
        """What a running pod was granted, as far as known; None: nothing."""
        return None

    def gives_back(self, pod: int, shape: int, /) -> bool:
        """True where a running ``pod`` that leaves makes room for one of ``shape``, where `counts_alike` is true."""
        return True

    def free(self) -> Any:
        """What is free of what the rule grants, as `RuleFacts.free` says it."""
        return None

    def chooses_devices(self, shape: int, /) -> bool:
        """Whether no devices but those that ``devices`` names will do for pods of ``shape``."""
        return False

    def devices(self, shape: int, node: int, free: Sequence[int], /) -> tuple[int, ...] | None:
        """Those of the devices ``free`` that a pod of ``shape`` takes on ``node``; None: any. Empty: none serve best.

        Raises `InternalError` where the pod does not fit, though it was counted.
        """
        return None

    def ordered(self, free: list[int], /) -> list[int]:
        """Devices ``free`` of a node in the order in which pods take them that may have any."""
        return free

    def precedence(self, shape: int, /) -> int:
        """Of pods that a solution places together, those with the least go first."""
        return 0

    # -- room of others ----------------------------------------------------------------------------------------------

    def clearing(self, pool: Any, shape: int, prices: Sequence[float], /) -> "Clearing | None":
        """How victims make room for a pod of ``shape`` on a node; None where resources alone say it.

        ``pool``: `kai_solver.planstate.victims.VictimPool`; ``prices``: of its units.
        """
        return None

    def room(self, room: IntArray, shape: int, domain_of: IntArray, /) -> Iterator[IntArray]:
        """(N,) ``room`` for pods of ``shape`` on each node, lowered to what the rule lets them use of several nodes.

        Each must be an upper bound by which no sum over the nodes of one of ``domain_of`` (N,) comes out too small.
        """
        return iter(())

    # -- words -------------------------------------------------------------------------------------------------------

    def closed(self, shape: int, pod: int, nodes: BoolArray, /) -> BoolArray | None:
        """(N,) those of ``nodes``, which have the resources, that the rule keeps ``pod`` from; None: none."""
        mask = self.mask(shape, pod)
        return None if mask is None else nodes & ~mask

    def reasons(self, shape: int, pod: int, nodes: BoolArray, /) -> Mapping[str, int]:
        """For ``nodes`` (N,), all of them ``closed``: how many by reason, for people."""
        return {}


def answering(ledgers: Sequence[Ledger], question: str) -> tuple[Ledger, ...]:
    """Those of ``ledgers`` that have an answer of their own to ``question``, a method's name, beside the default."""
    return tuple(one for one in ledgers if getattr(type(one), question) is not getattr(Ledger, question))


class Spacing:
    """How the pods of one allocation unit must lie on nodes by one rule, as far as that concerns no other pods.

    Attributes
    ----------
    nodes
        They are on so many different nodes at the least, or all on different ones where they are fewer.
    says
        The most that a node may hold of them, for people; empty where there is none.
    """

    kind: str = ""
    nodes: int = 0
    says: str = ""

    def most(self, problem: "Problem", shape: int, /) -> IntArray:
        """(N,) most pods of ``shape`` that each node may hold."""
        raise NotImplementedError


class Clearing:
    """How units of victims make room on a node for one more pod of a shape, by one rule.

    ``chooses_devices``: ``free`` is asked instead of counting devices, and not after it.
    """

    chooses_devices: bool = False

    def free(self, node: int, chosen: dict[int, None], candidates: Sequence[int], /) -> bool:
        """Add the cheapest of ``candidates`` (units with pods on ``node``) to ``chosen``; False where all do not do."""
        return True

    def suffices(self, node: int, units: Iterable[int], candidates: Sequence[int], /) -> bool:
        """True where the rule has room for the pod once ``units`` of the ``candidates`` have left."""
        return True


class ClearedDomains(NamedTuple):
    """Units of victims that leave, and the nodes (N,) of the ``domains`` domains that this opens."""

    units: list[int]
    nodes: BoolArray
    domains: int = 1


class RuleBound:
    """What a count may still use by one rule, with some of the pods that run out of the way.

    ``spans``: ``most`` is less than the sum over single nodes.
    """

    kind: str = ""
    spans: bool = False

    def closed(self, shape: int, /) -> BoolArray | None:
        """(N,) nodes that take no pod of ``shape``; None: none is closed."""
        return None

    def most(self, shape: int, fit: IntArray, /) -> int:
        """Most pods of ``shape`` together, where each node takes ``fit`` (N,) alone."""
        return int(fit.sum())


ReleaseKey = tuple[str, int]
"""A cap on how many of some running pods may leave: the rule's name, and its number there."""

ReleaseUse = tuple[tuple[int, int], ...]
"""(Number of a cap, pods that it counts) of units that leave together."""


class Releases:
    """Which of U units of running pods may leave by one rule, alone and together; a unit that moves leaves, too.

    The rule has caps: at most so many of the pods that each counts may leave.

    Attributes
    ----------
    held
        (U,) units that are more than a cap allows: they never leave.
    divisible
        (U,) units of several pods of which some could move without the others: what is impossible for the whole may be
        possible for a part, and a unit that moves in part takes less than its use.
    free
        (U,) units that no cap counts.
    """

    held: BoolArray
    divisible: BoolArray
    free: BoolArray

    def use(self, unit: int, /) -> ReleaseUse:
        """How many of the pods of ``unit`` are counted by which caps."""
        raise NotImplementedError

    def left(self) -> IntArray:
        """By cap, how many more may leave."""
        raise NotImplementedError

    def fits(self, units: Iterable[int], /) -> bool:
        """May all of ``units``, which have not left, go too?"""
        raise NotImplementedError

    def exhausted(self) -> frozenset[int]:
        """Caps that let no more pods go, though at first they let some."""
        raise NotImplementedError

    def open_units(self, exhausted: frozenset[int], /) -> BoolArray:
        """(U,) units of which the caps ``exhausted`` count nothing."""
        raise NotImplementedError

    def binding(self, units: BoolArray, /) -> Blocker | None:
        """What keeps some of ``units`` (U,) from leaving, as an element of what blocks; None where nothing does."""
        raise NotImplementedError


class Holding:
    """Which running pods must keep a place whatever is chosen, by one rule: P pods of G gangs."""

    @cached_property
    def barred(self) -> BoolArray:
        """(P,) pods that may not leave, neither for good nor for another place."""
        raise NotImplementedError

    @cached_property
    def whole(self) -> BoolArray:
        """(G,) gangs that cannot be evicted: they leave whole, and only some of their pods may go."""
        raise NotImplementedError

    def staying(self, leaving: BoolArray, barred: BoolArray, /) -> Counter[int]:
        """Pods by shape that need a place though their gangs are among those ``leaving`` (G,), and are not ``barred``.

        Only those that run where they would be let in now: the others may stay there without a place for them.
        ``barred``: (P,) by any rule.
        """
        raise NotImplementedError


class RuleFacts:
    """What one rule is in one cycle.

    Attributes
    ----------
    name
        Of the rule, and of its family of rows in the model.
    kind
        Of its element in a blocking set, and what a bound or the model is told to drop.
    ties
        Whether gangs that share no node, queue or gang may concern each other by this rule; then the model is not
        solved in parts.
    limits_nodes
        Whether its element is about what nodes have room for, as a resource's is: then it has a place.
    is_monotone
        Whether a pod that asks for no more than another fits by the rule wherever that one does.
    is_protective
        Whether it says which running pods may leave, and nothing of those that come. Then the element is asked about
        only where an action could disturb running pods, and ``may_block`` is not.
    """

    name: str = ""
    kind: str = ""
    ties: bool = True
    limits_nodes: bool = False
    is_monotone: bool = True
    is_protective: bool = False

    def ledger(self, state: Any, /) -> Ledger | None:
        """What it counts in a working state; None where rows and bounds alone keep it.

        ``state``: `kai_solver.planstate.state.State`, which has its problem and what is free, and no rules yet.
        """
        return None

    def limit(self, problem: "Problem", shape: int, count: IntArray, device_free: IntArray, /) -> None:
        """Lower the ``count`` (N,) of pods of ``shape`` that fit each node alone, given (N, D) free device parts."""

    def exempt(self, problem: "Problem", /) -> frozenset[int]:
        """Running pods that do not keep the rule where they are: they may stay, and no count of room has them."""
        return frozenset()

    def is_crossed(self, problem: "Problem", /) -> bool:
        """Whether running pods are where the rule would let no new pods like them be: then a "no" is no proof."""
        return False

    def overcommitted(self, problem: "Problem", /) -> BoolArray | None:
        """(N,) nodes on which running pods hold more than there is by the rule; None: none."""
        return None

    def uncounted(self, problem: "Problem", /) -> BoolArray | None:
        """(N,) nodes of which `limit` does not say whether the running pods have room there; None: none."""
        return None

    def tolerated(self, problem: "Problem", /) -> BoolArray | None:
        """(N,) nodes on which running pods do not keep the rule, and may stay all the same; None: none.

        A count of room does not ask for places of the pods there; unlike those `exempt`, the rows have them.
        """
        return None

    def clearings(self, pool: Any, eligible: BoolArray, unit: Any, /) -> Iterable[ClearedDomains]:
        """Ways to open whole domains to ``unit``, the best first, where pod by pod no victims make room.

        ``pool``: `kai_solver.planstate.victims.VictimPool`, of whose units only the ``eligible`` may leave. ``unit``:
        `kai_solver.planstate.allocation_units.AllocationUnit`.
        """
        return ()

    # -- which running work may leave --------------------------------------------------------------------------------

    def may_be_gone(self, gone: BoolArray, /) -> bool:
        """Whether the running pods ``gone`` (P,) may have left or moved, all of them."""
        return True

    def releases(self, state: Any, units: Sequence[Sequence[int]], /) -> Releases | None:
        """Which of ``units`` (pods that only leave together) may leave, as ``state`` stands; None: all.

        ``state``: `kai_solver.planstate.state.State`, which changes.
        """
        return None

    def holding(self, residents: Any, /) -> Holding | None:
        """Which running pods must keep a place; None: none. ``residents``: `kai_solver.bounds.residents.Residents`."""
        return None

    @property
    def drained(self) -> frozenset[int]:
        """Gangs whose running pods are to be evicted for the rule's sake, which helps no other gang."""
        return frozenset()

    def leavers(self, problem: "Problem", /) -> Sequence[Leaver]:
        """Running pods that are to move for the rule's sake, as far as there is room when all else is decided."""
        return ()

    # -- what pods get of a node -------------------------------------------------------------------------------------

    def held(self, pod: int, /) -> Any:
        """As `Ledger.held`."""
        return None

    def keeps(self, pod: int, grant: Any, /) -> bool:
        """Whether a running ``pod`` that is placed on its own node with ``grant`` (None: nothing) stays as it is."""
        return True

    def free(self, problem: "Problem", lifted: Iterable[int], /) -> Any:
        """What is free of what the rule grants without the running pods ``lifted``, for its rows in the model."""
        return None

    def plan_fields(self, node: int, grant: Any, /) -> Mapping[str, Any]:
        """Fields of `domain.Bind` and `domain.Move` that show ``grant``."""
        return {}

    def bind_order(self, grant: Any, /) -> Sequence[int]:
        """Binds with a grant are carried out in this order, among their own places; empty: it does not matter."""
        return ()

    # -- model -------------------------------------------------------------------------------------------------------

    def add_rows(self, variables: Any, /) -> None:
        """Add its rows to the joint model; ``variables``: `kai_solver.model.variables.Variables`."""

    def by_device(self, variables: Any, /) -> BoolArray | None:
        """(N,) nodes on which it matters which devices a running pod has that may stay; None: nowhere."""
        return None

    def decode(self, variables: Any, values: Any, decision: Any, /) -> None:
        """Add to ``decision`` what the variables of its rows say of single pods.

        ``values`` by variable; ``decision``: `kai_solver.model.decode.Decision`, with every place.
        """

    # -- bounds ------------------------------------------------------------------------------------------------------

    def bound(self, problem: "Problem", gone: IntArray, /) -> RuleBound | None:
        """What counts may use once the pods ``gone`` have left; None where that is everything."""
        return None

    def tells_apart(self, pod: int, /) -> Hashable:
        """What makes ``pod`` different for this rule from others of its shape; None where nothing does.

        Only pods with the same answer may stand for each other: in the model, and where one gang's "no" is another's.
        """
        return None

    def lacks(
        self, problem: "Problem", pods: Sequence[int], so_far: Any, gone: Callable[[int], bool], /
    ) -> Blocker | None:
        """Proof that the rule forbids ``pods``, of one gang, wherever they go; None where it proves nothing.

        ``so_far``: of the ledger; None for an empty cluster. ``gone``: whether all pods of a gang may be out of the
        way.
        """
        return None

    def may_block(self, problem: "Problem", needed: Mapping[int, int], /) -> bool:
        """Whether the rule may keep pods ``needed`` (by shape) from running."""
        return True

    def element(self, words: Any, /) -> Blocker:
        """The rule as an element of a blocking set; ``words``: `kai_solver.bounds.blocking.ElementWords`."""
        return Blocker(self.kind, self.name, "", "")

    # -- explanations ------------------------------------------------------------------------------------------------

    def request_text(self, shape: "Shape", /) -> str:
        """What a pod of ``shape`` asks of GPUs, in place of their number; empty: nothing beside it."""
        return ""

    def refusals(self, after: "Problem", pod: int, /) -> Mapping[int, str]:
        """By node, why the pods that are there keep ``pod`` off, as ``after`` stands, whatever room there is."""
        return {}

    def room(self, after: "Problem", shape: "Shape", node: int, most: int, /) -> int:
        """Pods of ``shape`` that ``node`` has room for by the rule, counted up to ``most``, as ``after`` stands."""
        return most

    def lack(self, after: "Problem", shape: "Shape", node: int, /) -> tuple[str, str]:
        """KAI's and Kubernetes' text where ``room`` is 0."""
        return "", ""

    def shortage(self, after: "Problem", shape: "Shape", node: int, /) -> str:
        """How far ``node`` is from taking one pod, where ``room`` is 0: ``has ...``."""
        return ""


class Survey:
    """What one rule tells pods apart by, with the nodes of one cycle."""

    def trait(self, pod: Pod, /) -> Hashable | None:
        """Equal for pods that the rule does not tell apart; None: nothing.

        It may depend on the pod's request, GPUs, QoS class and containers.
        """
        return None

    def refuses(self, trait: Any, /) -> BoolArray:
        """(N,) nodes that could not take a pod with ``trait`` by the rule even if they were empty."""
        raise NotImplementedError


class Rule:
    """One installed rule.

    Attributes
    ----------
    name, kind
        As of its facts.
    is_protective
        As of its facts.
    cure
        What ``eased`` changes, for people; ``{name}`` is the element's. Empty: nothing is proposed.
    sentence
        What a gang that waits is told where the rule is in the way, beside what is short; ``{name}`` and ``{have}`` are
        the element's. Empty: nothing.
    """

    name: str = ""
    kind: str = ""
    is_protective: bool = False
    cure: str = ""
    sentence: str = ""

    def setting_fault(self, text: str, /) -> str:
        """What is wrong with ``text`` as a queue's setting of this rule, with the cure; empty where nothing is."""
        return f"rule {self.name} has no settings. Remove it"

    def looks_into_pods(self, nodes: Sequence[Node], /) -> bool:
        """Whether QoS class and containers of pods may matter on ``nodes``."""
        return False

    def survey(self, nodes: Sequence[Node], schema: ResourceSchema, /) -> Survey | None:
        """What tells pods apart; None where that is nothing. `Problem.shapes` has it by name of the rule."""
        return None

    def prepare(self, problem: "Problem", /) -> RuleFacts | None:
        """The facts of this cycle; None where no object uses the rule. ``problem.rules`` is not filled yet."""
        return None

    def eased(self, snapshot: Snapshot, gang: str, blocker: Blocker, /) -> Snapshot | None:
        """``snapshot`` without the rule in the way of ``gang`` (its key); None where that cannot be said."""
        return None


@cache
def installed_rules() -> tuple[Rule, ...]:
    """Rules that ship, then those of other packages by name; each is the object ``RULE``, or the entry point's.

    Raises `InputError` where what a package names cannot be loaded, or is no rule.
    """
    found: list[Rule] = []
    for name in rule_names():
        rule = loaded_rule(name)
        if not isinstance(rule, Rule):
            raise InputError(f"{name!r} in {RULE_GROUP} is not a Rule", cure=CURE)
        found.append(rule)
    return tuple(found)


def surveyed(nodes: Sequence[Node], schema: ResourceSchema) -> dict[str, Survey]:
    """Surveys of the rules that tell pods apart, by name."""
    every = ((rule.name, rule.survey(nodes, schema)) for rule in installed_rules())
    return {name: survey for name, survey in every if survey is not None}


def prepared(problem: "Problem") -> tuple[RuleFacts, ...]:
    """Facts of the rules that some object of ``problem`` uses."""
    every = (rule.prepare(problem) for rule in installed_rules())
    return tuple(facts for facts in every if facts is not None)


def rule_of_kind(kind: str) -> Rule | None:
    """The installed rule whose element in a blocking set is of ``kind``; None where there is none."""
    return next((rule for rule in installed_rules() if rule.kind == kind), None)
