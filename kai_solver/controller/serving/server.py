"""A server of one address, with its own thread and event loop, so that its clients do not delay those of others."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from threading import Thread
from typing import Any

import structlog
import uvicorn

from kai_solver.controller.serving.answers import Guard, PostRoute, Route
from kai_solver.controller.serving.application import Application
from kai_solver.controller.serving.limits import Limits
from kai_solver.controller.serving.listener import Listener
from kai_solver.errors import InputError

_LOG = structlog.get_logger(__name__)

_BACKLOG = 2048
"""Connections that the kernel keeps while there is no room for them."""

_CLOSE_S = 2
"""Answers in progress may take this time when the server closes."""


class Server:
    """Serves routes in a thread of its own.

    Parameters
    ----------
    address
        ``host:port``; without a host on all addresses, of IPv4 and of IPv6 where there is one; with port 0 on any
        that is free.
    routes, posts
        What is answered to GET and to POST, by path.
    guards
        Checks of callers, by path; other paths are open to all callers.
    too_large
        By path, what is answered to a POST whose body is over the limit, given its beginning; else 413.
    tls
        Serve HTTPS; a certificate that is loaded later applies to new connections.
    limits
        What clients may use.
    note_drop
        Called with the reason whenever a connection is ended because its client used more, or took too long.

    Raises
    ------
    InputError
        The address is malformed or taken.
    """

    def __init__(
        self,
        address: str,
        routes: Mapping[str, Route],
        posts: Mapping[str, PostRoute] | None = None,
        *,
        guards: Mapping[str, Guard] | None = None,
        too_large: Mapping[str, PostRoute] | None = None,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
        note_drop: Callable[[str], None] = lambda _: None,
    ) -> None:
        limits = (limits or Limits()).affordable()
        self._socket = _listening(address)
        self.port = int(self._socket.getsockname()[1])
        """Where it listens."""
        application = Application(routes, posts or {}, guards or {}, limits, too_large or {})
        self._uvicorn = uvicorn.Server(_configuration(application, limits))
        self.listener = Listener(self._uvicorn, limits, tls, note_drop)
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_note_fault)
        self._thread = Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop: requests in progress may end, and no new ones begin."""
        self._uvicorn.should_exit = True
        self._thread.join()

    def _run(self) -> None:
        with contextlib.closing(self._loop), self._socket:
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        """uvicorn handles connections and its own end; it gets no socket, because `Listener` accepts."""
        parts = (self.listener.accept(self._socket), self.listener.shake_hands(), self.listener.sweep())
        own = [asyncio.create_task(part) for part in parts]
        try:
            await self._uvicorn.serve(sockets=[])
        finally:
            for task in own:
                task.cancel()
            for connection in tuple(self.listener.connections):
                connection.abort()
            await asyncio.wait(own)
            await asyncio.sleep(0)


def _configuration(application: Application, limits: Limits) -> uvicorn.Config:
    config = uvicorn.Config(
        application.asgi,
        interface="asgi3",
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level=logging.CRITICAL,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=round(limits.idle_s),
        timeout_graceful_shutdown=_CLOSE_S,
        h11_max_incomplete_event_size=limits.head_bytes,
    )
    config.load()
    return config


def _listening(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or len(port) > 5 or int(port) > 65_535:
        raise InputError(f"{address!r} is not an address", cure="Write host:port, or :port for all addresses")
    host = host.strip("[]")
    try:
        if not host and socket.has_dualstack_ipv6():
            made = socket.create_server(("", int(port)), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
        else:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            made = socket.create_server((host, int(port)), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise InputError(f"cannot serve on {address}: {error}", cure="Choose another port") from error
    made.setblocking(False)
    return made


def _note_fault(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Clients come and go: a broken connection is worth a line at the lowest level only."""
    error = context.get("exception")
    if error is None or isinstance(error, OSError):
        _LOG.debug("a connection ended early", error=str(error or context.get("message", "")))
    else:
        _LOG.error("a connection failed", exc_info=error)
