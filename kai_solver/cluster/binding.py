"""Gangs are bound all or nothing: everything is prepared first, then all pods are bound at once.

What can fail for a while (no answer, too many requests) is tried again; what fails for good (the pod is gone, bound
elsewhere, refused) fails its pod. Where the pods that are bound then are fewer than the gang's minimum, they are
released: a part of a gang that runs alone holds GPUs for nothing. Pods that no controller would create again stay
bound, and the rest of their gang is tried again.
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


class LateError(BindError):
    """What a pod waited for did not come in time: it would hold a thread as long again, so its gang rests for long."""


@dataclass(frozen=True, slots=True)
class Placement:
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
class GangPlacement:
    """Pods of one gang that are bound together.

    ``needed``: how many of them must be bound, or none may stay: what the gang lacks of its minimum. ``ran``: whether
    other pods of it had their places when that was decided.
    """

    gang: str
    placements: tuple[Placement, ...]
    needed: int
    ran: bool = False


@dataclass(frozen=True, slots=True)
class GangBound:
    """What became of it: pods bound, why others were not, whether some of these were bound and released again.

    ``ran``: as `GangPlacement` has it; ``late``: pods waited in vain.
    """

    gang: str
    bound: tuple[Placement, ...]
    failed: tuple[tuple[Placement, str], ...] = ()
    released: bool = False
    seconds: float = 0.0
    ran: bool = False
    late: bool = False


class Preparation(Protocol):
    """Something that must be so before a pod can be bound: volumes, a reserved device, an allocated claim."""

    def concerns(self, placement: Placement) -> bool:
        """Whether the pod needs it."""
        ...

    def assume(self, placement: Placement) -> None:
        """Count it as done from now on, before anything is written: the next cycle may begin at once."""
        ...

    def prepare(self, placement: Placement) -> None:
        """Make it so; ends when it is. Done twice it must do no harm. `BindError` or `ApiError` where it cannot be."""
        ...

    def undo(self, placement: Placement) -> None:
        """Take it back as far as possible. Done twice it must do no harm. `ApiError` where the server would not."""
        ...

    def clear(self) -> None:
        """Forget what was assumed and what is only remembered: a new leader reads the cluster again."""
        ...


class Way(Protocol):
    """How a pod gets its node."""

    def bind(self, placement: Placement) -> None:
        """Bind it, or ask for that. Done twice it must do no harm. `BindError` or `ApiError` where it cannot be."""
        ...

    def stands(self, placement: Placement) -> bool:
        """Whether it was bound, or asked for, when no answer said so; `ApiError` where that cannot be seen."""
        ...

    def outcome(self, placements: Sequence[Placement], needed: int) -> Mapping[str, str]:
        """Wait for those asked for: why pods are not bound, by pod. With fewer than ``needed`` it ends early."""
        ...

    def take_back(self, placement: Placement) -> None:
        """Ask no more for a pod that is not bound; `ApiError` where that fails."""
        ...

    def clear(self) -> None:
        """Forget what was asked for: a new leader reads the cluster again."""
        ...


@dataclass(frozen=True, slots=True)
class Directly:
    """`Way` of our own: a Binding. ``has_node``: whether a node is there."""

    api: Api
    has_node: Callable[[str], bool] = lambda _: True

    def bind(self, placement: Placement) -> None:
        """Bind it."""
        metadata: dict[str, Any] = {"name": placement.name, "namespace": placement.namespace, "uid": placement.uid}
        if placement.annotations:
            metadata["annotations"] = dict(placement.annotations)
        target = {"apiVersion": "v1", "kind": "Node", "name": placement.node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        if not self.has_node(placement.node):
            raise BindError(f"node {placement.node} is gone")
        try:
            self.api.create(PODS, placement.namespace, body, subresource="binding")
        except ApiError as error:
            if not error.is_conflict:
                raise
            self._judge(placement, error)

    def stands(self, placement: Placement) -> bool:
        """Whether the pod is on its node."""
        try:
            pod = self.api.get(PODS, placement.namespace, placement.name)
        except ApiError as error:
            if error.is_missing:
                return False
            raise
        return meta(pod).get("uid") == placement.uid and (pod.get("spec") or {}).get("nodeName") == placement.node

    def outcome(self, placements: Sequence[Placement], needed: int) -> Mapping[str, str]:  # noqa: ARG002 - `Way`
        """They are bound."""
        return {}

    def take_back(self, placement: Placement) -> None:
        """Nothing was asked for."""

    def clear(self) -> None:
        """Nothing is remembered."""

    def _judge(self, placement: Placement, conflict: ApiError) -> None:
        """What a conflict comes to, by the pod as it is now: no error where it is bound as wanted.

        An earlier try, the answer of which got lost, may have bound it.

        Raises
        ------
        BindError
            It is gone, leaves, is bound elsewhere, or is gated: no try will bind it.
        UnsettledError
            Nothing is in the way any more.
        """
        pod = self.api.get(PODS, placement.namespace, placement.name)
        spec = pod.get("spec") or {}
        if meta(pod).get("uid") != placement.uid or meta(pod).get("deletionTimestamp"):
            raise BindError("the pod is gone, or is being deleted")
        node = spec.get("nodeName")
        if node and node != placement.node:
            raise BindError(f"another client bound the pod to node {node}")
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
        Called, in some thread, with the outcome of each gang.
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
    comes_back
        Whether a pod that is deleted is created again, by its controller.
    ended
        Called with each gang when its binding ended, bound or not: cycles need not leave it alone any more.
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
    comes_back: Callable[[Placement], bool] = lambda _: True
    ended: Callable[[str], None] = lambda _: None
    _open: set[str] = field(default_factory=set)
    _asked: set[str] = field(default_factory=set)
    """Of these, gangs that wait for the binding of another gang."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def open(self) -> frozenset[str]:
        """Gangs that are still being bound: a cycle leaves their pods alone."""
        with self._lock:
            return frozenset(self._open)

    @property
    def at_work(self) -> bool:
        """Whether anything is being done here that should be finished before this process ends."""
        with self._lock:
            return bool(self._open - self._asked)

    def submit(self, gang: GangPlacement, runner: Executor) -> None:
        """Assume the pods bound, and bind them in ``runner``, or in ``patient``; either waits for ``pool``."""
        now_s = self.clock()
        with self._lock:
            self._open.add(gang.gang)
        try:
            for placement in gang.placements:
                self.assumed.bound(
                    placement.key, placement.uid, placement.node, now_s, placement.groups, placement.annotations
                )
                for step in self._steps_of(placement):
                    step.assume(placement)
            must_wait = self.way is not None or any(map(self._steps_of, gang.placements))
        except Exception as error:
            why = caught("binding", gang.gang, error)
            runner.submit(self._guarded, gang, lambda found: self._given_up(found, why))
            return
        (self.patient if self.patient and must_wait else runner).submit(self._guarded, gang, self._remembered)

    def _guarded(self, gang: GangPlacement, act: Callable[[GangPlacement], GangBound]) -> None:
        began_s = self.clock()
        outcome = GangBound(
            gang.gang, (), tuple((placement, "the binding was interrupted") for placement in gang.placements)
        )
        try:
            outcome = act(gang)
        except BaseException as error:
            self.resting.failed(gang.gang)
            if not isinstance(error, Exception):
                raise
            caught("binding", gang.gang, error)
            self._undo(gang, gang.placements)
            self._forget(gang.placements)
        finally:
            with barrier("binding", gang.gang):  # listeners must get the result before a cycle sees that it is over
                self.done(replace(outcome, seconds=self.clock() - began_s, ran=gang.ran))
            with self._lock:
                self._open.discard(gang.gang)
            with barrier("binding", gang.gang):
                self.ended(gang.gang)

    def _given_up(self, gang: GangPlacement, why: str) -> GangBound:
        """Nothing was written yet."""
        self.resting.failed(gang.gang)
        self._undo(gang, gang.placements)
        self._forget(gang.placements)
        return GangBound(gang.gang, (), tuple((placement, f"unexpected error: {why}") for placement in gang.placements))

    def _remembered(self, gang: GangPlacement) -> GangBound:
        """Bind; a gang that could not be bound, or not whole, rests, if it waited in vain as long as it waited."""
        began_s = self.clock()
        outcome = self.bind(gang)
        if outcome.failed:
            self.resting.failed(gang.gang, self.clock() - began_s if outcome.late else 0.0)
        else:
            self.resting.succeeded(gang.gang)
        return outcome

    def strand(self, gang: GangPlacement, why: str, runner: Executor) -> None:
        """Release pods that were bound and will never begin; their controllers create them again."""
        now_s = self.clock()
        with self._lock:
            self._open.add(gang.gang)
        for placement in gang.placements:
            self.assumed.leaves(placement.key, placement.uid, now_s)
        runner.submit(self._guarded, gang, lambda found: self._stranded(found, why))

    def _stranded(self, gang: GangPlacement, why: str) -> GangBound:
        self._each(gang.placements, self._release)
        return GangBound(gang.gang, (), tuple((placement, why) for placement in gang.placements), released=True)

    def bind(self, gang: GangPlacement) -> GangBound:
        """Prepare all, then bind all; release what is bound where that is too little."""
        unready = [placement for placement in gang.placements if self._steps_of(placement)]
        late: set[str] = set()
        failed = self._each(unready, lambda placement: self._prepare(placement, late), self.waits)
        ready = [placement for placement in gang.placements if placement.key not in failed]
        if len(ready) >= gang.needed:
            failed |= self._bind(gang, ready)
        bound = [placement for placement in ready if placement.key not in failed]
        if len(bound) >= gang.needed:
            lost = [placement for placement in gang.placements if placement.key in failed]
            self._undo(gang, lost)
            self._forget(lost)
            reasons = tuple((placement, failed[placement.key]) for placement in lost)
            return GangBound(gang.gang, tuple(bound), reasons, late=bool(late))
        too_few = f"only {len(bound)} of the {gang.needed} pods that the gang needs could be bound"
        tried = bound if len(ready) >= gang.needed else []  # they have their places until they are gone
        lost = [placement for placement in gang.placements if placement not in tried]
        self._undo(gang, lost)
        self._forget(lost)
        released = [placement for placement in tried if self.comes_back(placement)]
        refused = self._each(released, self._release)
        stay = [placement for placement in tried if placement not in released or placement.key in refused]
        gone = tuple(
            (placement, failed.get(placement.key, too_few)) for placement in gang.placements if placement not in stay
        )
        return GangBound(gang.gang, tuple(stay), gone, len(tried) > len(stay), late=bool(late))

    def _each(
        self, placements: Sequence[Placement], act: Callable[[Placement], None], pool: Executor | None = None
    ) -> dict[str, str]:
        """Do it to all at once; why it failed by pod."""
        futures = [self._begun(pool or self.pool, act, placement) for placement in placements]
        failed: dict[str, str] = {}
        fault: BaseException | None = None
        for future, placement in zip(futures, placements, strict=True):
            error = _error_of(future)
            if isinstance(error, KaiSolverError):
                failed[placement.key] = str(error)
            elif isinstance(error, Exception):
                failed[placement.key] = f"unexpected error: {caught('binding', placement.key, error)}"
            else:
                fault = fault or error
        if fault is not None:
            raise fault
        return failed

    @staticmethod
    def _begun(pool: Executor, act: Callable[[Placement], None], placement: Placement) -> "Future[None] | None":
        """None if the pool accepts nothing new because this process ends."""
        try:
            return pool.submit(act, placement)
        except RuntimeError:
            return None

    def _bind(self, gang: GangPlacement, placements: Sequence[Placement]) -> dict[str, str]:
        """Bind all that are ready; why it failed by pod."""
        way = self.way or Directly(self.api, self.has_node)
        failed = self._each(placements, lambda placement: self._bind_one(way, placement))
        asked = [placement for placement in placements if placement.key not in failed]
        with self._lock:
            self._asked.add(gang.gang)
        try:
            failed |= way.outcome(asked, gang.needed)
        except (
            Exception
        ) as error:  # some may be bound by now: as of those that take too long, what is open is taken back
            failed |= dict.fromkeys(
                (placement.key for placement in asked), f"unexpected error: {caught('binding', gang.gang, error)}"
            )
        finally:
            with self._lock:
                self._asked.discard(gang.gang)
        lost = [placement for placement in asked if placement.key in failed]
        self._each(lost, lambda placement: self._trying(lambda: way.take_back(placement)))
        return failed

    def _bind_one(self, way: Way, placement: Placement) -> None:
        """Bind it; after an unexpected error, once more: a gang that lacks one pod is released as a whole."""
        try:
            self._bind_once(way, placement)
        except KaiSolverError:
            raise
        except Exception as error:
            caught("binding", placement.key, error)
            self._bind_once(way, placement)

    def _bind_once(self, way: Way, placement: Placement) -> None:
        """Bind it; without an answer, read the pod until it is known whether it is bound: its devices may be in use."""
        try:
            self._trying(lambda: way.bind(placement))
        except ApiError as error:
            if not (error.is_unclear and self._trying(lambda: way.stands(placement), stop_never)):
                raise

    def _steps_of(self, placement: Placement) -> list[Preparation]:
        return [step for step in self.steps if step.concerns(placement)]

    def _prepare(self, placement: Placement, late: set[str]) -> None:
        try:
            for step in self._steps_of(placement):
                self._trying(lambda: step.prepare(placement))  # noqa: B023 - runs at once
        except LateError:
            late.add(placement.key)
            raise

    def _undo(self, gang: GangPlacement, placements: Sequence[Placement]) -> None:
        """Take back what was prepared; a replica that no longer leads leaves it to the next leader.

        An unexpected error ends here: those of the gang that are bound have their places all the same.
        """
        with barrier("binding", gang.gang):
            self._each([placement for placement in placements if self._steps_of(placement)], self._undo_one)

    def _undo_one(self, placement: Placement) -> None:
        for step in reversed(self._steps_of(placement)):
            with suppress(KaiSolverError):  # the server is away for too long, or we may not
                self._trying(lambda: step.undo(placement))  # noqa: B023 - runs at once

    def _forget(self, placements: Sequence[Placement]) -> None:
        for placement in placements:
            self.assumed.forget(placement.key, placement.uid)

    def _release(self, placement: Placement) -> None:
        """Delete the pod; its controller creates it again, and it waits with its gang."""
        grace_s = None if self.has_node(placement.node) else 0  # no kubelet is there to end it

        def delete() -> None:
            try:
                self.api.delete(PODS, placement.namespace, placement.name, uid=placement.uid, grace_s=grace_s)
            except ApiError as error:
                if not (error.is_missing or error.is_conflict):
                    raise

        self._trying(delete)
        self.assumed.leaves(placement.key, placement.uid, self.clock(), certain=True)

    def _trying(self, act: Callable[[], Result], stop: stop_base | None = None) -> Result:
        return trying(act, self.fence, self.sleep, stop)


def _error_of(future: "Future[None] | None") -> BaseException | None:
    """The result. `concurrent.futures.wait` would wait for ever for a future that a shutdown of its pool cancelled."""
    try:
        return future.exception() if future is not None else FenceError()
    except CancelledError:
        return FenceError()
