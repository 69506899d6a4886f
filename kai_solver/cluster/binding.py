"""Gangs are bound all or nothing: everything is prepared first, then all pods are bound at once.

What can fail for a while (no answer, too many requests) is tried again; what fails for good (the pod is gone, bound
elsewhere, refused) fails its pod. Where the pods that are bound then are fewer than the gang's minimum, they are
released: a part of a gang that runs alone holds GPUs for nothing.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from tenacity import stop_never
from tenacity.stop import stop_base

from kai_solver.cluster.api import Api, ApiError, FenceError, meta
from kai_solver.cluster.assumed import Assumed
from kai_solver.cluster.resources import PODS
from kai_solver.cluster.resting import Resting
from kai_solver.cluster.trying import UnsettledError, trying
from kai_solver.domain import Allotted
from kai_solver.errors import KaiSolverError
from kai_solver.errors.barrier import barrier, caught

Result = TypeVar("Result")


class BindError(KaiSolverError):
    """A pod cannot be bound as planned, and trying again will not help. The message is for the pod's event."""


@dataclass(frozen=True, slots=True)
class Seat:
    """A pod and the place that a plan gives it; ``annotations`` go onto the pod with its binding.

    ``devices``: indices of its devices with their thousandths; ``groups``: names of the shared ones, in order (none
    for whole devices); ``claims``: devices by resource claim; ``extended``: device class and devices, for extended
    resources that are to be had by a claim of their own.
    """

    namespace: str
    name: str
    uid: str
    node: str
    annotations: tuple[tuple[str, str], ...] = ()
    devices: tuple[tuple[int, int], ...] = ()
    claims: tuple[tuple[str, tuple[Allotted, ...]], ...] = ()
    groups: tuple[str, ...] = ()
    extended: tuple[tuple[str, tuple[Allotted, ...]], ...] = ()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class GangSeats:
    """Pods of one gang that are bound together.

    ``needed``: how many of them must be bound, or none may stay: what the gang lacks of its minimum. ``ran``: whether
    other pods of it had their places when that was decided.
    """

    gang: str
    seats: tuple[Seat, ...]
    needed: int
    ran: bool = False


@dataclass(frozen=True, slots=True)
class GangBound:
    """What became of it: pods bound, why others were not, whether the bound ones were released again.

    ``ran``: as `GangSeats` has it.
    """

    gang: str
    bound: tuple[Seat, ...]
    failed: tuple[tuple[Seat, str], ...] = ()
    released: bool = False
    seconds: float = 0.0
    ran: bool = False


class Preparation(Protocol):
    """Something that must be so before a pod can be bound: volumes, a reserved device, an allocated claim."""

    def concerns(self, seat: Seat) -> bool:
        """Whether the pod needs it."""
        ...

    def assume(self, seat: Seat) -> None:
        """Count it as done from now on, before anything is written: the next cycle may begin at once."""
        ...

    def prepare(self, seat: Seat) -> None:
        """Make it so; ends when it is. Done twice it must do no harm. `BindError` or `ApiError` where it cannot be."""
        ...

    def undo(self, seat: Seat) -> None:
        """Take it back as far as possible. Done twice it must do no harm. `ApiError` where the server would not."""
        ...

    def clear(self) -> None:
        """Forget what was assumed and what is only remembered: a new leader sees the cluster again."""
        ...


class Way(Protocol):
    """How a pod gets its node."""

    def bind(self, seat: Seat) -> None:
        """Bind it, or ask for that. Done twice it must do no harm. `BindError` or `ApiError` where it cannot be."""
        ...

    def stands(self, seat: Seat) -> bool:
        """Whether it was bound, or asked for, when no answer said so; `ApiError` where that cannot be seen."""
        ...

    def outcome(self, seats: Sequence[Seat], needed: int) -> Mapping[str, str]:
        """Wait for those asked for: why pods are not bound, by pod. With fewer than ``needed`` it ends early."""
        ...

    def take_back(self, seat: Seat) -> None:
        """Ask no more for a pod that is not bound; `ApiError` where that fails."""
        ...

    def clear(self) -> None:
        """Forget what was asked for: a new leader sees the cluster again."""
        ...


