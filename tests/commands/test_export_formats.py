"""Tests ``export`` in formats of other packages: what their own readers find in them."""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from harness.records.record import EvaluationRecord, PrecisionClass, Status, TensorReport
from harness.records.store import Store
from tests.conftest import REPOSITORY

Harness = Callable[..., Any]
PASSED = EvaluationRecord(
    problem="norm",
    solution="norm/fast",
    case="full",
    device="cuda:0",
    status=Status.PASSED,
    message="",
    seed="ab",
    digest="d1",
    problem_digest="p",
    precision_class=PrecisionClass.FP32,
    outputs=(TensorReport("output", (2,), "float32", True, share=0.25),),
    trials=5,
    forward_ms=2.0,
    baselines={"eager": {"forward_ms": 5.0}},
    speedup={"forward": 2.5},
    record="000000000001",
    run="run-00000001",
    created_at="2026-01-01T00:00:00.125+00:00",
)
#: A formula, an escape byte, a byte that is no UTF-8, figures that are none, a time that is none.
HOSTILE = replace(
    PASSED,
    solution="../../=cmd|' /C calc'!A0\x1b[31m\udcff",
    status=Status.WRONG_OUTPUT,
    message="=1+1\nsecond <line> & \x1b[0m",
    digest="d2",
    outputs=(TensorReport("output", (2,), "float32", False, share=float("inf")),),
    forward_ms=float("nan"),
    baselines={},
    speedup=None,
    record="000000000002",
    created_at="yesterday",
)
SOURCES = {"d1": "class ModelNew: ...\n", "d2": "print('\x1b[31m')  # \u00e9 </script>\n"}


@pytest.fixture
def home_of_two(tmp_path: Path) -> Path:
    """A home with both records."""
    with Store(tmp_path / "home", writable=True) as store:
        for record in (PASSED, HOSTILE):
            store.add(record, SOURCES[record.digest])
    return tmp_path / "home"


def without(package: str, folder: Path) -> str:
    """A PYTHONPATH on which a package is missing."""
    folder.mkdir()
    (folder / f"{package}.py").write_text(f"raise ModuleNotFoundError({package!r}, name={package!r})\n")
    return str(folder)


def test_parquet_holds_typed_columns(harness: Harness, home_of_two: Path, tmp_path: Path) -> None:
    path = tmp_path / "results.parquet"
    ran = harness("export", "--parquet", "-o", path, "--home", home_of_two)
    assert (ran.code, ran.out) == (0, ""), ran.err
    table = pyarrow.parquet.read_table(path)
    told = harness("export", "--csv", "--home", home_of_two)
    assert table.column_names == next(csv.reader(io.StringIO(told.out)))
    kinds = {field.name: str(field.type) for field in table.schema}
    assert {name for name, kind in kinds.items() if kind not in ("string", "double")} == {"trials", "created_at"}
    assert (kinds["trials"], kinds["created_at"]) == ("int64", "timestamp[ms, tz=UTC]")
    assert {name for name in kinds if name.endswith(("_ms", "_s", "_share")) or "speedup" in name} == {
        name for name, kind in kinds.items() if kind == "double"
    }
    first, second = table.to_pylist()
    wanted = {"record": "000000000001", "solution": "norm/fast", "status": "PASSED", "trials": 5, "forward_ms": 2.0}
    wanted |= {"speedup_forward": 2.5, "eager_forward_ms": 5.0, "speedup_forward_backward": None, "rule": None}
    wanted |= {"output_share": 0.25, "gradient_share": None}
    assert {name: first[name] for name in wanted} == wanted
    assert first["created_at"] == datetime.datetime(2026, 1, 1, 0, 0, 0, 125_000, datetime.UTC)
    # Texts are as recorded: no spreadsheet opens Parquet by running them.
    assert second["solution"] == "../../=cmd|' /C calc'!A0\x1b[31m\\udcff"
    assert (second["message"], second["created_at"]) == (HOSTILE.message, None)
    assert (second["output_share"], second["forward_ms"] != second["forward_ms"]) == (float("inf"), True)


def test_parquet_of_nothing_has_the_columns(harness: Harness, home_of_two: Path, tmp_path: Path) -> None:
    path = tmp_path / "none.parquet"
    assert harness("export", "--parquet", "--problem", "other", "-o", path, "--home", home_of_two).code == 0
    table = pyarrow.parquet.read_table(path)
    assert (table.num_rows, table.num_columns) == (0, 26)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--parquet"], "name it with -o FILE"),
        (["--parquet", "-o", "{folder}"], "it is a folder, not a file"),
        (["--parquet", "-o", "{folder}/none/x.parquet"], "No such file or directory"),
        (["--parquet", "--run", "run-none", "-o", "{folder}/x.parquet"], "no run 'run-none'"),
    ],
)
def test_what_cannot_be_written_is_refused(
    harness: Harness, home_of_two: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    ran = harness("export", *(one.format(folder=tmp_path) for one in options), "--home", home_of_two)
    assert (ran.code, ran.out, words in ran.err, "Traceback" in ran.err) == (2, "", True, False), ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


@pytest.mark.parametrize(("option", "package"), [("--parquet", "pyarrow")])
def test_a_missing_package_is_named_with_its_command(
    harness: Harness, home_of_two: Path, tmp_path: Path, option: str, package: str
) -> None:
    path = without(package, tmp_path / "without")
    ran = harness("export", option, "-o", tmp_path / "x", "--home", home_of_two, PYTHONPATH=f"{path}:{REPOSITORY}")
    assert (ran.code, ran.out) == (2, "")
    assert f"{option}: {package} is not installed: pip install {package}" in ran.err
    assert not (tmp_path / "x").exists()
