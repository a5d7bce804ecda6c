"""Runs the server: one process, its judge as a child, until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from harness.async_evaluator import Settings
from harness.errors import HarnessError, UsageError
from harness.server.access import Access
from harness.server.pump import Pump
from harness.server.requests import Problems
from harness.system.interrupts import Interrupted

#: Seconds for open requests to end before the server ends.
END_LIMIT_S = 3
#: The most connections at once; more get status 503.
MOST_CONNECTIONS = 1024
#: Settings that say where and not how to judge.
_BESIDE_THE_VERDICT = frozenset({"home", "root", "lanes", "executor", "address"})


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The options of ``serve``.

    Attributes:
        host: The address to listen on.
        port: The port; 0 for any free one.
        home: ``HARNESS_HOME``.
        root: Folder with problems and templates.
        access: The clients.
        quota: The most open evaluations of a client.
        accepts_problems: Whether clients may send problems.
        settings: The judge's settings.
    """

    host: str
    port: int
    home: Path
    root: Path
    access: Access
    quota: int
    accepts_problems: bool
    settings: Settings


def serve(options: ServerOptions) -> None:
    """Serves until a signal arrives.

    Raises:
        UsageError: The address is not free, or a package of the extra is missing.
        HarnessError: The judge or the store is not available, or another server has the home.
        Interrupted: A signal has ended it.
    """
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise UsageError('serve: a package is missing: pip install "kernel-harness[serve]"') from None
    with _alone(options.home), _listening(options.host, options.port) as listening:
        number = asyncio.run(_serve(options, listening))
    if number:
        raise Interrupted(number)


async def _serve(options: ServerOptions, listening: socket.socket) -> int:
    """Serves and returns the number of the signal that ended it; 0 if the pump ended."""
    loop = asyncio.get_running_loop()
    signalled: asyncio.Future[int] = loop.create_future()

    def end(number: int) -> None:
        if not signalled.done():
            signalled.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end, number)
    pump = Pump(options.home, {**options.settings, "home": options.home, "root": options.root})
    left = await pump.open()
    opened: asyncio.Future[None] = loop.create_future()
    pumping = asyncio.ensure_future(pump.run(opened))
    try:
        begun: set[asyncio.Future[Any]] = {opened, signalled, pumping}
        await asyncio.wait(begun, return_when=asyncio.FIRST_COMPLETED)
        if opened.done():
            opened.result()
            if left:
                print(f"{left} evaluations of an earlier server go on", file=sys.stderr)
            await _answer(options, listening, pump, {signalled, pumping})
        if pumping.done():
            pumping.result()
        return signalled.result() if signalled.done() else 0
    finally:
        opened.cancel()
        pumping.cancel()
        await asyncio.gather(pumping, return_exceptions=True)
        await pump.close()


async def _answer(options: ServerOptions, listening: socket.socket, pump: Pump, ends: set[asyncio.Future[Any]]) -> None:
    """Answers requests until one of the futures is done."""
    import uvicorn

    from harness.server.app import Server
    from harness.server.protocol import Protocol

    class Quiet(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Leaves the signals to ``_serve``."""
            yield

    decisive = {key: value for key, value in options.settings.items() if key not in _BESIDE_THE_VERDICT}
    server = Server(
        pump, Problems.of(options.root, options.home, options.accepts_problems), options.access, options.quota,
        json.dumps([decisive, pump.device.partition(":")[0]], sort_keys=True),
    )  # fmt: skip
    config = uvicorn.Config(
        server.app(), http=Protocol, log_level="warning", access_log=False, lifespan="off",
        limit_concurrency=MOST_CONNECTIONS, timeout_graceful_shutdown=END_LIMIT_S, server_header=False,
    )  # fmt: skip
    running = Quiet(config)
    serving = asyncio.ensure_future(running.serve(sockets=[listening]))
    host, port = listening.getsockname()[:2]
    where = f"[{host}]" if ":" in host else host
    print(f"listening on http://{where}:{port}, judging on {pump.device}", file=sys.stderr, flush=True)
    await asyncio.wait([serving, *ends], return_when=asyncio.FIRST_COMPLETED)
    running.should_exit = True
    await serving


@contextlib.contextmanager
def _alone(home: Path) -> Iterator[TextIO]:
    """Holds the home's lock, so that no two servers work on one queue.

    Raises:
        HarnessError: Another server holds it.
    """
    home.mkdir(parents=True, exist_ok=True)
    with (home / "serve.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HarnessError(f"another server works on {home}: end it, or choose another --home") from None
        yield lock


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """Opens the socket to listen on.

    Raises:
        UsageError: The address is not this machine's or is in use.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=MOST_CONNECTIONS)
    except OSError as error:
        raise UsageError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from None
    with listening:
        yield listening
