"""Routes as an ASGI application: bodies are read within limits, handlers run in threads whose number is limited."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TypeVar
from urllib.parse import parse_qsl

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as Path

from kai_solver.controller.serving.answers import Answer, Guard, PostRoute, Rest, Route
from kai_solver.controller.serving.limits import Limits
from kai_solver.controller.serving.listener import Connection, Stage
from kai_solver.errors import KaiSolverError

_LOG = structlog.get_logger(__name__)

PIECE = 64 << 10
"""Bytes of an answer that are written at one time: no more is copied for a client that reads slowly."""

Result = TypeVar("Result")


class Application:
    """Answers requests of one listener.

    Parameters
    ----------
    routes, posts
        What is answered to GET and to POST, by path.
    guards
        Checks of callers, by path; other paths are open to all callers.
    too_large
        By path, what is answered to a POST whose body is over the limit, given its beginning; else 413.
    """

    def __init__(
        self,
        routes: Mapping[str, Route],
        posts: Mapping[str, PostRoute],
        guards: Mapping[str, Guard],
        limits: Limits,
        too_large: Mapping[str, PostRoute],
    ) -> None:
        self._guards = guards
        self._limits = limits
        self._threads = asyncio.Semaphore(limits.threads)
        self._large = asyncio.Semaphore(1)
        self._paths = " ".join(sorted({*routes, *posts}))
        gets = [Path(path, self._get(path, route)) for path, route in routes.items()]
        others = [Path(path, self._post(route, too_large.get(path)), methods=["POST"]) for path, route in posts.items()]
        handlers = {404: self._refused, 405: self._refused}
        self.asgi = Starlette(routes=[*gets, *others], exception_handlers=handlers)
        self.asgi.router.redirect_slashes = False

    def _get(self, path: str, route: Route) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            query = dict(parse_qsl(request.url.query))
            authorization = request.headers.get("authorization", "")
            guard = self._guards.get(path)

            def work() -> Answer:
                refusal = guard(path, authorization) if guard is not None else None
                return refusal or route(query)

            return await self._worked(request, work)

        return answer

    def _post(self, route: PostRoute, too_large: PostRoute | None) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            problem = self._unreadable(request)
            if problem is not None and problem.status == 413 and too_large is not None:
                return await self._skim(request, too_large)
            if problem is not None:
                return _response(request, problem, closes=True)
            connection = _connection(request)
            connection.enter(Stage.BODY)
            if int(request.headers["content-length"]) <= self._limits.large_bytes:
                return await self._read(request, route, self._limits.body_s)
            connection.flow.pause_reading()
            async with self._large:
                return await self._read(request, route, self._limits.large_s)

        return answer

    async def _read(self, request: Request, route: PostRoute, limit_s: float) -> Response:
        """The answer to a request when its body is complete; discarded if the client is gone before."""
        connection = _connection(request)
        try:
            async with asyncio.timeout(limit_s):
                async for part in request.stream():
                    connection.body += part
        except TimeoutError:
            connection.drop(Stage.BODY.value)
        except ClientDisconnect:
            pass
        return await self._worked(request, lambda: route(connection.body))

    async def _skim(self, request: Request, route: PostRoute) -> Response:
        """The answer to the beginning of a body. The rest is read and dropped, so that the client gets the answer."""
        connection, head = _connection(request), bytearray()
        connection.enter(Stage.BODY)
        connection.flow.pause_reading()
        async with self._large:
            try:
                async with asyncio.timeout(self._limits.large_s):
                    async for part in request.stream():
                        head += part[: self._limits.head_bytes - len(head)]
                        connection.release()
            except TimeoutError:
                connection.drop(Stage.BODY.value)
            except ClientDisconnect:
                pass
            return await self._worked(request, lambda: route(head))

    def _unreadable(self, request: Request) -> Answer | None:
        """What is wrong with a body before it is read."""
        length = request.headers.get("content-length")
        if length is None:
            return Answer(411, b"Content-Length is missing\n")
        if int(length) > self._limits.body_bytes:  # h11 lets decimal numbers through, and nothing else
            return Answer(413, f"more than {self._limits.body_bytes} bytes\n".encode())
        return None

    async def _worked(self, request: Request, work: Callable[[], Answer]) -> Response:
        """The answer of a handler; an error of the handler is a 500, and never ends the server."""
        connection = _connection(request)
        connection.enter(Stage.QUEUE)
        async with self._threads:
            if connection.transport.is_closing():
                return Response(status_code=503)  # the client is gone
            connection.enter(Stage.WORK)
            try:
                answer = await _in_thread(work)
            except KaiSolverError as error:
                answer = Answer(500, f"{error}\n".encode())
            except Exception:
                _LOG.exception("answering failed", path=request.url.path)
                answer = Answer(500, b"internal error\n")
            finally:
                connection.release()
                connection.enter(Stage.ANSWER)
        _LOG.debug("http", client=connection.client, method=request.method, path=request.url.path, status=answer.status)
        return _response(request, answer)

    async def _refused(self, request: Request, error: Exception) -> Response:
        """An unknown path, or a method that the path does not have. A small body is read and dropped before.

        Where bytes were not read, closing resets the connection, and the client may lose the answer.
        """
        connection, length = _connection(request), request.headers.get("content-length", "0")
        if 0 < int(length) <= self._limits.head_bytes:
            connection.enter(Stage.BODY)
            with contextlib.suppress(TimeoutError, ClientDisconnect):
                async with asyncio.timeout(self._limits.body_s):
                    async for _ in request.stream():
                        pass
        connection.enter(Stage.ANSWER)
        status = error.status_code if isinstance(error, HTTPException) else 404
        return _response(request, Answer(status, f"there is: {self._paths}\n".encode()), closes=True)


def _connection(request: Request) -> Connection:
    found: Connection = request.state.connection
    return found


def _response(request: Request, answer: Answer, *, closes: bool = False) -> Response:
    """``closes``: what comes after this on the connection, the rest of a body for one, is not read."""
    size = len(answer.body) + (answer.rest.size if answer.rest is not None else 0)
    headers = {"Content-Type": answer.content, "Content-Length": str(size)}
    if answer.name:
        headers["Content-Disposition"] = f'attachment; filename="{answer.name}"'
    if answer.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if closes:
        headers["Connection"] = "close"
    if answer.rest is not None and request.method != "HEAD":
        return StreamingResponse(_streamed(answer.body, answer.rest), answer.status, headers)
    if answer.rest is not None:
        answer.rest.close()
    if len(answer.body) <= PIECE or request.method == "HEAD":
        return Response(answer.body, answer.status, headers)
    pieces = (answer.body[start : start + PIECE] for start in range(0, len(answer.body), PIECE))
    return StreamingResponse(_each(pieces), answer.status, headers)


async def _each(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def _streamed(first: bytes, rest: Rest) -> AsyncIterator[bytes]:
    """Files are read in threads: a slow disk holds up no other answer."""
    try:
        yield first
        pieces = iter(rest)
        while piece := await _in_thread(lambda: next(pieces, b"")):
            yield piece
    finally:
        rest.close()


async def _in_thread(work: Callable[[], Result]) -> Result:
    """What ``work`` returns or raises, of a thread that never keeps the process from ending, as those of a pool do."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def finish(result: Result | None, error: BaseException | None) -> None:
        if not done.done():  # the server closes, and no task waits any more
            done.set_exception(error) if error is not None else done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(finish, result, failure)
        except RuntimeError:
            _LOG.debug("an answer came after the server closed")

    threading.Thread(target=run, name="http-handler", daemon=True).start()
    return await done
