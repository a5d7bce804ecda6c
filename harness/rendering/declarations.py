"""Reads ``params.toml`` and rejects a malformed or contradictory one."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from harness.errors import TemplateError, suggestion
from harness.records.kernels import KernelLimits
from harness.rendering.constraints import Constraint
from harness.rendering.parameters import Declaration, Parameter, TemplateVariant
from harness.rendering.values import TYPE_NAMES, Value, has_type

_NAME = re.compile(r"[a-z0-9_]+")
_PARAMETER_NAME = re.compile(r"[a-z][a-z0-9_]*")
_PARAMETER_KEYS = frozenset({"choices", "range", "multiple_of", "when"})
# Names that already have a meaning in a template or in a variant's table.
_RESERVED = frozenset(
    {"default", "on_demand", "range", "loop", "self", "super", "caller", "varargs", "kwargs", "true", "false"}
)


def checked_name(name: str, what: str) -> str:
    """Returns the name if it can safely be the stem of a file.

    Raises:
        TemplateError: The name has other characters than a-z, 0-9 and ``_``.
    """
    if _NAME.fullmatch(name) is None:
        raise TemplateError(f"{what} {name!r} is not a valid name: use lower-case letters, digits and underscores.")
    return name


def read_declaration(path: Path) -> Declaration:
    """Reads and checks a ``params.toml``. The template has the name of its folder.

    Raises:
        TemplateError: The file is missing or malformed, or contradicts itself.
    """
    template = checked_name(path.parent.name, "template")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateError(f"cannot read {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise TemplateError(f"{path} is not TOML: {error}") from None
    _check_keys(table, {"problem", "parameters", "variants"}, {"constraints", "limits"}, str(path))
    declaration = Declaration(
        template=template,
        path=path,
        problem=checked_name(_text(table["problem"], f"{path}: problem"), f"{path}: problem"),
        parameters={
            name: _read_parameter(name, entry, path) for name, entry in _table(table["parameters"], path).items()
        },
        constraints=_read_constraints(table.get("constraints", []), path),
        limits=_read_limits(table.get("limits", {}), path),
        variants={
            checked_name(name, f"{path}: variant"): _read_variant(name, entry, path)
            for name, entry in _table(table["variants"], path).items()
        },
    )
    _check_declaration(declaration)
    return declaration


def _check_declaration(declaration: Declaration) -> None:
    """Raises TemplateError unless a user could choose the defaults and every variant."""
    where = declaration.path
    if not declaration.variants:
        raise TemplateError(f"{where} declares no variant; add a [variants.NAME] table.")
    default_names = [variant.name for variant in declaration.variants.values() if variant.default]
    if len(default_names) > 1:
        raise TemplateError(f"{where} marks several variants as default: {', '.join(default_names)}. Keep one.")
    for constraint in declaration.constraints:
        if not constraint.names(str(where)):
            raise TemplateError(f"{where}: constraint {constraint.rule!r} names no parameter.")
    defaults = _resolve_named(declaration, {}, "the defaults")
    for parameter in declaration.parameters.values():
        if parameter.when is not None:
            parameter.when.holds(defaults, f"{where}: parameter {parameter.name!r}: when")
    declaration.kernel_limits(defaults)
    for variant in declaration.variants.values():
        _resolve_named(declaration, variant.settings, f"variant {variant.name!r}")


def _resolve_named(declaration: Declaration, settings: Mapping[str, Value], what: str) -> dict[str, Value]:
    try:
        return declaration.resolve(settings)
    except TemplateError as error:
        raise TemplateError(f"{declaration.path}: {what}: {error}") from None


def _read_parameter(name: str, entry: object, path: Path) -> Parameter:
    where = f"{path}: parameter {name!r}"
    if _PARAMETER_NAME.fullmatch(name) is None:
        raise TemplateError(
            f"{where} is not a valid name: use a lower-case letter, then letters, digits and underscores."
        )
    if name in _RESERVED:
        raise TemplateError(f"{where} is a reserved name; the reserved names are {', '.join(sorted(_RESERVED))}.")
    table = _table(entry, path, name)
    _check_keys(table, {"type", "default", "meaning"}, _PARAMETER_KEYS, where)
    type_name = table["type"]
    if type_name not in TYPE_NAMES:
        raise TemplateError(f"{where} has type {type_name!r}; allowed: {', '.join(TYPE_NAMES)}.")
    if "choices" in table and ("range" in table or "multiple_of" in table):
        raise TemplateError(f"{where} has both choices and a range (or multiple_of); keep one of them.")
    if type_name in ("int", "float", "str") and "choices" not in table and "range" not in table:
        raise TemplateError(f"{where} has neither choices nor a range; declare which values are allowed.")
    low, high = _read_range(table, type_name, where)
    parameter = Parameter(
        name=name,
        type=type_name,
        default=_default(table["default"]),
        meaning=_text(table["meaning"], f"{where}: meaning"),
        choices=_read_choices(table, type_name, where),
        low=low,
        high=high,
        multiple_of=_read_multiple_of(table, type_name, where),
        when=_read_when(table, name, where),
    )
    if not parameter.permits(parameter.default):
        raise TemplateError(f"{where}: the default {table['default']!r} is not allowed: {parameter.allowed()}.")
    return parameter


def _default(value: object) -> Value:
    """Returns the declared value, or its repr if it is not a ``Value``.

    ``permits`` of every type then rejects the repr.
    """
    return value if isinstance(value, bool | int | float | str) else repr(value)


def _read_choices(table: Mapping[str, object], type_name: str, where: str) -> tuple[Value, ...] | None:
    if "choices" not in table:
        return None
    choices = table["choices"]
    if not isinstance(choices, list) or not choices:
        raise TemplateError(f"{where}: choices must be a list of at least one value.")
    for choice in choices:
        if not has_type(choice, type_name):
            raise TemplateError(f"{where}: the choice {choice!r} is not of type {type_name}.")
    return tuple(choices)


def _read_range(
    table: Mapping[str, object], type_name: str, where: str
) -> tuple[int | float, int | float] | tuple[None, None]:
    if "range" not in table:
        return None, None
    match table["range"]:
        case [int() | float() as low, int() | float() as high] if (
            type_name in ("int", "float") and has_type(low, type_name) and has_type(high, type_name) and low <= high
        ):
            return low, high
    raise TemplateError(f"{where}: range must be [low, high], with values of the parameter's type, int or float.")


def _read_multiple_of(table: Mapping[str, object], type_name: str, where: str) -> int | None:
    if "multiple_of" not in table:
        return None
    divisor = table["multiple_of"]
    if type_name != "int" or not isinstance(divisor, int) or isinstance(divisor, bool) or divisor < 1:
        raise TemplateError(f"{where}: multiple_of must be a positive int, and needs a parameter of type int.")
    return divisor


def _read_when(table: Mapping[str, object], name: str, where: str) -> Constraint | None:
    if "when" not in table:
        return None
    rule = Constraint(_text(table["when"], f"{where}: when"), f"{name} counts only here")
    names = rule.names(f"{where}: when")
    if not names or name in names:
        raise TemplateError(f"{where}: when must be a rule about other parameters, such as \"mode == 'tiled'\".")
    return rule


def _read_constraints(entries: object, path: Path) -> tuple[Constraint, ...]:
    if not isinstance(entries, list):
        raise TemplateError(f"{path}: write constraints as [[constraints]] tables.")
    constraints = []
    for entry in entries:
        table = _table(entry, path, "constraints")
        _check_keys(table, {"rule", "message"}, set(), f"{path}: a constraint")
        rule, message = (_text(table[key], f"{path}: constraint {key}") for key in ("rule", "message"))
        constraints.append(Constraint(rule, message))
    return tuple(constraints)


def _read_limits(entry: object, path: Path) -> dict[str, str]:
    table = _table(entry, path, "limits")
    where = f"{path}: limits"
    _check_keys(table, set(), {field.name for field in fields(KernelLimits)}, where)
    for name, value in table.items():
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise TemplateError(f"{where}: {name} must be a number, or an expression of parameters in quotes.")
    return {name: str(value) for name, value in table.items()}


def _read_variant(name: str, entry: object, path: Path) -> TemplateVariant:
    settings = dict(_table(entry, path, name))
    flags = {key: settings.pop(key, False) for key in ("default", "on_demand")}
    for key, flag in flags.items():
        if not isinstance(flag, bool):
            raise TemplateError(f"{path}: variant {name!r}: {key} must be true or false.")
    if all(flags.values()):
        raise TemplateError(f"{path}: variant {name!r} is the default, so it cannot be on_demand; remove one of them.")
    values = {key: _default(value) for key, value in settings.items()}
    return TemplateVariant(name, values, default=bool(flags["default"]), on_demand=bool(flags["on_demand"]))


def _check_keys(
    table: Mapping[str, object], required: set[str], optional: set[str] | frozenset[str], where: str
) -> None:
    missing = sorted(required - table.keys())
    if missing:
        raise TemplateError(f"{where} lacks {', '.join(missing)}.")
    for key in table:
        if key not in required | optional:
            raise TemplateError(f"{where} has an unknown key {key!r}.{suggestion(key, required | optional)}")


def _table(value: object, path: Path, name: str = "") -> dict[str, object]:
    if not isinstance(value, dict):
        raise TemplateError(f"{path}: {name or 'parameters and variants'} must be a table, not {value!r}.")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TemplateError(f"{where} must be a text that is not empty, not {value!r}.")
    return value
