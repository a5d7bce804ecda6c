"""Makes the JSON Schema of what ``evaluate --json`` prints, from the types and docstrings of a record.

The schema has the version of the record's layout. It describes every field with the text of its
docstring, so programs in other languages can check records and generate types from it.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import types
import typing
from typing import Any

from harness.records.json_values import NON_FINITE, plain
from harness.records.record import RECORD_VERSION, EvaluationRecord

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: Keys that ``evaluate --json`` adds to a record, and all keys of an object without a verdict.
_ADDED: Schema = {
    "stored": {"type": "boolean", "description": "Whether the store answered, so that nothing ran."},
    "tag": {"type": "string", "description": "The `tag` of the line on stdin that asked."},
}
_UNJUDGED: Schema = {
    "title": "Unjudged",
    "description": "What `evaluate --json` prints for a request without a verdict. The store keeps no such object.",
    "type": "object",
    "properties": {
        "status": {"type": "null", "description": "Always null."},
        "error": {"type": "string", "description": "Why there is no verdict."},
        "tag": {"type": ["string", "null"], "description": "The `tag` of the line on stdin that asked."},
        "problem": {"type": ["string", "null"], "description": "Name or file of the problem, if it is known."},
        "case": {"type": ["string", "null"], "description": "Name of the case, if it is known."},
        "solution": {"type": ["string", "null"], "description": "The solution, or `line 3` for a bad line."},
    },
    "required": ["status", "error"],
}
_NUMBER: Schema = {
    "description": "A number, or a string for one that JSON cannot represent.",
    "anyOf": [{"type": "number"}, {"enum": list(NON_FINITE)}],
}
_INTEGER: Schema = {"type": "integer", "minimum": -(1 << 63), "maximum": (1 << 63) - 1}
_PLAIN: dict[Any, Schema] = {str: {"type": "string"}, bool: {"type": "boolean"}, types.NoneType: {"type": "null"}}


def record_schema() -> Schema:
    """Returns the JSON Schema (draft 2020-12) of one line of ``evaluate --json``.

    A line is a record or, without a verdict, an object with ``"status": null``. Every object may
    have further keys: a later harness of the same layout may add some.
    """
    definitions: dict[str, Schema] = {}
    record = _reference(EvaluationRecord, definitions)
    fields = definitions[EvaluationRecord.__name__]
    fields["properties"]["version"] = {**fields["properties"]["version"], "const": RECORD_VERSION}
    fields["properties"].update(_ADDED)
    fields["required"].append("version")
    return {
        "$schema": DIALECT,
        "$id": f"urn:kernel-harness:record:{RECORD_VERSION}",
        "title": f"kernel-harness record, layout {RECORD_VERSION}",
        "description": "One line of `python -m harness evaluate --json`.",
        "anyOf": [record, {"$ref": "#/$defs/Unjudged"}],
        "$defs": {**definitions, "Unjudged": _UNJUDGED, "Number": _NUMBER, "Integer": _INTEGER},
    }


def _schema(hint: Any, definitions: dict[str, Schema]) -> Schema:
    """Returns the schema of a type, by the rules of ``json_values.converted``.

    Args:
        hint: The type that a field declares.
        definitions: Schemas of objects by name; those that the type needs are added.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return {}
    if origin is typing.Annotated:
        return _schema(arguments[1], definitions)
    if origin is types.UnionType:
        kind = float if float in arguments else arguments[0]
        rest = [_PLAIN[types.NoneType]] if types.NoneType in arguments else []
        return {"anyOf": [_schema(kind, definitions), *rest]} if rest else _schema(kind, definitions)
    if dataclasses.is_dataclass(hint) or typing.is_typeddict(hint) or isinstance(hint, enum.EnumType):
        return _reference(hint, definitions)
    if origin is list or (origin is tuple and arguments[1:] == (Ellipsis,)):
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    if origin is tuple:
        items = [_schema(one, definitions) for one in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}
    if hint in (float, int):
        return {"$ref": "#/$defs/Number" if hint is float else "#/$defs/Integer"}
    return dict(_PLAIN[hint])


def _reference(hint: Any, definitions: dict[str, Schema]) -> Schema:
    """Returns a reference to the schema of a class, and adds that schema if it is not there."""
    name = hint.__name__
    if name not in definitions:
        definitions[name] = {}  # keeps its place in the order of the record's fields
        definitions[name] = _values(hint) if isinstance(hint, enum.EnumType) else _object(hint, definitions)
    return {"$ref": f"#/$defs/{name}"}


def _values(hint: enum.EnumType) -> Schema:
    members: list[Any] = list(hint.__members__.values())
    return {
        "title": hint.__name__,
        "description": _text(inspect.cleandoc(hint.__doc__ or "")),
        "type": "string",
        "enum": [str(member) for member in members],
    }


def _object(hint: Any, definitions: dict[str, Schema]) -> Schema:
    hints = typing.get_type_hints(hint, include_extras=True)
    described = _attributes(hint)
    defaults: dict[str, Schema] = {}
    if typing.is_typeddict(hint):
        names, required = list(hints), [name for name in hints if name in hint.__required_keys__]
    else:
        names = [one.name for one in dataclasses.fields(hint)]
        for one in dataclasses.fields(hint):
            if one.default is not dataclasses.MISSING:
                defaults[one.name] = {"default": plain(one.default)}
            elif one.default_factory is not dataclasses.MISSING:
                defaults[one.name] = {"default": plain(one.default_factory())}
        required = [name for name in names if name not in defaults]
    properties = {}
    for name in names:
        described_as = {"description": described[name]} if name in described else {}
        properties[name] = {**_schema(hints[name], definitions), **described_as, **defaults.get(name, {})}
    return {
        "title": hint.__name__,
        "description": _text(inspect.cleandoc(hint.__doc__ or "").partition("\n\nAttributes:")[0]),
        "type": "object",
        "properties": properties,
        "required": required,
    }


def _attributes(hint: type) -> dict[str, str]:
    """Returns the texts of a class's attributes, its bases' included, from ``Attributes:`` in docstrings."""
    found: dict[str, str] = {}
    for base in (*getattr(hint, "__orig_bases__", ()), hint):
        section = inspect.cleandoc(getattr(base, "__doc__", None) or "").partition("\nAttributes:\n")[2]
        found.update(re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE))
    return {name: _text(text) for name, text in found.items()}


def _text(docstring: str) -> str:
    """Returns a docstring's text in one line, with code as in Markdown and None as in JSON."""
    return re.sub(r"\bNone\b", "null", " ".join(docstring.split())).replace("``", "`")
