"""The command line: ``python -m harness COMMAND``.

Subcommands are imported only when they are called, so that ``--help`` and ``render`` start without torch.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
import warnings

import click

from harness import __version__
from harness.errors import EXIT_INTERRUPTED, HarnessError

COMMANDS = {
    "doctor": "Check what this machine has for judging, and say how to get what is missing.",
    "evaluate": "Build, run and judge solutions against their problems.",
    "render": "Render templates into solution files.",
}


class LazyGroup(click.Group):
    """A click group that imports ``harness.commands.<name>`` when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all subcommands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand's click object, or None where there is no such command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"harness.commands.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of subcommands without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="harness")
def main() -> None:
    """Judge generated CUDA kernels: correct in outputs and gradients, and how much faster."""


def run() -> int:
    """Run the command line and return the exit code (see ``harness.errors``)."""
    # torch prints this at import where NumPy is not installed; nothing here needs NumPy.
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # no message is lost to a terminal's encoding
    try:
        result = main.main(prog_name="python -m harness", standalone_mode=False)
    except click.exceptions.Abort:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # whoever read the output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_INTERRUPTED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(run())