@dataclass(frozen=True, slots=True)
class Directly:
    """`Way` of our own: a Binding. ``has_node``: whether a node is there."""

    api: Api
    has_node: Callable[[str], bool] = lambda _: True

    def bind(self, seat: Seat) -> None:
        """Bind it."""
        metadata: dict[str, Any] = {"name": seat.name, "namespace": seat.namespace, "uid": seat.uid}
        if seat.annotations:
            metadata["annotations"] = dict(seat.annotations)
        target = {"apiVersion": "v1", "kind": "Node", "name": seat.node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        if not self.has_node(seat.node):
            raise BindError(f"node {seat.node} is gone")
        try:
            self.api.create(PODS, seat.namespace, body, subresource="binding")
        except ApiError as error:
            if not error.is_conflict:
                raise
            self._judge(seat, error)

    def stands(self, seat: Seat) -> bool:
        """Whether the pod is on its node."""
        try:
            pod = self.api.get(PODS, seat.namespace, seat.name)
        except ApiError as error:
            if error.is_missing:
                return False
            raise
        return meta(pod).get("uid") == seat.uid and (pod.get("spec") or {}).get("nodeName") == seat.node

    def outcome(self, seats: Sequence[Seat], needed: int) -> Mapping[str, str]:  # noqa: ARG002 - `Way`
        """They are bound."""
        return {}

    def take_back(self, seat: Seat) -> None:
        """Nothing was asked for."""

    def clear(self) -> None:
        """Nothing is remembered."""

    def _judge(self, seat: Seat, conflict: ApiError) -> None:
        """What a conflict comes to, by the pod as it is now: no error where it is bound as wanted.

        An earlier try may have bound it, whose answer got lost.

        Raises
        ------
        BindError
            It is gone, leaves, is bound elsewhere, or is gated: no try will bind it.
        UnsettledError
            Nothing is in the way any more.
        """
        pod = self.api.get(PODS, seat.namespace, seat.name)
        spec = pod.get("spec") or {}
        if meta(pod).get("uid") != seat.uid or meta(pod).get("deletionTimestamp"):
            raise BindError("the pod is gone, or leaves")
        node = spec.get("nodeName")
        if node and node != seat.node:
            raise BindError(f"somebody else bound the pod to node {node}")
        if spec.get("schedulingGates"):
            raise BindError("the pod has scheduling gates")
        if not node:
            raise UnsettledError(str(conflict))


@dataclass(slots=True)
class Binder:
    """Binds gangs in the background.

    Attributes
    ----------
    pool
        Where writes run, many at a time.
    fence
        Asked before every write; nothing is written where it says no.
    steps
        What must be so before a pod is bound, in order.
    done
        Told, in some thread, what became of each gang.
    waits
        Where pods are prepared, which may take minutes; None: in ``pool``, too.
    patient
        Where gangs run that must wait for others, so that they do not hold up the rest; None: with the rest.
    has_node
        Whether a node is there: a pod that is bound to one that is not would hold its gang up.
    way
        How pods get their nodes; None: by bindings of our own.
    sleep
        Waits between tries; it may end early where ``fence`` says no.
    resting
        Gangs that could not be bound, and are left alone for a while.
    ended
        Called with each gang whose binding ended, whatever became of it: cycles need not leave it alone any more.
    """

    api: Api
    assumed: Assumed
    pool: Executor
    fence: Callable[[], bool]
    done: Callable[[GangBound], None]
    steps: Sequence[Preparation] = ()
    waits: Executor | None = None
    has_node: Callable[[str], bool] = lambda _: True
    way: Way | None = None
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    resting: Resting = field(default_factory=Resting)
    patient: Executor | None = None
    ended: Callable[[str], None] = lambda _: None
    _open: set[str] = field(default_factory=set)
    _asked: set[str] = field(default_factory=set)
    """Of these, gangs that wait for another binder."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def open(self) -> frozenset[str]:
        """Gangs whose binding has not ended: a cycle leaves their pods alone."""
        with self._lock:
            return frozenset(self._open)

    @property
    def at_work(self) -> bool:
        """Whether anything is being done here that should be finished before this process ends."""
        with self._lock:
            return bool(self._open - self._asked)

    def submit(self, gang: GangSeats, runner: Executor) -> None:
        """Assume the pods bound, and bind them in ``runner``, or in ``patient``; either waits for ``pool``."""
        now_s = self.clock()
        with self._lock:
            self._open.add(gang.gang)
        try:
            for seat in gang.seats:
                self.assumed.bound(seat.key, seat.uid, seat.node, now_s, seat.groups, seat.annotations)
                for step in self._steps_of(seat):
                    step.assume(seat)
        except Exception as error:
            why = caught("binding", gang.gang, error)
            runner.submit(self._guarded, gang, lambda found: self._given_up(found, why))
            return
        must_wait = self.way is not None or any(map(self._steps_of, gang.seats))
        (self.patient if self.patient and must_wait else runner).submit(self._guarded, gang, self._remembered)

    def _guarded(self, gang: GangSeats, act: Callable[[GangSeats], GangBound]) -> None:
        began_s = self.clock()
        outcome = GangBound(gang.gang, (), tuple((seat, "the binding broke off") for seat in gang.seats))
        try:
            outcome = act(gang)
        except BaseException as error:
            self.resting.failed(gang.gang)
            if not isinstance(error, Exception):
                raise
            caught("binding", gang.gang, error)
            self._undo(gang, gang.seats)
            self._forget(gang.seats)
        finally:
            with barrier("binding", gang.gang):  # listeners must get the result before a cycle sees that it is over
                self.done(replace(outcome, seconds=self.clock() - began_s, ran=gang.ran))
            with self._lock:
                self._open.discard(gang.gang)
            with barrier("binding", gang.gang):
                self.ended(gang.gang)

    def _given_up(self, gang: GangSeats, why: str) -> GangBound:
        """Nothing was written yet."""
        self.resting.failed(gang.gang)
        self._undo(gang, gang.seats)
        self._forget(gang.seats)
        return GangBound(gang.gang, (), tuple((seat, f"unexpected error: {why}") for seat in gang.seats))

    def _remembered(self, gang: GangSeats) -> GangBound:
        """Bind; a gang that could not be bound, or not whole, rests."""
        outcome = self.bind(gang)
        if outcome.failed:
            self.resting.failed(gang.gang)
        else:
            self.resting.succeeded(gang.gang)
        return outcome

    def strand(self, gang: GangSeats, why: str, runner: Executor) -> None:
        """Release pods that were bound and will never begin; their controllers make them again."""
        now_s = self.clock()
        with self._lock:
            self._open.add(gang.gang)
        for seat in gang.seats:
            self.assumed.leaves(seat.key, seat.uid, now_s)
        runner.submit(self._guarded, gang, lambda found: self._stranded(found, why))

    def _stranded(self, gang: GangSeats, why: str) -> GangBound:
        self._each(gang.seats, self._release)
        return GangBound(gang.gang, (), tuple((seat, why) for seat in gang.seats), released=True)

    def bind(self, gang: GangSeats) -> GangBound:
        """Prepare all, then bind all; release what is bound where that is too little."""
        unready = [seat for seat in gang.seats if self._steps_of(seat)]
        failed = self._each(unready, self._prepare, self.waits)
        ready = [seat for seat in gang.seats if seat.key not in failed]
        if len(ready) >= gang.needed:
            failed |= self._bind(gang, ready)
        bound = [seat for seat in ready if seat.key not in failed]
        if len(bound) >= gang.needed:
            lost = [seat for seat in gang.seats if seat.key in failed]
            self._undo(gang, lost)
            self._forget(lost)
            return GangBound(gang.gang, tuple(bound), tuple((seat, failed[seat.key]) for seat in lost))
        too_few = f"only {len(bound)} of the {gang.needed} pods that the gang needs could be bound"
        tried = len(ready) >= gang.needed
        released = bound if tried else []  # they have their places until they are gone
        lost = [seat for seat in gang.seats if seat not in released]
        self._undo(gang, lost)
        self._forget(lost)
        self._each(released, self._release)
        reasons = {seat.key: failed.get(seat.key, too_few) for seat in gang.seats}
        return GangBound(gang.gang, (), tuple((seat, reasons[seat.key]) for seat in gang.seats), bool(released))

    def _each(self, seats: Sequence[Seat], act: Callable[[Seat], None], pool: Executor | None = None) -> dict[str, str]:
        """Do it to all at once; why it failed by pod."""
        futures = [self._begun(pool or self.pool, act, seat) for seat in seats]
        failed: dict[str, str] = {}
        fault: BaseException | None = None
        for future, seat in zip(futures, seats, strict=True):
            error = _error_of(future)
            if isinstance(error, KaiSolverError):
                failed[seat.key] = str(error)
            elif isinstance(error, Exception):
                failed[seat.key] = f"unexpected error: {caught('binding', seat.key, error)}"
            else:
                fault = fault or error
        if fault is not None:
            raise fault
        return failed

    @staticmethod
    def _begun(pool: Executor, act: Callable[[Seat], None], seat: Seat) -> "Future[None] | None":
        """None if the pool accepts nothing new because this process ends."""
        try:
            return pool.submit(act, seat)
        except RuntimeError:
            return None

    def _bind(self, gang: GangSeats, seats: Sequence[Seat]) -> dict[str, str]:
        """Bind all that are ready; why it failed by pod."""
        way = self.way or Directly(self.api, self.has_node)
        failed = self._each(seats, lambda seat: self._bind_one(way, seat))
        asked = [seat for seat in seats if seat.key not in failed]
        with self._lock:
            self._asked.add(gang.gang)
        try:
            failed |= way.outcome(asked, gang.needed)
        except (
            Exception
        ) as error:  # some may be bound by now: as of those that take too long, what is open is taken back
            failed |= dict.fromkeys(
                (seat.key for seat in asked), f"unexpected error: {caught('binding', gang.gang, error)}"
            )
        finally:
            with self._lock:
                self._asked.discard(gang.gang)
        lost = [seat for seat in asked if seat.key in failed]
        self._each(lost, lambda seat: self._trying(lambda: way.take_back(seat)))
        return failed

    def _bind_one(self, way: Way, seat: Seat) -> None:
        """Bind it; if it is unknown whether it is bound, look until that is known: its devices may be in use."""
        try:
            self._trying(lambda: way.bind(seat))
        except ApiError as error:
            if not (error.is_unclear and self._trying(lambda: way.stands(seat), stop_never)):
                raise

    def _steps_of(self, seat: Seat) -> list[Preparation]:
        return [step for step in self.steps if step.concerns(seat)]

    def _prepare(self, seat: Seat) -> None:
        for step in self._steps_of(seat):
            self._trying(lambda: step.prepare(seat))  # noqa: B023 - runs at once

    def _undo(self, gang: GangSeats, seats: Sequence[Seat]) -> None:
        """Take back what was prepared; a process that no longer leads leaves that to the next leader.

        An unexpected error ends here: those of the gang that are bound have their places all the same.
        """
        with barrier("binding", gang.gang):
            self._each([seat for seat in seats if self._steps_of(seat)], self._undo_one)

    def _undo_one(self, seat: Seat) -> None:
        for step in reversed(self._steps_of(seat)):
            with suppress(KaiSolverError):  # the server is away for too long, or we may not
                self._trying(lambda: step.undo(seat))  # noqa: B023 - runs at once

    def _forget(self, seats: Sequence[Seat]) -> None:
        for seat in seats:
            self.assumed.forget(seat.key, seat.uid)

    def _release(self, seat: Seat) -> None:
        """The pod must start again; its controller makes it again, and it waits with its gang."""
        grace_s = None if self.has_node(seat.node) else 0  # no kubelet is there to end it

        def delete() -> None:
            try:
                self.api.delete(PODS, seat.namespace, seat.name, uid=seat.uid, grace_s=grace_s)
            except ApiError as error:
                if not (error.is_missing or error.is_conflict):
                    raise

        self._trying(delete)
        self.assumed.leaves(seat.key, seat.uid, self.clock(), certain=True)

    def _trying(self, act: Callable[[], Result], stop: stop_base | None = None) -> Result:
        return trying(act, self.fence, self.sleep, stop)


def _error_of(future: "Future[None] | None") -> BaseException | None:
    """The result. `concurrent.futures.wait` would wait for ever for a future that a shutdown of its pool cancelled."""
    try:
        return future.exception() if future is not None else FenceError()
    except CancelledError:
        return FenceError()
