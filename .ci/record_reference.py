"""Writes the reference page of the record: ``python .ci/record_reference.py > docs/record.md``.

The page is made from the JSON Schema that ``python -m harness schema`` prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from harness.records.published_schema import record_schema
from harness.records.record import RECORD_VERSION

Schema = dict[str, Any]
HEAD = f"""\
# Record reference

Look up a field of a record: its type, its unit and what it means.
`python .ci/record_reference.py > docs/record.md` writes this page.

`evaluate --json`, `show --json` and `export --jsonl` print a record as one line of JSON.
[record.schema.json](record.schema.json) is its JSON Schema (draft 2020-12), which
`python -m harness schema` prints. This is layout {RECORD_VERSION}, the number in the field `version`:

- The number rises if a field changes its meaning or its type, or goes away.
- It does not rise if a field is added. Ignore keys that you do not know. If a record of an older
  version lacks a field, assume the field's `default` in the schema.
- A harness reads records of its own layout and of older ones.

Names that end in `_s` are seconds, and names that end in `_ms` are milliseconds. Errors are
relative and have no unit. `null` means unknown or not measured, never zero. An infinite number is
the string `"inf"` or `"-inf"`, and one that is not a number is `"nan"`. A field with the words
*if any* may be missing.

Check a file of records with the package `jsonschema`:

```python
import json, pathlib, sys
import jsonschema

schema = json.loads(pathlib.Path("docs/record.schema.json").read_text())
validator = jsonschema.Draft202012Validator(schema)
for line in sys.stdin:
    validator.validate(json.loads(line))
```
"""
#: Types that a reader need not look up.
_WORDS = {"Number": "number", "Integer": "integer"}


def page() -> str:
    """Returns the reference page as Markdown."""
    definitions: dict[str, Schema] = record_schema()["$defs"]
    parts = [HEAD]
    for name, schema in definitions.items():
        if name in _WORDS:
            continue
        parts += [f"## {name}\n", _linked(_wrapped(schema["description"])) + "\n"]
        if "enum" in schema:
            parts.append(_wrapped("One of " + ", ".join(f"`{value}`" for value in schema["enum"]) + ".") + "\n")
        else:
            parts.append("\n".join(_table(schema)) + "\n")
    return "\n".join(parts)


def _table(schema: Schema) -> Iterator[str]:
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    for name, one in schema["properties"].items():
        always = name in schema["required"] or "default" in one  # a harness prints every field that has a default
        words = f"{_type(one)}{'' if always else ' *if any*'}"
        yield f"| `{name}` | {words} | {_linked(one['description'])} |"


def _type(schema: Schema) -> str:
    """Returns a type in words, with links to the types that the page describes."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _WORDS.get(name) or f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if isinstance(schema.get("type"), list):
        return " or ".join(schema["type"])
    if schema.get("type") == "array":
        items = schema.get("prefixItems")
        return f"list of {len(items)}: {', '.join(map(_type, items))}" if items else f"list of {_type(schema['items'])}"
    if schema.get("type") == "object":
        inner = schema["additionalProperties"]
        return f"object of {_type(inner)}" if inner else "object"
    return str(schema.get("type", "any"))


def _linked(text: str) -> str:
    """Turns the names of pages into links."""
    return re.sub(r"docs/([\w-]+\.md)", r"[\1](\1)", text)


def _wrapped(text: str, width: int = 100) -> str:
    """Wraps prose, never within code."""
    lines, line = [], ""
    for word in re.findall(r"(?:`[^`]*`|\S)+", text):
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "\n".join([*lines, line])


if __name__ == "__main__":
    print(page(), end="")
