"""Why a gang waits, or what a plan does to it."""

from kai_solver.domain import Gang, Plan, Snapshot
from kai_solver.domain.names import names_of
from kai_solver.explaining.aftermath import carried_out
from kai_solver.explaining.changes import needed_changes
from kai_solver.explaining.cures import Replan, cures
from kai_solver.explaining.domain_fit import placed_fits, waiting_fits
from kai_solver.explaining.effects import effects_of
from kai_solver.explaining.explanation import Explanation, GangState
from kai_solver.explaining.fit_texts import kai_text, kubernetes_text
from kai_solver.explaining.gpu_boards import GpuBoards
from kai_solver.explaining.link_fit import link_fit
from kai_solver.explaining.names import find_gang
from kai_solver.explaining.node_fit import NodeFit
from kai_solver.explaining.queue_lines import chain_lines
from kai_solver.explaining.queue_place import QueuePlaces
from kai_solver.problem import build_problem
from kai_solver.reasons.events import events_of
from kai_solver.reasons.pending import scheduling_condition


def explain_gang(snapshot: Snapshot, plan: Plan, gang: str) -> Explanation:
    """Explain one gang, named as `find_gang` finds it.

    Raises
    ------
    InputError
        There is no such gang, or several.
    """
    return Explainer(snapshot, plan).explain(gang)


class Explainer:
    """Explains gangs of one plan; the cluster before and after it is prepared once.

    ``replan``: plans a changed cluster, so that cures can be tried out; without it none are.
    """

    def __init__(self, snapshot: Snapshot, plan: Plan, replan: Replan | None = None) -> None:
        self.snapshot = snapshot
        self._replan = replan
        self.plan = plan
        self._before = build_problem(snapshot)
        self._after = build_problem(carried_out(snapshot, plan))
        self._fit = NodeFit(self._after)
        self._names = names_of(snapshot.gangs)
        self._boards = GpuBoards(snapshot, plan)
        self._shapes = {shape.gang.key: shape for shape in self._after.gangs}
        self._places = QueuePlaces(self._after, [entry.gang for entry in plan.pending])

    def pending_gangs(self) -> tuple[str, ...]:
        """Keys of the gangs that wait, in the plan's order."""
        return tuple(dict.fromkeys(entry.gang for entry in self.plan.pending))

    def explain(self, name: str) -> Explanation:
        """Explain one gang; see ``explain_gang``."""
        gang = find_gang(self.snapshot, name)
        entry = next((entry for entry in self.plan.pending if entry.gang == gang.key), None)
        events = tuple(events_of(self.snapshot, self.plan, gang))
        effects = effects_of(self.plan, gang.key, self._names)
        chain = chain_lines(self._before, self._after, gang.queue)
        if entry is None:
            placed = self._shapes.get(gang.key)
            lies = tuple(placed_fits(self._after, placed)) if placed else ()
            link = link_fit(self._boards, self._after, placed) if placed else None
            subject = gang.key, self._state(gang), gang.queue, gang.queue_source
            return Explanation(*subject, queues=chain, domains=lies, link=link, events=events, effects=effects)
        shape = self._shapes.get(gang.key)
        blocking = entry.proof.blocking
        tried = cures(self.snapshot, gang.key, blocking, self._replan) if self._replan is not None else ()
        fits = self._fit.gang(shape) if shape else ()
        return Explanation(
            gang=gang.key,
            state="pending",
            queue=gang.queue,
            queue_source=gang.queue_source,
            reason=entry.reason.value,
            message=entry.message,
            proof=entry.proof,
            place=self._places.of(gang.key),
            queues=chain,
            fits=fits,
            domains=tuple(waiting_fits(self._after, shape)) if shape else (),
            changes=needed_changes(self._after, shape, gang, chain, fits, entry),
            cures=tried,
            kai=kai_text(fits),
            kubernetes=kubernetes_text(fits),
            events=events,
            effects=effects,
            condition=scheduling_condition(gang, entry, self.snapshot.policy.gpu_resources[0]),
        )

    def _state(self, gang: Gang) -> GangState:
        pods = {pod.key for pod in gang.pods}
        if any(eviction.pod in pods for eviction in self.plan.evictions):
            return "evicted"
        if any(move.pod in pods for move in self.plan.moves):
            return "moved"
        return "placed" if any(bind.pod in pods for bind in self.plan.binds) else "running"
