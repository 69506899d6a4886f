"""How much one object may state. An object over a limit waits with a reason; everything else is scheduled.

Kubernetes limits only the bytes of objects (1.5 MiB in etcd), which is room for ten thousand rules, and a rule costs
some 50 µs for every placement that is tried. The limits are far above normal use: pods of published Helm charts have
at most three spread constraints and five terms of affinity. ``docs/limits.md`` lists them for users.
"""

from collections.abc import Iterable, Iterator

from kai_solver.domain.constraints import Constraints, NodeTerm, Requirement

MOST_SPREAD = 64
"""Topology spread constraints of a pod, hard and soft. One costs 50 µs in every search for a place
(2026-11-22); 800 took 2.6 s of a budget of 1 s when their cost was still quadratic."""

MOST_POD_TERMS = 256
"""Terms of pod affinity and anti-affinity of a pod, required and preferred."""

MOST_NODE_TERMS = 1_000
"""Terms of node affinity of a pod, required and preferred, with those of its volumes."""

MOST_EXPRESSIONS = 2_000
"""Expressions in all rules of a pod."""

MOST_VALUES = 20_000
"""Values in all expressions of a pod: more than the nodes of the largest cluster, which some rules list by name."""

MOST_TOLERATIONS = 500
MOST_PORTS = 500
"""Host ports of a pod."""

MOST_UNOFFERED = 256
"""Resources of the cluster that pods request and no node offers: each is a row of every node's amounts."""

MOST_SUBGROUPS = 2_000
"""Subgroups of a PodGroup."""

MOST_EMPTY_SUBGROUPS = 20_000
"""Of all gangs of a namespace that pod groupers make, subgroups beyond two for each pod. A Job of 1 KB may state 2,000,
which take 33 ms to read and 1.4 MB (2026-12-01); 1,000 such Jobs of one user would take 1.4 GB."""

MOST_SUBGROUP_LEVELS = 64
"""Levels of subgroups; real trees have two or three."""

MOST_LEVELS = 64
"""Levels of a Topology; KAI's kind allows 16."""

MOST_QUEUE_LEVELS = 64
"""Queues from a root to a leaf."""

MOST_GPUS = 1_000
"""GPUs of a node, replicas of time-sliced ones included: tables have a column for each that any node has."""

SELECTOR_BYTES = 10 * 1024
"""Of a CEL selector, as in Kubernetes (``CELSelectorExpressionMaxLength``; k8s.io/api v0.34.4, resource/v1)."""

SELECTOR_COST = 50_000
"""Of one evaluation of a selector, in Kubernetes' units: 0.1 s at 2 µs each (2026-11-22). Kubernetes has 1,000,000
(``CELSelectorExpressionMaxCost``), which is about 0.1 s there. Examples of DRA drivers cost less than 100."""

SELECTORS_COST = 150_000
"""Of all selectors that one cycle evaluates: about 0.3 s. A known result costs nothing."""

SELECTORS_COST_PER_DEVICE = 100
"""Added to `SELECTORS_COST` for each device that is offered: 0.2 ms each."""


def bounded(constraints: Constraints) -> Constraints:
    """The same rules; if there are too many, none, with the reason why the pod must wait."""
    found = next(_excess(constraints), "")
    return Constraints(blocked=(found, *constraints.blocked)) if found else constraints


def _excess(constraints: Constraints) -> Iterator[str]:
    """Texts, one for each limit that the rules exceed."""
    of = constraints
    counts = (
        ("topology spread constraints", len(of.spread) + len(of.preferred_spread), MOST_SPREAD),
        (
            "terms of pod affinity and anti-affinity",
            len(of.affinity) + len(of.anti_affinity) + len(of.preferred_pods),
            MOST_POD_TERMS,
        ),
        ("terms of node affinity", sum(map(len, of.node_terms)) + len(of.preferred), MOST_NODE_TERMS),
        ("tolerations", len(of.tolerations), MOST_TOLERATIONS),
        ("host ports", len(of.host_ports), MOST_PORTS),
    )
    for name, number, most in counts:
        if number > most:
            yield f"{number:,} {name}; at most {most:,} are read"
    expressions = values = 0
    for requirements in _requirements(of):
        expressions += len(requirements)
        values += sum(len(requirement.values) for requirement in requirements)
    if expressions > MOST_EXPRESSIONS:
        yield f"{expressions:,} expressions of selectors; at most {MOST_EXPRESSIONS:,} are read"
    if values > MOST_VALUES:
        yield f"{values:,} values in expressions of selectors; at most {MOST_VALUES:,} are read"


def _requirements(constraints: Constraints) -> Iterable[tuple[Requirement, ...]]:
    node_terms: Iterable[NodeTerm] = (term for entry in constraints.node_terms for term in entry)
    yield from node_terms
    for _, term in constraints.preferred:
        yield term
    for affinity in (*constraints.affinity, *constraints.anti_affinity, *(t for _, t in constraints.preferred_pods)):
        yield affinity.selector
    for spread in (*constraints.spread, *constraints.preferred_spread):
        yield spread.selector
