"""Rules for whole domains, in annotations of a Topology: one tenant at a time."""

from collections.abc import Mapping
from dataclasses import replace

from kai_solver.domain import OneTenant, Topology
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.notices import Notices


def with_rules(topology: Topology, annotations: Mapping[str, str], notices: Notices) -> Topology:
    """``topology`` with the rules that its annotations say; a value that cannot be is told, and its rule not used."""
    return replace(topology, one_tenant=_one_tenant(topology, annotations, notices))


def write_rules(topology: Topology) -> dict[str, str]:
    """The annotations from which `with_rules` reads the same again."""
    rule = topology.one_tenant
    return {} if rule is None else {names.OWN_ONE_TENANT_AT: rule.level, names.OWN_TENANT: rule.tenant}


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
