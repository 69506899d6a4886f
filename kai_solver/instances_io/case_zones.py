"""NUMA zones of a behaviour case: topologies of its nodes, and where its running tasks sit."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kai_solver.domain import Notice, NumaTopology, ZoneShare
from kai_solver.errors import InputError
from kai_solver.instances_io.case_schema import NodeDoc, NumaDoc, SchedulerDoc
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.resources import read_amounts
from kai_solver.kubeobjects.settings import ignored_resources
from kai_solver.kubeobjects.zones import RawZones, zone_shares
from kai_solver.units import GPU_RESOURCES, ResourceSchema


@dataclass(slots=True)
class CaseZones:
    """Reads zones where the case's scheduler heeds them: plugin ``numa``, or a case without a list of plugins.

    ``ignored``, ``reconstruct``: the plugin's arguments ``ignoreList`` and ``reconstructAvailable``.
    """

    is_on: bool
    ignored: frozenset[str]
    reconstruct: bool
    notices: list[Notice] = field(default_factory=list)

    @classmethod
    def of(cls, scheduler: SchedulerDoc | None) -> "CaseZones":
        """As the case's scheduler is set."""
        plugins = {plugin.name: plugin.arguments for plugin in scheduler.plugins} if scheduler else {}
        arguments = plugins.get("numa", {})
        ignored = ignored_resources(arguments.get("ignoreList", ""), GPU_RESOURCES)
        is_on = scheduler is None or not plugins or "numa" in plugins
        return cls(is_on, ignored, arguments.get("reconstructAvailable", "true").lower() != "false")

    def topology(self, node: NodeDoc, schema: ResourceSchema) -> NumaTopology | None:
        """Zones of ``node``; a quantity that is none is told with its field."""
        if node.numa is None or not self.is_on or not node.numa.zones:
            return None
        return _raw_zones(node.numa, f"nodes.{node.name}.numa").finish(
            schema, self.ignored, reconstruct=self.reconstruct
        )

    def shares(self, annotations: Mapping[str, str], task: str) -> tuple[ZoneShare, ...]:
        """Where a running task sits; unknown, with a notice, where its annotation cannot be read."""
        if not self.is_on:
            return ()
        try:
            return zone_shares(annotations, GPU_RESOURCES)
        except InputError as error:
            self.notices.append(Notice("warning", f"pod {task}", f"its NUMA zones are not known: {error}"))
            return ()


def _raw_zones(doc: NumaDoc, path: str) -> RawZones:
    return RawZones(
        doc.policy,
        doc.scope,
        tuple(
            (
                zone.id,
                read_amounts(Raw(zone.allocatable, f"{path}.zones.{zone.id}.allocatable"), GPU_RESOURCES),
                read_amounts(Raw(zone.available, f"{path}.zones.{zone.id}.available"), GPU_RESOURCES),
            )
            for zone in doc.zones
        ),
    )
