"""PriorityClasses to numbers (docs/kai-behaviour.md#priority)."""

from dataclasses import dataclass

from kai_solver.errors import InputError
from kai_solver.kubeobjects.notices import Notices, read_each
from kai_solver.kubeobjects.objects import Object
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.settings import KubeSettings

SHIPPED = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
"""The classes that KAI installs; they stand in where the input has no PriorityClass at all."""


@dataclass(frozen=True, slots=True)
class Priority:
    """Value of a class, and whether its work may take others' places."""

    value: int
    never_preempts: bool = False
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class PriorityTable:
    """Priorities by class name, with the answer for unknown names."""

    classes: dict[str, Priority]
    default: Priority

    def of(self, name: str) -> Priority:
        """Priority of a class; an unknown class has the global default's, or 50."""
        return self.classes.get(name, self.default)


def read_priorities(objects: tuple[Object, ...], settings: KubeSettings, notices: Notices) -> PriorityTable:
    """Read the classes; broken and doubled ones are set aside with a notice."""
    if not objects:
        return PriorityTable({n: Priority(v) for n, v in SHIPPED.items()}, Priority(settings.default_priority))
    classes = read_each("PriorityClass", objects, notices, _priority)
    defaults = [priority for priority in classes.values() if priority.is_default]
    return PriorityTable(classes, defaults[0] if defaults else Priority(settings.default_priority))


def _priority(raw: Raw) -> Priority:
    if not raw.get("value"):
        raise InputError("is missing", field="value", cure="Give the class a value")
    return Priority(raw.integer("value"), raw.text("preemptionPolicy") == "Never", raw.flag("globalDefault"))
