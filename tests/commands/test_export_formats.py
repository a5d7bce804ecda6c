"""Tests ``export`` in formats of other packages: what their own readers find in them."""

from __future__ import annotations

import csv
import datetime
import hashlib
import io
import json
import struct
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
WANDB = "wandb brings 20 packages: pip install wandb to run this"
OFFLINE = {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
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
        (["--parquet"], "name it with -o PATH"),
        (["--parquet", "-o", "{folder}"], "it is a folder, not a file"),
        (["--parquet", "-o", "{folder}/none/x.parquet"], "No such file or directory"),
        (["--inspect"], "name it with -o PATH"),
        (["--inspect", "-o", "{folder}/log.txt"], "ends with .eval or .json"),
        (["--inspect", "--problem", "other", "-o", "{folder}/log.eval"], "no record to write"),
        (["--parquet", "--run", "run-none", "-o", "{folder}/x.parquet"], "no run 'run-none'"),
    ],
)
def test_what_cannot_be_written_is_refused(
    harness: Harness, home_of_two: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    ran = harness("export", *(one.format(folder=tmp_path) for one in options), "--home", home_of_two)
    assert (ran.code, ran.out, words in ran.err, "Traceback" in ran.err) == (2, "", True, False), ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def summary_of(folder: Path, protocol: Any) -> dict[str, Any]:
    """The summary in the file of an offline run, which ``wandb sync`` would send.

    The file is a log as LevelDB writes it: blocks of 32 KiB, and in them pieces with checksum, length and kind.
    """
    (path,) = folder.glob("*.wandb")
    data, found, position, record = path.read_bytes(), {}, 7, b""
    while position + 7 <= len(data):
        if (rest := 32_768 - position % 32_768) < 7:
            position += rest
            continue
        length, kind = struct.unpack_from("<HB", data, position + 4)
        record += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            summary = protocol.Record.FromString(record).summary
            found |= {item.key or item.nested_key[0]: json.loads(item.value_json) for item in summary.update}
            record = b""
    return found


def test_weights_and_biases_gets_a_run_for_each_run(harness: Harness, home_of_two: Path, tmp_path: Path) -> None:
    protocol = pytest.importorskip("wandb.proto.wandb_internal_pb2", reason=WANDB)
    other = replace(PASSED, record="000000000003", run="run-00000002")
    with Store(home_of_two, writable=True) as store:
        store.add(other, SOURCES["d1"])
    ran = harness("export", "--wandb", "kernels", "-o", tmp_path, "--home", home_of_two, **OFFLINE)
    assert (ran.code, ran.out) == (0, ""), ran.err
    assert "logged run-00000001: 2 records" in ran.err
    folders = sorted((tmp_path / "wandb").glob("offline-run-*"), key=lambda path: len(rows_of(path)), reverse=True)
    assert [[row["record"] for row in rows_of(path)] for path in folders] == [
        ["000000000001", "000000000002"],
        ["000000000003"],
    ]
    first, second = rows_of(folders[0])
    assert (first["speedup_forward"], first["status"], first["trials"]) == (2.5, "PASSED", 5)
    assert second["solution"] == "../../=cmd|' /C calc'!A0\\x1b[31m\\udcff"
    assert (second["output_share"], second["forward_ms"]) == (None, None)
    found = summary_of(folders[0], protocol)
    wanted = {"problems": 1, "samples": 2, "correct": 1, "solved": 1, "pass@1": 0.5}
    assert {name: found.get(name) for name in wanted} == wanted


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The rows of the table that a run logged."""
    (path,) = folder.glob("files/media/table/records_*.table.json")
    table = json.loads(path.read_text())
    return [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]


def test_weights_and_biases_refuses_in_one_line(harness: Harness, home_of_two: Path, tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason=WANDB)
    for words, told, more in (
        (["kernels"], "API key", {"WANDB_MODE": "online", "WANDB_API_KEY": "", "NETRC": str(tmp_path / "none")}),
        (["kernels", "--problem", "other"], "no record to log", OFFLINE),
        (["kernels", "-o", str(tmp_path / "none")], "there is no folder", OFFLINE),
        (["kernels", "--csv"], "--csv and --wandb cannot be used together", OFFLINE),
    ):
        options = words if "-o" in words else [*words, "-o", str(tmp_path)]
        ran = harness("export", "--wandb", *options, "--home", home_of_two, HOME=str(tmp_path), **more)
        assert (ran.code, ran.out, told in ran.err, "Traceback" in ran.err) == (2, "", True, False), ran.err


def test_an_inspect_log_has_a_sample_for_each_record(harness: Harness, home_of_two: Path, tmp_path: Path) -> None:
    log = pytest.importorskip(
        "inspect_ai.log", reason="inspect_ai brings over 200 MB of packages: pip install inspect_ai to run this"
    )
    problem = tmp_path / "norm.py"
    problem.write_text("class Model: ...\n")
    digest = hashlib.sha256(problem.read_bytes()).hexdigest()
    known = replace(PASSED, record="000000000003", problem_path=str(problem), problem_digest=digest)
    with Store(home_of_two, writable=True) as store:
        store.add(known, SOURCES["d1"])
    (tmp_path / "logs").mkdir()
    for output in (tmp_path / "logs", tmp_path / "log.eval", tmp_path / "log.json"):
        ran = harness("export", "--inspect", "-o", output, "--home", home_of_two)
        assert (ran.code, ran.out) == (0, ""), ran.err
    (named,) = (tmp_path / "logs").iterdir()
    assert named.name.startswith("2026-01-01T00-00-00+00-00_kernel-harness_")
    for path in (named, tmp_path / "log.eval", tmp_path / "log.json"):
        found = log.read_eval_log(str(path))
        assert (found.status, found.results.total_samples) == ("success", 3)
        assert found.results.scores[0].metrics["accuracy"].value == pytest.approx(2 / 3)
        samples = {one.id: one for one in found.samples}
        assert list(samples) == ["000000000001", "000000000002", "000000000003"]
        assert [one.scores["verdict"].value for one in found.samples] == ["C", "I", "C"]
        assert samples["000000000001"].input == "problem norm (sha256 p)"
        assert samples["000000000003"].input == "class Model: ...\n"
        assert [one.output.completion for one in found.samples] == [SOURCES[one] for one in ("d1", "d2", "d1")]
        told = samples["000000000001"].metadata
        assert (told["status"], told["speedup"]) == ("PASSED", {"forward": 2.5})
        hostile = samples["000000000002"]
        assert hostile.scores["verdict"].explanation == HOSTILE.message
        assert hostile.metadata["solution"] == "../../=cmd|' /C calc'!A0\x1b[31m\\udcff"


@pytest.mark.parametrize(
    ("option", "package"), [("--parquet", "pyarrow"), ("--inspect", "inspect_ai"), ("--wandb", "wandb")]
)
def test_a_missing_package_is_named_with_its_command(
    harness: Harness, home_of_two: Path, tmp_path: Path, option: str, package: str
) -> None:
    path = without(package, tmp_path / "without")
    options = [option, "p", "-o", tmp_path] if option == "--wandb" else [option, "-o", tmp_path / "x.eval"]
    ran = harness("export", *options, "--home", home_of_two, PYTHONPATH=f"{path}:{REPOSITORY}")
    assert (ran.code, ran.out) == (2, "")
    assert f"{option}: {package} is not installed: pip install {package}" in ran.err
    assert not (tmp_path / "x.eval").exists()
