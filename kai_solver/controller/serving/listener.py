"""Connections of one listener: accepted up to a limit, each with a deadline for the next bytes of its client.

uvicorn serves HTTP, and knows none of these limits: it has no deadline for a request's head, and accepts without a
limit (its ``limit_concurrency`` answers 503 to all clients, including probes, and counts no TLS handshakes). The limits
need its protocol class (received bytes, the end of an answer) and an accept loop in place of ``create_server``. Only
these two are ours.
"""

import asyncio
import enum
import socket
import ssl
import time
from asyncio import sslproto
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from kai_solver.controller.serving.limits import Limits

_LOG = structlog.get_logger(__name__)

TLS_BUFFER_KIB = 8
"""What asyncio keeps for reading on each TLS connection, in place of its 256 KiB: 1,000 connections would cost 280 MiB,
and cost 32 MiB with this (22 November 2026)."""

TLS_WAITING_KIB = 16
"""What it reads ahead of us on a TLS connection, or keeps for a client that does not read; not 256 and 512 KiB."""

LOOK_S = 0.25
"""How often deadlines are checked."""

_PAUSE_S = 0.01
"""Delay between checks for room while there is none."""

HANDSHAKES = 16
"""Handshakes that begin in one pass of the event loop: each costs 1 ms of CPU time, and others go on in between."""

_FAREWELL_S = 1.0
"""How long a client may take to end its side of a TLS connection."""

# There is no parameter for it; nothing else in this process speaks TLS by asyncio.
sslproto.SSLProtocol.max_size = TLS_BUFFER_KIB << 10


class Stage(enum.Enum):
    """What a connection waits for; the value is the reason why it is dropped there."""

    HEAD = "head"
    BODY = "body"
    QUEUE = "queue"
    WORK = "work"
    ANSWER = "answer"
    IDLE = "idle"


