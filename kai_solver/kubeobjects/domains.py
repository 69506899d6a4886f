"""Rules for whole domains, in annotations of a Topology: one tenant at a time, and nodes that are kept free."""

from collections.abc import Mapping
from dataclasses import replace

from kai_solver.domain import OneTenant, SpareNodes, Topology
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.notices import Notices

_DIGITS = 6
"""Of a number of nodes."""


def with_rules(topology: Topology, annotations: Mapping[str, str], notices: Notices) -> Topology:
    """``topology`` with the rules that its annotations say; a value that cannot be is told, and its rule not used."""
    one_tenant, spares = _one_tenant(topology, annotations, notices), _spares(topology, annotations, notices)
    return replace(topology, one_tenant=one_tenant, spares=spares)


def write_rules(topology: Topology) -> dict[str, str]:
    """The annotations from which `with_rules` reads the same again."""
    rule, spares = topology.one_tenant, topology.spares
    alone = {} if rule is None else {names.OWN_ONE_TENANT_AT: rule.level, names.OWN_TENANT: rule.tenant}
    return alone | ({} if spares is None else {names.OWN_SPARE_NODES: f"{spares.level}={spares.nodes}"})


def read_may_use_spares(annotations: Mapping[str, str], name: str, notices: Notices) -> bool:
    """What the annotations of object ``name`` say of spare nodes; a value that cannot be is told and not used."""
    value = annotations.get(names.OWN_MAY_USE_SPARES, "false")
    if value not in ("true", "false"):
        notices.warn(name, f"{names.OWN_MAY_USE_SPARES} {value!r} is not honoured. Write true or false")
    return value == "true"


def _spares(topology: Topology, annotations: Mapping[str, str], notices: Notices) -> SpareNodes | None:
    value = annotations.get(names.OWN_SPARE_NODES)
    if value is None:
        return None
    level, _, number = value.rpartition("=")
    if not level or not (number.isascii() and number.isdecimal() and 1 <= len(number) <= _DIGITS and int(number)):
        text = f"{names.OWN_SPARE_NODES} {value!r} is not honoured. Write a level and how many nodes, as in rack=1"
        notices.warn(f"Topology {topology.name}", text)
        return None
    return SpareNodes(level, int(number)) if _is_level(topology, level, names.OWN_SPARE_NODES, notices) else None


def _one_tenant(topology: Topology, annotations: Mapping[str, str], notices: Notices) -> OneTenant | None:
    level, name = annotations.get(names.OWN_ONE_TENANT_AT), f"Topology {topology.name}"
    tenant = annotations.get(names.OWN_TENANT)
    if level is None:
        if tenant is not None:
            text = (
                f"says nothing without {names.OWN_ONE_TENANT_AT}. Write there the level whose domains have one tenant"
            )
            notices.warn(name, f"{names.OWN_TENANT} {text}")
        return None
    if not _is_level(topology, level, names.OWN_ONE_TENANT_AT, notices):
        return None
    if tenant is not None and not OneTenant.knows(tenant):
        cure = "Write queue, namespace, or label: and the key of a pod label; until then every queue is one"
        notices.warn(name, f"{names.OWN_TENANT} {tenant!r} is not honoured. {cure}")
        tenant = None
    return OneTenant(level) if tenant is None else OneTenant(level, tenant)


def _is_level(topology: Topology, level: str, key: str, notices: Notices) -> bool:
    if topology.level_index(level) is not None:
        return True
    levels = ", ".join(level.alias or level.node_label for level in topology.levels)
    notices.warn(f"Topology {topology.name}", f"{key} {level!r} is not honoured: no level of it. Write one of {levels}")
    return False
