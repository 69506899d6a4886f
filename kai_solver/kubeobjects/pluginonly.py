"""Extended resources that DeviceClasses offer (KEP-5004), where no component makes the claims that they need.

A pod gets such a resource from nodes whose device plugin offers it as well; else it waits, with that reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kai_solver.claims.extended import PREFIX
from kai_solver.domain import NodeTerm, Requirement
from kai_solver.kubeobjects.claims import ClaimBook
from kai_solver.kubeobjects.nodes import NodeReading
from kai_solver.kubeobjects.resources import Amounts
from kai_solver.kubeobjects.settings import KubeSettings
from kai_solver.units.resources import FIXED, GPU

_TEXT = (
    "{resource} is offered only by DeviceClass {name}, and no claims are made here for extended resources (KEP-5004): "
    "ask for the device by a resource claim"
)


@dataclass(frozen=True, slots=True)
class PluginOnly:
    """By resource that a class offers: the class, and the nodes that have it from a plugin; empty: all can be had."""

    offers: Mapping[str, tuple[str, tuple[str, ...]]]
    gpu_name: str = ""

    def of_pod(self, amounts: Amounts) -> tuple[tuple[tuple[NodeTerm, ...], ...], tuple[str, ...]]:
        """Entries of node terms, and in words what keeps the pod from starting anywhere."""
        terms, blocked = [], []
        for resource in amounts.keys() & self.offers.keys():
            name, nodes = self.offers[resource]
            if not amounts[resource]:
                continue
            if nodes:
                terms.append(((Requirement("metadata.name", "In", nodes),),))
            else:
                shown = self.gpu_name if resource == FIXED[GPU] else resource
                blocked.append(_TEXT.format(resource=shown, name=name))
        return tuple(terms), tuple(blocked)


NO_OFFERS = PluginOnly({})


def plugin_only(book: ClaimBook, nodes: NodeReading, settings: KubeSettings) -> PluginOnly:
    """What the classes of ``book`` offer, and which nodes have it besides; empty where a component makes the claims."""
    offers: dict[str, tuple[str, tuple[str, ...]]] = {}
    classes = () if settings.extended_claims else sorted(book.classes, key=lambda found: found.name)
    for found in classes:
        for resource in filter(None, (found.extended_resource, PREFIX + found.name)):
            having = tuple(node.name for node in nodes.nodes.values() if node.amounts.get(resource))
            offers.setdefault(resource, (found.name, having))
    return PluginOnly(offers, settings.policy.gpu_resources[0])
