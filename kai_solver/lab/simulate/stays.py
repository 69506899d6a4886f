"""Where each pod was, from when to when, and what was known of why: the rows that a Gantt chart is drawn from."""

from dataclasses import dataclass, field

from kai_solver.domain import Action, Bind, Plan, Pod
from kai_solver.units import counted

_MADE_ROOM = {
    Action.RECLAIM: "by reclaim",
    Action.PREEMPT: "by preemption",
    Action.CONSOLIDATION: "by consolidation",
}


@dataclass(slots=True)
class StayRow:
    """A pod on a node, from its bind until it left.

    Attributes
    ----------
    devices
        Indices of its GPUs on the node, with spaces between; empty without a GPU.
    gpus
        That it holds, in all.
    end_s
        When it had left; None: still there at the end.
    waited_s
        Since it arrived, or had left its last node.
    waited_for
        What the last plan said that left its gang pending; empty where none did, or the policy says nothing.
    why
        How it came to this node.
    ended
        ``done``, or what made it leave: ``reclaim for sim/a-1``, ``moved to n-3 for sim/b-2``, ``node failed``.
    """

    pod: str
    job: str
    queue: str
    node: str
    devices: str
    gpus: float
    start_s: float
    end_s: float | None
    waited_s: float
    waited_for: str
    why: str
    ended: str


@dataclass(slots=True)
class Stays:
    """All stays so far, those that have not ended among them."""

    rows: list[StayRow] = field(default_factory=list)
    _open: dict[str, StayRow] = field(default_factory=dict)
    _left_s: dict[str, float] = field(default_factory=dict)
    _waits_for: dict[str, str] = field(default_factory=dict)
    _room: dict[str, str] = field(default_factory=dict)

    def decided(self, plan: Plan) -> None:
        """Note what a plan says of gangs that wait, of pods that leave and for which gangs, and where moved pods go."""
        for entry in plan.pending:
            self._waits_for[entry.gang] = entry.message or entry.reason.value
        helped: dict[str, tuple[int, int]] = {}
        for out in plan.evictions:
            self._leaves(out.pod, f"{out.reason}{_for(out.helps)}")
            for gang in out.helps:
                evicted, moved = helped.get(gang, (0, 0))
                helped[gang] = (evicted + 1, moved)
        for move in plan.moves:
            self._leaves(move.pod, f"moved to {move.target}{_for(move.helps)}")
            self._room[move.pod] = f"moved here from {move.source}{_for(move.helps)}"
            for gang in move.helps:
                evicted, moved = helped.get(gang, (0, 0))
                helped[gang] = (evicted, moved + 1)
        for gang, (evicted, moved) in helped.items():
            made = [f"{counted(n, 'pod')} {what}" for n, what in ((evicted, "evicted"), (moved, "moved")) if n]
            self._room[gang] = f"room was made for its gang: {', '.join(made)}"

    def bound(self, now_s: float, pod: Pod, bind: Bind, *, queue: str, since_s: float, gpus: float, free: int) -> None:
        """A pod holds ``gpus`` of its node from now on, where ``free`` GPUs were wholly free; it waits ``since_s``."""
        made = (
            self._room.pop(pod.key, "") or self._room.get(bind.gang, "") or _MADE_ROOM.get(bind.action, "room was free")
        )
        there = f"; {free} of the node's GPUs were wholly free" if pod.devices else ""
        row = StayRow(
            pod=pod.name,
            job=bind.gang.partition("/")[2],
            queue=queue,
            node=pod.node,
            devices=" ".join(map(str, sorted(pod.devices))),
            gpus=gpus,
            start_s=now_s,
            end_s=None,
            waited_s=now_s - self._left_s.get(pod.key, since_s),
            waited_for=self._waits_for.get(bind.gang, ""),
            why=made + there,
            ended="",
        )
        self.rows.append(row)
        self._open[pod.key] = row

    def started(self, gang: str) -> None:
        """The gang got pods: what it waited for, and the room that was made for it, is past."""
        self._waits_for.pop(gang, None)
        self._room.pop(gang, None)

    def gone(self, now_s: float, pod_key: str, how: str) -> None:
        """The pod has left its node; ``how`` counts where nothing made it leave before."""
        row = self._open.pop(pod_key)
        row.end_s, row.ended = now_s, row.ended or how
        self._left_s[pod_key] = now_s

    def _leaves(self, pod_key: str, why: str) -> None:
        if pod_key in self._open:
            self._open[pod_key].ended = why


def _for(gangs: tuple[str, ...]) -> str:
    return f" for {', '.join(gangs[:_MOST_NAMED])}{' ...' if len(gangs) > _MOST_NAMED else ''}" if gangs else ""


_MOST_NAMED = 3
