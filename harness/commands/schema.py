"""``schema``: prints the JSON Schema of a record."""

from __future__ import annotations

import json

import click

from harness.errors import EXIT_PASSED
from harness.records.published_schema import record_schema


@click.command("schema")
def command() -> int:
    """Print the JSON Schema of the records that other commands print.

    It describes a line of `evaluate --json`, `show --json` and `export --jsonl`.

    \b
    Examples:
      python -m harness schema > record.schema.json
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    print(json.dumps(record_schema(), indent=2))
    return EXIT_PASSED
