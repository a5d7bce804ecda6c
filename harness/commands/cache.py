"""``cache``: shows and empties the build cache."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from harness.compilation.housekeeping import CacheUsage, clear, measure
from harness.errors import EXIT_PASSED
from harness.project.paths import REFERENCES, harness_home
from harness.project.settings import SettingsGroup, option
from harness.system.memory import size_text

_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
_ENTRIES = {"builds": "solutions", "emulator": "runtimes", "logs": "logs", REFERENCES: "kinds"}


@click.group("cache", cls=SettingsGroup)
def command() -> None:
    """Show or empty the build cache.

    \b
    Examples:
      python -m harness cache info
      python -m harness cache clear
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines


@command.command("info")
@option("home")
@_AS_JSON
def info_command(home: str | None, as_json: bool) -> int:
    """Show where the cache is and what it holds.

    \b
    Examples:
      python -m harness cache info
      python -m harness cache info --json
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    folder = harness_home(home)
    _print(folder, measure(folder), as_json, removed=False)
    return EXIT_PASSED


@command.command("clear")
@option("home")
@_AS_JSON
def clear_command(home: str | None, as_json: bool) -> int:
    """Remove builds, logs, the emulator's runtime and compiled references.

    The harness builds them again when it needs them. Records stay.

    \b
    Examples:
      python -m harness cache clear
      python -m harness cache clear --home /tmp/harness-home --json
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    folder = harness_home(home)
    _print(folder, clear(folder), as_json, removed=True)
    return EXIT_PASSED


def _print(home: Path, parts: list[CacheUsage], as_json: bool, removed: bool) -> None:
    if as_json:
        found = {part.name: {key: value for key, value in asdict(part).items() if key != "name"} for part in parts}
        print(json.dumps({"home": str(home), "removed": removed, **found}))
        return
    print(f"removed from {home}:" if removed else str(home))
    for part in parts:
        entries = f"{part.entries} {_ENTRIES[part.name]}"
        bound = "" if part.max_bytes is None or removed else f" of {size_text(part.max_bytes)}"
        print(f"{part.name:10}  {entries:14}  {part.libraries:4} libraries  {size_text(part.bytes)}{bound}")
        for left in part.kept:
            print(f"{'':10}  left: {left}")
