"""The published JSON Schema of records: it accepts what the harness prints, and refuses what its reader refuses."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.errors import UsageError
from harness.executors.scheduler import Fault
from harness.records.published_schema import record_schema
from harness.records.record import RECORD_VERSION, EvaluationRecord
from tests.records.test_reading import FULL, GOOD, PLACES, VALUES, Place

Harness = Callable[..., Any]
REPOSITORY = Path(__file__).resolve().parents[2]
SCHEMA = record_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
#: A validator for each field, since one for the whole record takes long.
FIELDS = {
    field: VALIDATOR.evolve(schema={"$defs": SCHEMA["$defs"], **one})
    for field, one in SCHEMA["$defs"]["EvaluationRecord"]["properties"].items()
}
#: Bounds of these fields are no types: ``check_samples`` and ``check_policy`` have them.
BOUNDED = {"samples_ms", "median_ms", "low_ms", "high_ms", "timeout_s", "build_timeout_s", "trials"}
PROBLEM = """\
import torch

n = 6
CASES = {"full": {}, "odd": {"n": 5}}


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x)


def get_inputs():
    return [torch.randn(n, 3)]


def get_init_inputs():
    return []
"""
SOLUTION = PROBLEM.partition("class ")[2].partition("\n\n\n")[0].replace("Model(", "class ModelNew(")
SOLUTIONS = {
    "PASSED": f"import torch\n\n\n{SOLUTION}\n",
    "WRONG_OUTPUT": f"import torch\n\n\n{SOLUTION} + 0.25\n",
    "LOAD_ERROR": "import torch\n",
}


def changed(place: Place, value: Any) -> dict[str, Any]:
    """The full record with another value in one place."""
    record = copy.deepcopy(FULL)
    inner: Any = record
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return record


def is_read(record: dict[str, Any]) -> bool:
    """Whether the harness reads a record."""
    try:
        EvaluationRecord.from_json(json.dumps(record))
    except ValueError:
        return False
    return True


def test_the_schema_is_one_and_has_the_records_version() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$id"].endswith(f":{RECORD_VERSION}")
    assert SCHEMA["$defs"]["EvaluationRecord"]["properties"]["version"]["const"] == RECORD_VERSION
    assert not VALIDATOR.is_valid({**FULL, "version": RECORD_VERSION + 1})


def test_every_field_is_described() -> None:
    objects = {name: one for name, one in SCHEMA["$defs"].items() if "properties" in one}
    assert {"EvaluationRecord", "TensorReport", "Finding", "Latency", "Policy", "Unjudged"} <= objects.keys()
    fields = [(name, field, one) for name, found in objects.items() for field, one in found["properties"].items()]
    assert [(name, field) for name, field, one in fields if not one.get("description")] == []


def test_a_record_with_every_field_is_valid() -> None:
    VALIDATOR.validate(json.loads(GOOD.to_json(stored=True, tag="one")))
    assert not VALIDATOR.is_valid({**FULL, "stored": "yes"})


@pytest.mark.parametrize("name", [name for name in VALUES if name not in ("NaN", "infinity")])  # these are not JSON
def test_it_refuses_what_the_reader_refuses(name: str) -> None:
    differing = []
    for place in PLACES:
        if BOUNDED & set(map(str, place)) or place == ("version",):  # the reader knows older versions
            continue
        record = changed(place, VALUES[name])
        is_valid = FIELDS[place[0]].is_valid(record[str(place[0])])
        if is_valid != is_read(record) and not (is_valid and name == "a huge number"):  # is a number elsewhere
            differing.append((place, is_valid))
    assert differing == []


def test_what_the_commands_print_is_valid(harness: Harness, own_home: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text(PROBLEM)
    for name, text in SOLUTIONS.items():
        (tmp_path / f"{name}.py").write_text(text)
    files = [f"{name}.py" for name in SOLUTIONS]
    options = ("--problem", "tiny.py", "--device", "cpu", "--case", "odd")
    judged = harness("evaluate", *files, *options, "--json", cwd=tmp_path, HARNESS_HOME=str(own_home))
    assert {row["solution"].removesuffix(".py"): row["status"] for row in judged.rows} == {
        name: name for name in SOLUTIONS
    }, judged.err
    exported = harness("export", "--jsonl", cwd=tmp_path, HARNESS_HOME=str(own_home))
    shown = harness("show", judged.rows[0]["record"], "--json", cwd=tmp_path, HARNESS_HOME=str(own_home))
    assert (len(exported.rows), len(shown.rows)) == (len(SOLUTIONS), 1)
    for row in (*judged.rows, *exported.rows, *shown.rows):
        VALIDATOR.validate(row)
        assert row.keys() <= SCHEMA["$defs"]["EvaluationRecord"]["properties"].keys()


def test_an_answer_without_a_verdict_is_valid() -> None:
    told = json.loads(Fault(UsageError("no problem 'x'"), tag="one", solution="line 3").to_json())
    VALIDATOR.validate(told)
    assert told.keys() == SCHEMA["$defs"]["Unjudged"]["properties"].keys()


def test_the_published_file_is_what_the_command_prints(harness: Harness) -> None:
    printed = harness("schema").out
    assert json.loads(printed) == SCHEMA
    published = (REPOSITORY / "docs" / "record.schema.json").read_text()
    assert published == printed, "stale: python -m harness schema > docs/record.schema.json"
