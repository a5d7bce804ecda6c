"""``mcp``: offers the harness's commands as tools to an agent, over the Model Context Protocol."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import click

from harness.device.devices import guess, several
from harness.errors import EXIT_PASSED, UsageError
from harness.project.paths import harness_home, project_root
from harness.project.settings import option
from harness.system.interrupts import SIGNALS, Interrupted


@contextlib.contextmanager
def ending_input() -> Iterator[None]:
    """Ends standard input at a signal. Nothing else ends the thread that reads it."""
    source, (reading, writing), nothing = os.dup(0), os.pipe(), os.open(os.devnull, os.O_WRONLY)
    os.dup2(reading, 0)
    os.close(reading)
    received: list[int] = []

    def end() -> None:
        os.dup2(nothing, writing)  # closes the writing end, and keeps its number from others

    def pump() -> None:
        with contextlib.suppress(OSError):  # the server reads no more
            while data := os.read(source, 1 << 16):
                while data:
                    data = data[os.write(writing, data) :]
        end()

    def on_signal(number: int, _: FrameType | None) -> None:
        received.append(number)
        end()

    threading.Thread(target=pump, daemon=True).start()
    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, on_signal) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        raise Interrupted(received[0])


@click.command("mcp")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="Speak HTTP on this port of the loopback address, path /mcp. [default: standard input and output]",
)
@option("device")
@option("root")
@option("home")
def command(*, port: int | None, device: str, root: str | None, home: str | None) -> int:
    """Offer the harness as tools to an agent, over the Model Context Protocol.

    The tools are evaluate, check, validate, show, render and profile. An agent can name any file
    that you can read, and a problem's code is not confined.

    \b
    Examples:
      python -m harness mcp --device cpu
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    for name in several(device, 1):
        guess(name)  # refuses what names no device
    try:
        from harness.server.mcp_tools import Tools
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        raise UsageError('mcp: a package is missing: pip install "kernel-harness[mcp]"') from None
    server = Tools(device, harness_home(home), project_root(root)).server()
    if port is None:
        with ending_input():
            server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=port)
    return EXIT_PASSED
