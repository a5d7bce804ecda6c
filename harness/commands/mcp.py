"""``mcp``: offers the harness's commands as tools to an agent, over the Model Context Protocol."""

from __future__ import annotations

import click

from harness.errors import EXIT_PASSED, UsageError
from harness.project.paths import harness_home, project_root
from harness.project.settings import option


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
    try:
        from harness.server.mcp_tools import Tools
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        raise UsageError('mcp: a package is missing: pip install "kernel-harness[mcp]"') from None
    server = Tools(device, harness_home(home), project_root(root)).server()
    if port is None:
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=port)
    return EXIT_PASSED
