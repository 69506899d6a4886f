"""KAI's own components at work on a control plane, in the version that ``tests/kai/decides/go.mod`` pins.

They take the place of the stand-ins (`kai`) wherever a test only starts and stops them.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from kai_solver.cluster.api import ApiError
from kai_solver.cluster.resources import NAMESPACES
from tests.cluster.plane.kai import KAI, Kai
from tests.cluster.plane.plane import Component, Plane, free_ports

NAMESPACES_OF_KAI = KAI, "kai-resource-reservation", "kai-scale-adjust"

_MANAGER = ("--metrics-bind-address=0", "--health-probe-bind-address=0")
"""No ports: several control planes are at work at once."""


def _scheduler() -> tuple[str, ...]:
    metrics, plugins = free_ports(2)
    ports = (f"--listen-address=127.0.0.1:{metrics}", f"--plugin-server-port={plugins}")
    return "--leader-elect", f"--namespace={KAI}", *ports


PROGRAMS: Mapping[str, tuple[str, Callable[[], tuple[str, ...]]]] = {
    "scheduler": ("kai-scheduler", _scheduler),
    "binder": ("kai-binder", lambda: _MANAGER),
    "pod grouper": ("kai-podgrouper", lambda: _MANAGER),
    "queue controller": (
        "kai-queuecontroller",
        lambda: ("--enable-webhook=false", "--metrics-listen-address=0", "--skip-controller-name-validation"),
    ),
    "pod-group controller": (
        "kai-podgroupcontroller",
        lambda: (*_MANAGER, "--enable-podgroup-webhook=false", "--skip-controller-name-validation"),
    ),
}
"""Of each component its program, and the options that a test gives it beside its defaults."""


def make_namespaces(plane: Plane) -> None:
    """Create those that an earlier test has not."""
    for namespace in NAMESPACES_OF_KAI:
        with suppress(ApiError):
            plane.api.create(NAMESPACES, "", {"metadata": {"name": namespace}})


@dataclass(slots=True)
class KaiItself(Kai):
    """KAI's components of one cluster, each a process."""

    makes_a_group_of_a_job: ClassVar[bool] = False

    programs: Path = Path()
    processes: dict[str, Component] = field(default_factory=dict)

    def start(self, *names: str) -> None:
        """Start these components."""
        make_namespaces(self.plane)
        env = {"KUBECONFIG": str(self.plane.kubeconfig)}
        for name in names:
            program, options = PROGRAMS[name]
            command = [str(self.programs / program), *options()]
            self.processes[name] = Component(program, command, self.plane.folder, env)
            self.processes[name].start()

    def stop(self, *names: str) -> None:
        """Kill these, and wait until they are gone. The Lease stays behind."""
        for name in names:
            self.processes.pop(name).kill()

    def end(self) -> None:
        """Stop all, and leave no Lease."""
        self.stop(*list(self.processes))
        self.over.set()
        with suppress(ApiError):
            self.delete_lease()
