"""KAI Scheduler itself as an oracle: what one of its cycles decides on a snapshot.

``decides/`` is a program of ours around KAI's own packages, in the version that ``decides/go.mod`` pins. That one is
older than the version that docs/kai-behaviour.md describes: it knows two levels of queues, no NUMA zones, no preemption
delay and no minimum of subgroups.
"""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from kai_solver.domain import Action, Snapshot
from kai_solver.instances_io.seated import kai_archive
from tests.support.gotools import KAI, ToolMissingError, go_module

ANSWER_S = 60.0
"""Longest time of a cycle: KAI limits its own search to minutes."""


@dataclass(frozen=True, slots=True)
class State:
    """What became of a pod, in KAI's words: ``Running``, ``Binding``, ``Pipelined``, ``Releasing``, ``Pending``."""

    status: str
    node: str = ""
    groups: tuple[str, ...] = ()


class KaiFailedError(Exception):
    """KAI gave no decision: it panicked, or took too long."""


class Oracle:
    """A process that decides snapshots one after the other. After a time limit it is started anew."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program, self._archive, self._log = program, folder / "snapshot.zip", folder / "kai.log"

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def decide(self, archive: bytes, longest_s: float = ANSWER_S) -> dict[str, State]:
        """State by pod (``namespace/name``) at the end of a cycle on the snapshot ``archive``.

        Raises
        ------
        KaiFailedError
            It panicked, or took longer than ``longest_s``.
        """
        return {
            f"{pod['namespace']}/{pod['name']}": State(
                pod["state"], pod.get("node", ""), tuple(pod.get("gpuGroups") or ())
            )
            for pod in self._answer(archive, longest_s).get("pods", ())
        }

    def fair_shares(self, archive: bytes) -> dict[str, tuple[float, float, float]]:
        """By queue its fair share before the actions: thousandths of cores, bytes, and whole GPUs, rounded down.

        Raises
        ------
        KaiFailedError
            It panicked, or took longer than `ANSWER_S`.
        """
        shares = self._answer(archive, ANSWER_S)["fairShares"]
        return {queue: (one["cpuMilli"], one["memory"], one["gpus"]) for queue, one in shares.items()}

    def _answer(self, archive: bytes, longest_s: float) -> dict[str, Any]:
        self._archive.write_bytes(archive)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with _limit(self._process, longest_s):
            self._process.stdin.write(f"{self._archive}\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            self._end()
            self._start()
            raise KaiFailedError(f"no answer within {longest_s:.0f} s")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise KaiFailedError(answer["error"])
        return answer

    def _start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [self._program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()


def kais_programs() -> Path:
    """Where KAI's programs are; without them the test is skipped."""
    try:
        return go_module(KAI)
    except ToolMissingError as error:
        pytest.skip(f"NOT TESTED against KAI itself: {error}")


@contextmanager
def _limit(process: subprocess.Popen[str], seconds: float) -> Iterator[None]:
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def archive_of(snapshot: Snapshot, actions: tuple[Action, ...] = tuple(Action)) -> bytes:
    """The archive that ``kai-solver convert`` writes, with ``actions`` alone."""
    disabled = snapshot.policy.disabled_actions | (frozenset(Action) - frozenset(actions))
    return kai_archive(replace(snapshot, policy=replace(snapshot.policy, disabled_actions=disabled)))
