"""Runs the command line: ``python -m harness COMMAND``.

A subcommand's module is imported only when the subcommand is called. ``--help`` and ``render``
therefore start without torch.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]

import contextlib
import errno
import importlib
import io
import os
import warnings
from pathlib import Path
from typing import Any

import click

from harness import package
from harness.errors import EXIT_HARNESS, EXIT_INTERRUPTED, HarnessError, UsageError, suggestion
from harness.judge.process.leftovers import children_of, end_descendants
from harness.project.settings import default_map, read_table
from harness.system import interrupts
from harness.system.processes import adopts_orphans
from harness.system.streams import open_descriptors
from harness.system.text import one_line, printable

COMMANDS = {
    "adopt": "Write the solution of RECORD into solutions/, or as a package, with its lineage.",
    "benchmark": "Time solutions against eager and compiled PyTorch.",
    "bundle": "Pack RECORD with its files, to repeat it on another machine.",
    "cache": "Show or empty the build cache.",
    "check": "Check every access of solutions' kernels on the CPU emulator.",
    "compare": "Compare solutions, records or runs by speed.",
    "config": "Show the settings in effect, and where each comes from.",
    "doctor": "Check what this machine has for judging, and say how to get what is missing.",
    "evaluate": "Build, run and judge solutions against their problems.",
    "export": "Write the store's records in a format of another program.",
    "extract": "Turn a language model's raw ANSWER into a solution file.",
    "generate": "Let language models write solutions of PROBLEM, and judge them.",
    "list": "List problems (the default), templates, solutions, runs or records.",
    "mcp": "Offer the harness as tools to an agent, over the Model Context Protocol.",
    "new": "Start a problem or a template from a skeleton that passes.",
    "profile": "Show which kernels SOLUTION launches, and for how long.",
    "prompt": "Print the prompt that `generate` would send for PROBLEM.",
    "render": "Render templates into solution files.",
    "report": "Write a report: one HTML file that opens from disk.",
    "schema": "Print the JSON Schema of the records that other commands print.",
    "scores": "Score answers: correct, pass@k, fast_p and the geometric mean of the speedups.",
    "serve": "Answer requests for verdicts over HTTP, until Ctrl-C.",
    "show": "Show everything about RECORD, with the command that repeats it.",
    "store": "Merge the records of several machines.",
    "tune": "Search a template's parameters for the fastest correct setting.",
    "validate": "Check that a problem runs and can tell right answers from wrong ones.",
}


class _ReaderGone(Exception):
    """The program that reads the output has closed it."""


class LazyGroup(click.Group):
    """A click group that imports ``harness.commands.<name>`` when a command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of all subcommands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns the subcommand's click object, or None if there is no such command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"harness.commands.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command that the arguments name.

        Raises:
            UsageError: There is no such command. The message suggests the nearest name.
        """
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise UsageError(f"no command {args[0]!r}.{suggestion(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parses the arguments; ``--help`` and ``--version`` print here."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except BrokenPipeError:  # see invoke
            raise _ReaderGone from None

    def invoke(self, ctx: click.Context) -> Any:
        """Calls the subcommand that the arguments name."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would exit with 1, which means that a candidate did not pass
            raise _ReaderGone from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the table of subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colours in tables: auto uses them on a terminal, unless NO_COLOR is set.",
)
@click.version_option(package.VERSION, prog_name="harness")
@click.pass_context
def main(context: click.Context, color: str) -> None:
    """Judge generated CUDA kernels: correct in outputs and gradients, and how much faster.

    A flag overrides an environment variable, which overrides [tool.harness] in pyproject.toml.
    """
    for name, choice in (("FORCE_COLOR", "always"), ("NO_COLOR", "never")):
        if color == choice:
            os.environ[name] = "1"
        elif color != "auto":
            os.environ.pop(name, None)
    values = default_map(read_table(Path.cwd()))
    context.default_map = dict.fromkeys(COMMANDS, values)


def run() -> int:
    """Runs the command line and returns the exit code (see ``harness.errors``)."""
    if sys.platform == "win32":
        print("error: the harness does not run on Windows; use WSL (wsl --install) or a container", file=sys.stderr)
        return EXIT_HARNESS
    _open_missing()
    interrupts.install()
    spared = children_of(os.getpid())  # of a shell that became this process
    try:
        code = _run()
        interrupts.ignore_further()  # only the interpreter's shutdown remains
    except KeyboardInterrupt as error:
        code = _interrupted(error)
    if adopts_orphans():  # it has judged: a problem may have started processes
        end_descendants(spared)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        gone = _reader_gone()
        code = code or gone
    except (OSError, ValueError) as error:
        print(f"error: cannot write the output: {error}", file=sys.stderr)
        code = code or EXIT_HARNESS
    return code


def _open_missing() -> None:
    """Opens ``/dev/null`` for each standard stream that the shell closed."""
    open_descriptors()
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for the whole program
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _run() -> int:
    # Judge and worker take turns. Threads that wait by spinning would take the processor from the
    # other.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # torch prints this warning on import if NumPy is missing. The harness does not need NumPy.
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # no message fails on the terminal's encoding
    try:
        result = main.main(prog_name="python -m harness", standalone_mode=False)
    except click.exceptions.Abort as error:
        return _interrupted(error.__cause__)
    except (_ReaderGone, BrokenPipeError):
        return _reader_gone()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except HarnessError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return error.exit_code
    except OSError as error:  # such as a name too long for the system, a folder without permission, a full disk
        where = f": {one_line(os.fsdecode(error.filename))}" if isinstance(error.filename, str | bytes) else ""
        if error.errno == errno.ENOSPC:
            where += "; free some space, or set TMPDIR or HARNESS_HOME to a folder on another disk"
        print(f"error: {error.strerror or error}{where}", file=sys.stderr)
        return EXIT_HARNESS
    return result if isinstance(result, int) else 0


def _reader_gone() -> int:
    """Sends further output to ``/dev/null`` and returns the exit code for a closed output."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_INTERRUPTED


def _interrupted(error: BaseException | None) -> int:
    interrupts.ignore_further()
    print(f"interrupted{f' by {error}' if str(error or '') else ''}", file=sys.stderr)
    return error.exit_code if isinstance(error, interrupts.Interrupted) else EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(run())
