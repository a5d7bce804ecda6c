"""Writes the reference page of the command line: ``python .ci/cli_reference.py > docs/cli.md``.

The page is made from click's own commands and options, so it says what ``--help`` says.
"""

from __future__ import annotations

import inspect
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

import click

from harness.__main__ import COMMANDS, main

HEAD = """\
# Command-line reference

Look up a command or an option. Each section opens with examples.
`python .ci/cli_reference.py > docs/cli.md` writes this page.

A flag overrides its environment variable, which overrides `[tool.harness]` in `pyproject.toml`,
which overrides the default. `python -m harness config --show` prints the settings in effect, and
where each comes from.

## Exit codes

| code | meaning |
|---|---|
| 0 | every candidate passed |
| 1 | a candidate did not pass, a replay differed, a bound (`--fail-below`, `--fail-on`) was missed, \
a rendered file is stale (`render --check`), `store merge` found conflicts, \
or `--fail-fast` or `--max-hours` left candidates out |
| 2 | wrong usage, a problem that does not run, or a file that cannot be read |
| 3 | the harness or the machine failed |
| 130 | Ctrl-C, or the reader of the output has gone; SIGTERM ends with 143, SIGHUP with 129 |

If several apply, the order is 130, 2, 3, 1. A bad candidate or problem does not stop the others.
"""
#: An option that this many commands have, described in the same words, is described once for all of them.
SHARED_BY = 2
SEE_SHARED = "see [shared options](#shared-options)"

Row = tuple[str, str]


def page() -> str:
    """Returns the reference page as Markdown."""
    commands = {name: (command, _rows(command)) for name, command in _commands()}
    uses = Counter(row for _, rows in commands.values() for row in rows)
    most_used = {row[0]: row for row, _ in reversed(uses.most_common())}  # one meaning for each name
    shared = sorted(row for row in most_used.values() if uses[row] >= SHARED_BY)
    parts = [HEAD]
    for name, (command, rows) in commands.items():
        own = [row for row in rows if row not in shared]
        flags = ", ".join(f"`{names.split()[0].strip('`,')}`" for names, meaning in rows if (names, meaning) in shared)
        also = [(flags, SEE_SHARED)] if flags else []
        parts.append(_help(name, command))
        if own:
            parts.append(_table([*own, *also]))
        elif flags:
            parts.append(_wrapped(f"Options: {flags} ({SEE_SHARED}).") + "\n")
    return "\n".join([*parts, "## Shared options\n", _table(shared)])


def _commands() -> Iterator[tuple[str, click.Command]]:
    """Yields every command with its name, and a group's commands in the group's place."""
    context = click.Context(main)
    for name in sorted(COMMANDS):
        command = main.get_command(context, name)
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", command.commands[inner]) for inner in sorted(command.commands))
        elif command is not None:
            yield name, command


def _rows(command: click.Command) -> list[Row]:
    """Names and meaning of each option, as ``--help`` has them."""
    context = click.Context(command)
    records = [option.get_help_record(context) for option in command.params if isinstance(option, click.Option)]
    return [(f"`{record[0]}`", " ".join(record[1].split())) for record in records if record is not None]


def _help(name: str, command: click.Command) -> str:
    """A command with its arguments as heading, its examples as one block of code, then its help text."""
    arguments = [piece for piece in command.collect_usage_pieces(click.Context(command)) if piece != "[OPTIONS]"]
    examples: list[str] = []
    text: list[tuple[bool, list[str]]] = []  # whether it keeps its lines, and the lines
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        is_block = paragraph.startswith("\b\n")
        lines = paragraph.removeprefix("\b\n").splitlines()
        if is_block and lines[0] == "Examples:":
            examples += lines[1:]
        elif text and not is_block and not text[-1][0]:
            text[-1][1].extend(lines)
        else:
            text.append((is_block, lines))
    heading = f"## {' '.join([name, *arguments])}".replace("[", "\\[")
    parts = [_code(lines) if is_block else _wrapped(" ".join(lines)) for is_block, lines in text]
    return "\n".join([heading, _code(examples), "\n\n".join(parts)]) + "\n"


def _code(lines: Sequence[str]) -> str:
    return textwrap.indent(textwrap.dedent("\n".join(lines)), "    ")


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def _table(rows: Sequence[Row]) -> str:
    cells = [tuple(cell.replace("|", "\\|").replace("<", "&lt;") for cell in row) for row in rows]
    return "\n".join(["| option | meaning |", "|---|---|", *(f"| {left} | {right} |" for left, right in cells), ""])


if __name__ == "__main__":
    print(page(), end="")
