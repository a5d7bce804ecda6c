"""``serve``: answers requests for verdicts over HTTP."""

from __future__ import annotations

from pathlib import Path

import click

from harness.async_evaluator import Settings
from harness.errors import EXIT_PASSED
from harness.project.paths import harness_home, project_root
from harness.project.settings import is_set, option
from harness.server import main
from harness.server.access import VARIABLE, check_exposure, read_access


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8077, show_default=True, help="Port; 0 for a free one.")
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help=f"Clients and their tokens, a line NAME TOKEN each. {VARIABLE} is the token of a client `default`. [default: "
    "no token; anyone on this machine may ask]",
)
@click.option(
    "--quota",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    metavar="N",
    help="Open evaluations that a client may have; further ones get status 429.",
)
@click.option(
    "--accept-problems",
    is_flag=True,
    help="Let clients send problems. A problem's code is NOT confined: it runs with your rights.",
)
@option("device")
@click.option("--lanes", type=click.IntRange(min=1), metavar="N", help="Judge this many candidates at once on the CPU.")
@click.option(
    "--executor",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Where to judge: on this machine, or on a Ray cluster.",
)
@click.option("--address", metavar="HOST:PORT", help="The address of the Ray cluster, as for `evaluate`.")
@option("timeout")
@option("build-timeout")
@click.option("--forward-only", is_flag=True, help="Judge outputs only, no gradients.")
@click.option("--no-timing", is_flag=True, help="Judge results only: measure no speed on a GPU.")
@click.option(
    "--require-confinement", is_flag=True, help="Run a candidate only if every confinement layer holds; see `doctor`."
)
@option("root")
@option("home")
def command(
    *,
    host: str,
    port: int,
    token_file: Path | None,
    quota: int,
    accept_problems: bool,
    device: str,
    lanes: int | None,
    executor: str,
    address: str | None,
    timeout: float,
    build_timeout: float,
    forward_only: bool,
    no_timing: bool,
    require_confinement: bool,
    root: str | None,
    home: str | None,
) -> int:
    """Answer requests for verdicts over HTTP, until Ctrl-C.

    The queue is in the store: a killed server loses nothing, and the next one goes on. GET
    /openapi.json describes the requests. The server listens on this machine only, unless clients
    have tokens and candidates are confined.

    \b
    Examples:
      python -m harness serve
      python -m harness serve --device all --token-file tokens.txt
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    access = read_access(token_file)
    check_exposure(host, access, is_confined=require_confinement, accepts_problems=accept_problems)
    settings = Settings(
        device=device,
        lanes=lanes,
        executor=executor,
        address=address,
        timeout_s=timeout if is_set("timeout") else None,
        build_timeout_s=build_timeout if is_set("build_timeout") else None,
        forward_only=forward_only,
        timed=not no_timing,
        require_confinement=require_confinement,
    )
    main.serve(
        main.ServerOptions(
            host=host,
            port=port,
            home=harness_home(home),
            root=project_root(root),
            access=access,
            quota=quota,
            accepts_problems=accept_problems,
            settings=settings,
        )
    )
    return EXIT_PASSED
