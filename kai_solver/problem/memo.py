"""What of a problem need not be worked out again in the next cycle: gangs, nodes and queues that are the same.

A snapshot never changes: a caller makes a new object for what changed, and keeps the others. So a gang that is the
same object is known by its identity; nodes and queues are compared, which is cheap where they are the same objects too.
Whatever is kept follows from the objects it is kept for alone, so that a problem is the same with a memo and without.
What left the cluster is forgotten with the next problem.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from kai_solver.domain import Policy, Queue, Snapshot, with_moves
from kai_solver.fairness import QueueTree
from kai_solver.predicates import NodePredicates
from kai_solver.problem.fabric import Graphs, uneven_graphs
from kai_solver.problem.kinds import Kinds
from kai_solver.problem.known_pods import KnownPods
from kai_solver.problem.maintenance import Maintenance
from kai_solver.problem.node_table import NodeTable, survey
from kai_solver.problem.occupancy import Occupancy
from kai_solver.problem.rules import installed_rules
from kai_solver.problem.tenancy import Tenancy

if TYPE_CHECKING:
    from kai_solver.problem.problem import Problem

_SPARE = 1000
"""Objects of earlier cycles that may be held on to beside as many as there were at first."""


class Memo:
    """Of one cluster and its problems one after the other; not for two at once."""

    def __init__(self) -> None:
        self.problem: Problem | None = None
        """The newest."""
        self._node_table: NodeTable | None = None
        self._grown: tuple[tuple[Queue, ...], Policy, QueueTree] | None = None
        self._kinds: Kinds | None = None
        self._first_size = 0
        self._tenants: tuple[KnownPods, Occupancy] | None = None
        self._graphs: tuple[NodeTable, Graphs] | None = None
        self._tenancy = Tenancy()
        self._maintenance = Maintenance()

    def clear(self) -> None:
        """Drop everything: an error may have left it half changed."""
        self.__dict__.update(Memo().__dict__)

    def moved(self, snapshot: Snapshot) -> Snapshot:
        """``snapshot`` with moving pods also at their new places."""
        return with_moves(snapshot, self._tenants[0].still() if self._tenants is not None else ())

    def ruled(self, snapshot: Snapshot) -> Snapshot:
        """``snapshot`` with what topologies and nodes say of tenants, spares and maintenance as rules of its pods."""
        return self._maintenance.written(self._tenancy.written(snapshot))

    def node_table(self, snapshot: Snapshot) -> NodeTable:
        """The nodes of ``snapshot``."""
        known = self._node_table
        if known is None:
            found = survey(snapshot)
        elif not known.is_of(snapshot):
            found = survey(snapshot)
            if found.index == known.index:
                # The same names: pods are still where their rows say.
                found = replace(found, index=known.index)
        elif known.predicates.size > 2 * self._first_size + _SPARE:
            found = replace(known, predicates=NodePredicates(known.nodes))
        else:
            return known
        self._node_table = found
        return found

    def tree(self, snapshot: Snapshot) -> QueueTree:
        """The queues of ``snapshot``."""
        known = self._grown
        if known is None or known[:2] != (snapshot.queues, snapshot.policy):
            tree = QueueTree.from_queues(sorted(snapshot.queues, key=lambda queue: queue.name), snapshot.policy)
            known = self._grown = snapshot.queues, snapshot.policy, tree
        return known[2]

    def graphs(self, snapshot: Snapshot, node_table: NodeTable) -> Graphs:
        """Links of the nodes' GPUs where they make a difference."""
        if snapshot.claims is not None:
            return uneven_graphs(node_table.nodes, snapshot)
        if self._graphs is None or self._graphs[0] is not node_table:
            self._graphs = node_table, uneven_graphs(node_table.nodes, snapshot)
        return self._graphs[1]

    def kinds(self, snapshot: Snapshot) -> Kinds:
        """Kinds of pods met so far; new ones if most of them are of pods that left."""
        by_container = any(rule.looks_into_pods(snapshot.nodes) for rule in installed_rules())
        known = self._kinds
        if known is None or known.by_container is not by_container or known.size > 2 * self._first_size + _SPARE:
            known = self._kinds = Kinds(by_container=by_container)
        return known

    def tenants(self, snapshot: Snapshot, node_table: NodeTable, kinds: Kinds) -> tuple[KnownPods, Occupancy]:
        """Which pods are there, and what they hold.

        Both are changed step by step, and only together: where a step fails, neither is kept.
        """
        known, self._tenants = self._tenants, None
        if known is None or known[0].kinds is not kinds:
            known_pods, occupancy = KnownPods(kinds), None
        else:
            known_pods, occupancy = known
        known_pods.call(snapshot.gangs, snapshot.foreign, node_table.index)
        if known is None or known[0] is not known_pods:
            self._first_size = kinds.size
        if occupancy is not None and occupancy.serves(node_table, kinds):
            occupancy.update(node_table, known_pods.come, known_pods.gone)
        else:
            occupancy = Occupancy(node_table, kinds)
            occupancy.update(node_table, [*known_pods.rows, known_pods.foreign], [])
        self._tenants = known_pods, occupancy
        return self._tenants
