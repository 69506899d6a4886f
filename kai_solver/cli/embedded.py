"""``kai-solver controller --embedded``: the controller at work on a cluster in memory, shown as it goes."""

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table

from kai_solver.cli.console import line, open_console
from kai_solver.cli.exits import Exit
from kai_solver.cli.interrupt import stop_when_told
from kai_solver.cli.story import Story
from kai_solver.cluster.binding import GangBound
from kai_solver.cluster.memory import MemoryApi
from kai_solver.controller.app import Controller
from kai_solver.controller.embedded import GPUS_A_NODE, Demo, start
from kai_solver.controller.logs import configure_logs
from kai_solver.controller.loop import Cycle, Evicted
from kai_solver.controller.settings import ControllerSettings
from kai_solver.domain import PodStatus, Snapshot
from kai_solver.domain.names import short_name
from kai_solver.units import MILLI, counted

_EVERY_S = 0.5
_SHOWN = 8


@dataclass(slots=True)
class Watcher:
    """The newest cycle, and sums over all."""

    latest: Cycle | None = None
    sums: Counter[str] = field(default_factory=Counter)
    story: Story = field(default_factory=Story)
    untold: "SimpleQueue[str]" = field(default_factory=SimpleQueue)
    """Lines that are not printed yet."""

    def cycle(self, cycle: Cycle) -> None:
        """Remember it."""
        self.latest = cycle
        for told in self.story.lines(cycle):
            self.untold.put(told)
        self.sums["cycles"] += 1
        self.sums["evicted"] += len(cycle.plan.evictions)
        self.sums["moved"] += len(cycle.plan.moves)
        self.sums["served"] += len(cycle.plan.admitted)

    def bound(self, outcome: GangBound) -> None:
        """Count its pods."""
        self.sums["bound"] += len(outcome.bound)

    def evicted(self, evicted: Evicted) -> None:
        """Nothing."""


def run_embedded(settings: ControllerSettings, seconds: float | None) -> Exit:
    """Run until interrupted, or for so many seconds."""
    nowhere = dict.fromkeys(("metrics_bind_address", "health_bind_address", "answers_bind_address"), "")
    quiet = settings.model_copy(update=nowhere | {"log_level": "warning"})
    configure_logs(quiet.model_copy(update={"log_format": "console"}))
    api, watcher, console, demo = MemoryApi(), Watcher(), open_console(), Demo()
    replica = Controller(api, quiet, (watcher,))
    line(console, _introduction(demo, settings.dry_run))
    start(api, replica.stop, demo)
    worker = threading.Thread(target=replica.run, daemon=True)
    stop_when_told(replica.stop, seconds)
    worker.start()
    _show(console, watcher, replica.stop)
    worker.join()
    line(console, _totals(watcher))
    return Exit.FINE if not replica.lost else Exit.FAILURE


def _introduction(demo: Demo, dry_run: bool) -> str:
    teams = ", ".join(f"{name} (quota {quota})" for name, quota in demo.teams)
    end = "Dry run: decisions are printed, and nothing is carried out." if dry_run else "Ctrl-C ends it."
    return (
        f"A cluster in memory: {demo.nodes} nodes of {GPUS_A_NODE} GPUs, teams {teams}; "
        f"a gang of pods comes every {demo.every_s:g} s or so. {end}"
    )


def _show(console: Console, watcher: Watcher, stop: threading.Event) -> None:
    """What each cycle decided, line by line; below that, on a terminal, tables that renew themselves."""
    if not console.is_terminal:
        while not stop.wait(_EVERY_S):
            _tell(console, watcher)
    else:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while not stop.wait(_EVERY_S):
                _tell(console, watcher)
                live.update(_picture(watcher), refresh=True)
    _tell(console, watcher)


def _tell(console: Console, watcher: Watcher) -> None:
    while not watcher.untold.empty():
        line(console, watcher.untold.get())


def _totals(watcher: Watcher) -> str:
    sums = watcher.sums
    held, there = _gpus(watcher.latest.snapshot) if watcher.latest else (0, 0)
    waiting = len(watcher.latest.plan.pending) if watcher.latest else 0
    return (
        f"{counted(sums['cycles'], 'cycle')}, {counted(sums['bound'], 'pod')} bound, {sums['evicted']} evicted, "
        f"{sums['moved']} moved; {held // MILLI} of {counted(there // MILLI, 'GPU')} in use, "
        f"{counted(waiting, 'gang waits', 'gangs wait')}"
    )


def _picture(watcher: Watcher) -> RenderableType:
    cycle = watcher.latest
    if cycle is None:
        return "waiting for the first cycle"
    queues = Table("queue", "quota", "GPUs held", "gangs run", "gangs wait", title="Queues", title_justify="left")
    for row in _queue_rows(cycle):
        queues.add_row(*row)
    waiting = Table("gang", "why it waits", "proof", title="First of those that wait", title_justify="left")
    for pending in cycle.plan.pending[:_SHOWN]:
        waiting.add_row(short_name(pending.gang), pending.message.splitlines()[0][:90], pending.proof.state)
    return Group(_totals(watcher), queues, waiting, "Ctrl-C ends it.")


def _queue_rows(cycle: Cycle) -> Iterator[tuple[str, ...]]:
    waits = {pending.gang for pending in cycle.plan.pending}
    for queue in cycle.snapshot.queues:
        gangs = [gang for gang in cycle.snapshot.gangs if gang.queue == queue.name]
        if not gangs and not queue.parent:
            continue
        held = sum(pod.gpu.devices for gang in gangs for pod in gang.pods if pod.status.is_active)
        runs = sum(any(pod.status is PodStatus.RUNNING for pod in gang.pods) for gang in gangs)
        quota = "none" if queue.quota[2] < 0 else str(queue.quota[2] // MILLI)
        yield queue.name, quota, str(held), str(runs), str(sum(gang.key in waits for gang in gangs))


def _gpus(snapshot: Snapshot) -> tuple[int, int]:
    """Thousandths of GPUs in use, and there."""
    pods = (pod for gang in snapshot.gangs for pod in gang.pods if pod.status.is_active)
    return sum(pod.gpu.devices * MILLI for pod in pods), sum(node.gpus * MILLI for node in snapshot.nodes)
