"""Defines the settings that a user can make once, and reads them from ``pyproject.toml``.

A flag overrides its environment variable, which overrides the table, which overrides the default.
The table is ``[tool.harness]`` of the nearest ``pyproject.toml`` at or above the current folder
that has one. The flags are click options, and click itself applies this order.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from harness.errors import UsageError, suggestion

Function = TypeVar("Function", bound=Callable[..., Any])
SECTION = "tool.harness"


class Positive(click.FloatRange):
    """A finite number above zero; click's own range accepts NaN and infinity."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Converts the value, or raises an error that says what is wrong with it."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


POSITIVE = Positive()


@dataclass(frozen=True)
class Setting:
    """A setting that a user can make.

    Attributes:
        name: Name of the flag (without dashes) and of the key in the table.
        type: Type of the value.
        default: Value if nobody sets it. None means that the program decides; ``help`` says how.
        help: Meaning, for ``--help`` and ``config --show``.
        is_path: Whether a relative value in the table is relative to the table's file.
        flag: Value of the flag if the user gives none; the flag may then occur several times. Empty
            if the flag needs a value.
        metavar: Name of the value in ``--help``; None for the name of its type.
    """

    name: str
    type: click.ParamType[Any]
    default: Any
    help: str
    is_path: bool = False
    flag: str = ""
    metavar: str | None = None

    @property
    def variable(self) -> str:
        """Name of its environment variable."""
        return f"HARNESS_{self.name.upper().replace('-', '_')}"


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting(
            "root",
            click.STRING,
            None,
            "Folder with problems, templates and solutions. [default: the current folder if it has "
            "problems/, else those that came with the harness]",
            is_path=True,
        ),
        Setting(
            "home",
            click.STRING,
            None,
            "Folder of the store and the build cache. [default: kernel-harness in the platform's cache folder]",
            is_path=True,
        ),
        Setting(
            "device",
            click.STRING,
            "auto",
            "auto, cpu (the CUDA emulator), cuda, cuda:N, several GPUs as cuda:0,2, or all.",
        ),
        Setting(
            "timeout",
            POSITIVE,
            60.0,
            "Seconds that a candidate may run on one case; ten times as many with --check.",
            metavar="SECONDS",
        ),
        Setting("build-timeout", POSITIVE, 300.0, "Seconds that a candidate's builds may take.", metavar="SECONDS"),
        Setting(
            "fail-below",
            POSITIVE,
            None,
            "Exit with 1 if a measured speedup over eager is below this. [default: no bound]",
            metavar="RATIO",
        ),
        Setting(
            "rules",
            click.STRING,
            None,
            "What happens when a candidate breaks an integrity rule: NAME=off, NAME=report or NAME=enforce, "
            "separated by commas; repeatable. Without a value: list the rules.",
            flag="list",
        ),
    )
}


@dataclass(frozen=True)
class Table:
    """The ``[tool.harness]`` table.

    Attributes:
        path: Path of its file; None without a table.
        values: Its values by setting.
    """

    path: Path | None = None
    values: dict[str, Any] = field(default_factory=dict)


def option(name: str) -> Callable[[Function], Function]:
    """Returns the click option of a setting."""
    setting = SETTINGS[name]
    several: dict[str, Any] = {"is_flag": False, "flag_value": setting.flag, "multiple": True} if setting.flag else {}
    return click.option(
        f"--{name}",
        type=setting.type,
        default=setting.default,
        metavar=setting.metavar,
        envvar=setting.variable,
        show_default=setting.default is not None,
        show_envvar=True,
        help=setting.help,
        **several,
    )


class SettingsGroup(click.Group):
    """A command with subcommands, which passes the table's values on to each of them."""

    def invoke(self, ctx: click.Context) -> Any:
        """Calls the subcommand that the arguments name."""
        # Click expects a subcommand's defaults under its name.
        ctx.default_map = dict.fromkeys(self.commands, ctx.default_map or {})
        return super().invoke(ctx)


def is_set(name: str) -> bool:
    """Returns whether the user set an argument by flag, environment variable or settings table."""
    context = click.get_current_context()
    above = context.parent or context  # `check` calls `evaluate` with its own arguments
    source = context.get_parameter_source(name) or above.get_parameter_source(name)
    return source is not ParameterSource.DEFAULT


def read_table(start: Path) -> Table:
    """Reads the table that applies to a folder.

    Raises:
        UsageError: The file cannot be read, or the table contains an unknown key or a wrong value.
    """
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if not path.is_file():
            continue
        try:
            whole = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UsageError(f"cannot read {path}: {error}") from None
        tools = whole.get("tool")
        table = tools.get("harness") if isinstance(tools, dict) else None
        if table is None:
            continue
        if not isinstance(table, dict):
            raise UsageError(f"{path}: [{SECTION}] must be a table of settings")
        return Table(path, {name: _checked(path, name, value) for name, value in table.items()})
    return Table()


def default_map(table: Table) -> dict[str, Any]:
    """Returns the table's values as click expects them: by the names of Python arguments."""
    return {name.replace("-", "_"): [value] if SETTINGS[name].flag else value for name, value in table.values.items()}


def _checked(path: Path, name: str, value: Any) -> Any:
    setting = SETTINGS.get(name)
    if setting is None:
        raise UsageError(f"{path}: [{SECTION}] has no setting {name!r}.{suggestion(name, SETTINGS)}")
    wanted = str if setting.type is click.STRING else (int, float)
    if not isinstance(value, wanted) or isinstance(value, bool):
        kind = "a string" if wanted is str else "a number"
        raise UsageError(f"{path}: [{SECTION}] {name} = {value!r}: it must be {kind}")
    try:
        converted = setting.type.convert(value, None, None)
    except click.BadParameter as error:
        raise UsageError(f"{path}: [{SECTION}] {name} = {value!r}: {error.message}") from None
    return str(path.parent / Path(str(value)).expanduser()) if setting.is_path else converted
