"""``config``: shows the settings in effect and where each one comes from."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import click

from harness.errors import EXIT_PASSED, UsageError
from harness.project.paths import harness_home, project_root
from harness.project.settings import SECTION, SETTINGS, Setting, Table, read_table


class Shown(NamedTuple):
    """A setting in effect: its value and its source."""

    value: Any
    source: str


@click.command("config")
@click.option("--show", is_flag=True, help="Print every setting with its value and the source of the value.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def command(show: bool, as_json: bool) -> int:
    """Show the settings in effect, and where each comes from.

    The command reads the configuration of the current folder.

    A flag overrides an environment variable. A variable overrides [tool.harness] in the nearest
    pyproject.toml, in the current folder or above. That table overrides the default. For example,
    in pyproject.toml:

    \b
      [tool.harness]
      device = "cuda:0"
      timeout = 30
      root = "kernels"          # relative to this file

    \b
    Examples:
      python -m harness config --show
      HARNESS_DEVICE=cpu python -m harness config --show --json
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    if not show:
        raise UsageError("give --show to print the settings: `python -m harness config --show`")
    table = read_table(Path.cwd())
    found = {name: _shown(setting, table) for name, setting in SETTINGS.items()}
    if as_json:
        print(json.dumps({name: shown._asdict() for name, shown in found.items()}))
        return EXIT_PASSED
    width = max(len(str(shown.value)) for shown in found.values())
    for name, shown in found.items():
        print(f"{name:13}  {shown.value!s:{width}}  {shown.source}")
    return EXIT_PASSED


def _shown(setting: Setting, table: Table) -> Shown:
    variable = os.environ.get(setting.variable)
    if variable:
        try:
            return Shown(setting.type.convert(variable, None, None), f"environment variable {setting.variable}")
        except click.BadParameter as error:
            raise UsageError(f"{setting.variable}={variable!r}: {error.message}") from None
    if setting.name in table.values:
        return Shown(table.values[setting.name], f"[{SECTION}] in {table.path}")
    if setting.name == "root":
        return Shown(str(project_root()), "default")
    if setting.name == "home":
        return Shown(str(harness_home()), "default")
    return Shown(setting.default, "default")
