"""Rules for whole domains, of a Topology: one tenant at a time, and nodes that are kept free.

Each stands in a field of the spec, where the kind on the server has it, or in annotations, which every server keeps.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from kai_solver.domain import OneTenant, SpareNodes, Topology
from kai_solver.errors import InputError, shown
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.notices import Notices
from kai_solver.kubeobjects.raw import Raw

ONE_TENANT, SPARES = "spec.oneTenant", "spec.spares"
_MOST = 10_000_000
"""Nodes to be kept free."""

Rule = TypeVar("Rule", OneTenant, SpareNodes)


@dataclass(frozen=True, slots=True)
class DomainRules:
    """What the object of a topology says of its domains.

    Attributes
    ----------
    wrong, idle
        Texts on values that cannot be, and on those that say nothing beside another; each names its place and cure.
    """

    one_tenant: OneTenant | None
    spares: SpareNodes | None
    wrong: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()


def with_rules(topology: Topology, raw: Raw, notices: Notices) -> Topology:
    """``topology`` with the rules that its object says; an invalid value is reported, and its rule not used."""
    rules = read_rules(topology, raw)
    for text in (*rules.wrong, *rules.idle):
        notices.warn(f"Topology {topology.name}", text)
    return replace(topology, one_tenant=rules.one_tenant, spares=rules.spares)


def read_rules(topology: Topology, raw: Raw) -> DomainRules:
    """The rules of the object of ``topology``; a field wins over an annotation."""
    annotations, reader = raw.strings("metadata.annotations"), _Reader(topology)
    alone = reader.of_field(raw, ONE_TENANT, reader.one_tenant_of_field)
    spares = reader.of_field(raw, SPARES, reader.spares_of_field)
    alone = reader.winner(alone, reader.one_tenant_of(annotations), ONE_TENANT, names.OWN_ONE_TENANT_AT)
    spares = reader.winner(spares, reader.spares_of(annotations), SPARES, names.OWN_SPARE_NODES)
    return DomainRules(alone, spares, tuple(reader.wrong), tuple(reader.idle))


def write_rules(topology: Topology) -> dict[str, str]:
    """The annotations from which `with_rules` reads the same again; KAI's own kind has no fields for them."""
    rule, spares = topology.one_tenant, topology.spares
    alone = {} if rule is None else {names.OWN_ONE_TENANT_AT: rule.level, names.OWN_TENANT: rule.tenant}
    return alone | ({} if spares is None else {names.OWN_SPARE_NODES: f"{spares.level}={spares.nodes}"})


def read_may_use_spares(annotations: Mapping[str, str], name: str, notices: Notices) -> bool:
    """What the annotations of object ``name`` say of spare nodes; an invalid value is reported and not used."""
    value = annotations.get(names.OWN_MAY_USE_SPARES, "false")
    if value not in ("true", "false"):
        notices.warn(name, f"{names.OWN_MAY_USE_SPARES} {shown(value)} is not honoured. Write true or false")
    return value == "true"


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the rules of one topology."""

    topology: Topology
    wrong: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)

    def of_field(self, raw: Raw, path: str, read: Callable[[Raw], Rule | None]) -> Rule | None:
        """What ``read`` makes of a field; nothing where it is not there, or not as the kind's schema has it."""
        try:
            stated = raw.get(path)
            return read(stated) if stated else None
        except InputError as error:
            self.wrong.append(str(error))
            return None

    def one_tenant_of_field(self, stated: Raw) -> OneTenant | None:
        """The rule in `ONE_TENANT`."""
        level, tenant = stated.required("level"), stated.text("tenant") or None
        return self._one_tenant(level, tenant, (f"{ONE_TENANT}.level", f"{ONE_TENANT}.tenant"))

    def one_tenant_of(self, annotations: Mapping[str, str]) -> OneTenant | None:
        """The same of annotations."""
        level, tenant = annotations.get(names.OWN_ONE_TENANT_AT), annotations.get(names.OWN_TENANT)
        if level is not None:
            return self._one_tenant(level, tenant, (names.OWN_ONE_TENANT_AT, names.OWN_TENANT))
        if tenant is not None:
            cure = "Write there the level whose domains have one tenant"
            self.idle.append(f"{names.OWN_TENANT} says nothing without {names.OWN_ONE_TENANT_AT}. {cure}")
        return None

    def spares_of_field(self, stated: Raw) -> SpareNodes | None:
        """The rule in `SPARES`."""
        level, nodes = stated.required("level"), stated.count("nodes", 1, _MOST)
        if not nodes:
            raise InputError("keeps no node", field=f"{SPARES}.nodes", cure="Write 1 or more, or leave spares out")
        return SpareNodes(level, nodes) if self._is_level(level, f"{SPARES}.level") else None

    def spares_of(self, annotations: Mapping[str, str]) -> SpareNodes | None:
        """The same of annotations."""
        key = names.OWN_SPARE_NODES
        value = annotations.get(key)
        if value is None:
            return None
        level, _, number = value.rpartition("=")
        is_number = number.isascii() and number.isdecimal() and len(number) <= len(str(_MOST))
        if not level or not is_number or not 1 <= int(number) <= _MOST:
            self.wrong.append(f"{key} {shown(value)} is not honoured. Write a level and how many nodes, as in rack=1")
            return None
        return SpareNodes(level, int(number)) if self._is_level(level, key) else None

    def winner(self, stated: Rule | None, annotated: Rule | None, path: str, key: str) -> Rule | None:
        """The rule ``stated`` in a field, where there is one."""
        if stated is None or annotated is None:
            return stated or annotated
        index = self.topology.level_index
        if replace(annotated, level=stated.level) != stated or index(annotated.level) != index(stated.level):
            self.idle.append(f"{path} and the annotation {key} differ, and the field counts. Remove the annotation")
        return stated

    def _one_tenant(self, level: str, tenant: str | None, keys: tuple[str, str]) -> OneTenant | None:
        """The rule; ``keys``: where level and tenant stand."""
        if not self._is_level(level, keys[0]):
            return None
        if tenant is None:
            return OneTenant(level)
        if OneTenant.knows(tenant):
            return OneTenant(level, tenant)
        cure = "Write queue, namespace, or label: and the key of a pod label; until then every queue is one"
        self.wrong.append(f"{keys[1]} {shown(tenant)} is not honoured. {cure}")
        return OneTenant(level)

    def _is_level(self, level: str, key: str) -> bool:
        if level and self.topology.level_index(level) is not None:
            return True
        levels = ", ".join(level.alias or level.node_label for level in self.topology.levels)
        self.wrong.append(f"{key} {shown(level)} is not honoured: no level of it. Write one of {levels}")
        return False