class Connection(H11Protocol):
    """A connection: what it waits for, and since when.

    It waits for its client, but for `Stage.QUEUE` (for a thread) and `Stage.WORK` (for a handler): these have no
    deadline.
    """

    def __init__(self, listener: "Listener") -> None:
        super().__init__(listener.config, listener.server.server_state, {"connection": self})
        self._listener = listener
        self.stage = Stage.HEAD
        self.since_s = listener.clock()
        self.held = 0
        """Bytes received of requests that are not answered."""
        self.body = bytearray()
        """Of its request, so far."""
        self.opening: asyncio.Task[None] | None = None
        """Shakes hands; None once that is done."""
        self.is_dropped = False

    def enter(self, stage: Stage) -> None:
        """Begin to wait for something else."""
        if (stage is Stage.WORK) != (self.stage is Stage.WORK):
            self._listener.held += self.held if self.stage is Stage.WORK else -self.held
        self.stage, self.since_s = stage, self._listener.clock()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It is open, and its handshake done."""
        super().connection_made(transport)
        if transport.get_extra_info("sslcontext") is not None:
            transport.set_write_buffer_limits(TLS_WAITING_KIB << 10)
            transport.set_read_buffer_limits(TLS_WAITING_KIB << 10)  # type: ignore[attr-defined] # of TLS ones alone

    def data_received(self, data: bytes) -> None:
        """Count received bytes, and drop connections if there are too many."""
        if self.stage is Stage.IDLE:
            self.enter(Stage.HEAD)
        self._listener.hold(self, len(data))
        if not self.is_dropped:
            super().data_received(data)

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the client to read the end."""
        if not self.transport.is_closing():
            self.release()
            self.enter(Stage.IDLE)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it, and free what it held at once, because it and its request refer to each other."""
        super().connection_lost(exc)
        self._listener.forget(self)
        if self.cycle is not None:
            self.cycle.body = bytearray()
            self.cycle.on_response = _nothing

    def release(self) -> None:
        """Its request is answered, or given up."""
        if self.stage is not Stage.WORK:
            self._listener.held -= self.held
        self.held = 0
        self.body = bytearray()

    def drop(self, reason: str) -> None:
        """Close it at once, because its client used too much or took too long."""
        if not self.is_dropped:
            self._listener.note_drop(reason)
            self.abort()

    def abort(self) -> None:
        """Close it at once, without an answer."""
        self.is_dropped = True
        self.release()
        if self.opening is not None:
            self.opening.cancel()
        else:
            self.transport.abort()


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _nothing() -> None:
    """In place of a method of a connection that is gone."""


class Listener:
    """Accepts connections for a uvicorn server; all of it runs in that server's event loop.

    Attributes
    ----------
    connections
        All that are open, counted from the accept on.
    held
        Bytes of requests that are not whole, or wait for a thread.

    Parameters
    ----------
    note_drop
        Called with the reason why a connection is dropped: a stage's name, ``full`` or ``bytes``.
    """

    def __init__(
        self,
        server: uvicorn.Server,
        limits: Limits,
        tls: ssl.SSLContext | None = None,
        note_drop: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.server = server
        self.config = server.config
        self.clock = clock
        self.connections: set[Connection] = set()
        self.held = 0
        self.note_drop = note_drop
        self._limits = limits
        self._deadlines_s = {
            Stage.HEAD: limits.head_s,
            Stage.BODY: limits.body_s,
            Stage.ANSWER: limits.answer_s,
            Stage.IDLE: limits.idle_s,
        }
        self._turns: deque[asyncio.Future[None]] = deque()
        self._handshake: dict[str, Any] = {}
        if tls is not None:
            stated = {"ssl_handshake_timeout": limits.head_s, "ssl_shutdown_timeout": _FAREWELL_S}
            self._handshake = {"ssl": tls, **stated}

    async def accept(self, listening: socket.socket) -> None:
        """Accept for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await self._room()
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:  # no more files, or the client is gone again
                _LOG.debug("a connection was not accepted", error=str(error))
                await asyncio.sleep(LOOK_S)
                continue
            connection = Connection(self)
            self.connections.add(connection)
            connection.opening = loop.create_task(self._open(connection, accepted))
            connection.opening.add_done_callback(partial(self._opened, connection, accepted))

    async def shake_hands(self) -> None:
        """Let handshakes begin for ever, a few at a time: a flood of new connections holds up none that is open."""
        while True:
            for _ in range(min(HANDSHAKES, len(self._turns))):
                turn = self._turns.popleft()
                _finish(turn)
            await asyncio.sleep(0 if self._turns else _PAUSE_S)

    async def sweep(self) -> None:
        """Drop overdue connections, for ever."""
        while True:
            self.drop_overdue()
            await asyncio.sleep(LOOK_S)

    def drop_overdue(self) -> None:
        """Drop connections whose clients have missed a deadline."""
        now_s = self.clock()
        for connection in tuple(self.connections):
            limit_s = self._deadlines_s.get(connection.stage)
            if limit_s is not None and now_s - connection.since_s > limit_s:
                connection.drop(connection.stage.value)

    def hold(self, connection: Connection, size: int) -> None:
        """Count bytes of a connection; if all hold too many, drop those with the most bytes times seconds."""
        connection.held += size
        if connection.stage is Stage.WORK:
            return
        self.held += size
        now_s = self.clock()
        while self.held > self._limits.waiting_bytes:
            found = (one for one in self.connections if one.stage is not Stage.WORK and not one.is_dropped)
            max(found, key=lambda one: one.held * (now_s - one.since_s + _PAUSE_S)).drop("bytes")

    def forget(self, connection: Connection) -> None:
        """It is closed."""
        connection.release()
        self.connections.discard(connection)

    async def _open(self, connection: Connection, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            if self._handshake:
                await self._turn(connection, accepted)
            await loop.connect_accepted_socket(lambda: connection, accepted, **self._handshake)
        except OSError as error:  # TLS faults and time-outs are some, too
            _LOG.debug("a connection ended early", error=f"{type(error).__name__}: {error}")

    async def _turn(self, connection: Connection, accepted: socket.socket) -> None:
        """Wait for the client's hello, which costs nothing, then for a turn to answer it, which costs much."""
        loop = asyncio.get_running_loop()
        greeting: asyncio.Future[None] = loop.create_future()
        loop.add_reader(accepted, _finish, greeting)
        try:
            await greeting
        finally:
            loop.remove_reader(accepted)
        turn: asyncio.Future[None] = loop.create_future()
        self._turns.append(turn)
        connection.enter(Stage.QUEUE)
        await turn
        connection.enter(Stage.HEAD)

    def _opened(self, connection: Connection, accepted: socket.socket, _: asyncio.Task[None]) -> None:
        """Its handshake is over; or it was cancelled, maybe before it began."""
        connection.opening = None
        if connection not in self.server.server_state.connections:
            accepted.close()
            self.forget(connection)

    async def _room(self) -> None:
        """Wait until one more may be accepted; the connection that waits longest for its client is dropped first."""
        while len(self.connections) >= self._limits.connections:
            waiting = (one for one in self.connections if one.stage in self._deadlines_s and not one.is_dropped)
            oldest = min(waiting, key=lambda one: one.since_s, default=None)
            if oldest is not None and self.clock() - oldest.since_s >= self._limits.grace_s:
                oldest.drop("full")
                await asyncio.sleep(0)
            else:
                await asyncio.sleep(_PAUSE_S)
