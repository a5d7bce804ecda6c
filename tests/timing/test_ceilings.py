"""Tests a GPU's peak rates: their use by class, their file, and files that are ignored."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.errors import DeviceError
from harness.records.record import PrecisionClass
from harness.timing import ceilings
from harness.timing.ceilings import Ceilings, load, measure, save

ENVIRONMENT = {"gpu": "NVIDIA H200", "gpu_memory_gib": "139.8", "capability": "9.0", "cuda": "13.0"}
ELSEWHERE = {**ENVIRONMENT, "gpu": "NVIDIA L4", "capability": "8.9"}
H200 = Ceilings(
    copy=4.28e12,
    read=4.35e12,
    write=4.68e12,
    fp32=51e12,
    tf32=340e12,
    fp16=698e12,
    bf16=740e12,
    device="NVIDIA H200",
    software=f"torch {torch.__version__}, CUDA 13.0",
    measured_at="2026-11-21T10:00:00+00:00",
)
L4 = replace(H200, device="NVIDIA L4", copy=0.25e12)


@pytest.mark.parametrize(
    ("have", "rates"),
    [
        ({}, (698e12 / 3, 698e12, 740e12)),
        ({"fp16": 120e12}, (51e12, 340e12, 740e12)),
        ({"bf16": 90e12}, (698e12 / 3, 698e12, 698e12)),
        ({"tf32": None, "fp16": None, "bf16": None}, (51e12, 51e12, 51e12)),
    ],
)
def test_a_class_has_the_best_rate_that_it_allows(have: dict[str, Any], rates: tuple[float, ...]) -> None:
    device = replace(H200, **have)
    assert tuple(device.rate(one) for one in PrecisionClass) == rates


def test_what_is_kept_comes_back_for_the_same_gpu_and_software_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "not" / "there"
    assert load(home, ENVIRONMENT) is None
    save(home, ENVIRONMENT, H200)
    save(home, ELSEWHERE, L4)
    assert load(home, ENVIRONMENT) == H200
    assert load(home, ELSEWHERE) == L4
    assert load(home, {**ENVIRONMENT, "cuda": "12.8"}) is None
    assert load(home, {**ENVIRONMENT, "capability": "10.0"}) is None
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    assert load(home, ENVIRONMENT) is None
    assert [path.name for path in home.iterdir()] == ["ceilings.json"]
    assert capsys.readouterr().err == ""


def changed(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda entry: entry.update(fields)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (changed(copy=float("nan")), "'copy' is not a valid rate"),
        (changed(copy=-4.28e12), "'copy' is not a valid rate"),
        (changed(read=0), "'read' is not a valid rate"),
        (changed(write=True), "'write' is not a valid rate"),
        (changed(fp32=None), "'fp32' is not a valid rate"),
        (changed(tf32="340e12"), "'tf32' is not a valid rate"),
        (changed(fp16=float("inf")), "'fp16' is not a valid rate"),
        (changed(bf16=10**400), "'bf16' is not a valid rate"),
        (changed(copy=[4.28e12]), "'copy' is not a valid rate"),
        (changed(measured_at="yesterday\x1b[2J"), "Invalid isoformat string"),
        (changed(measured_at="2026-11-21\x1b10:00:00+00:00"), "'measured_at' is not a valid time"),
        (changed(measured_at="0001-01-01T00:00:00+14:00"), "'measured_at' is not a valid time"),
        (changed(measured_at=20261121), "'measured_at' is not a text"),
        (changed(device="NVIDIA L4"), "belongs to another GPU"),
        (changed(software="torch 1.0"), "belongs to another GPU or other software"),
        (changed(more=1), "must have exactly the keys"),
        (lambda entry: entry.pop("read"), "must have exactly the keys"),
        (dict.clear, "must have exactly the keys"),
    ],
)
def test_an_entry_that_is_not_sound_is_ignored_and_measured_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[dict[str, Any]], None], why: str
) -> None:
    save(tmp_path, ENVIRONMENT, H200)
    path = tmp_path / "ceilings.json"
    entries = json.loads(path.read_text())
    change(*entries.values())
    path.write_text(json.dumps(entries))
    assert load(tmp_path, ENVIRONMENT) is None
    told = capsys.readouterr().err
    assert why in told
    assert str(path) in told
    assert "doctor --calibrate" in told
    assert "\x1b" not in told
    save(tmp_path, ENVIRONMENT, H200)
    assert load(tmp_path, ENVIRONMENT) == H200


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "\xff", '{"a": 1', "[" * 100_000, "9" * 10_000])
def test_a_file_that_is_no_json_object_is_ignored_and_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = tmp_path / "ceilings.json"
    path.write_text(text, encoding="latin-1")
    assert load(tmp_path, ENVIRONMENT) is None
    assert "it is not " in capsys.readouterr().err
    save(tmp_path, ENVIRONMENT, H200)
    assert load(tmp_path, ENVIRONMENT) == H200


def test_what_is_no_file_is_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ceilings.json").mkdir()
    assert load(tmp_path, ENVIRONMENT) is None
    assert "it is a folder, not a regular file" in capsys.readouterr().err


def test_saving_keeps_the_sound_entries_of_others_and_drops_the_rest(tmp_path: Path) -> None:
    save(tmp_path, ELSEWHERE, L4)
    path = tmp_path / "ceilings.json"
    nested: list[Any] = []
    for _ in range(400):
        nested = [nested]
    path.write_text(json.dumps({**json.loads(path.read_text()), "bad": {"copy": 1}, "deep": nested}))
    save(tmp_path, ENVIRONMENT, H200)
    assert load(tmp_path, ELSEWHERE) == L4
    assert len(json.loads(path.read_text())) == 2


class _Event:
    """As torch's, by the host's clock."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, end: _Event) -> float:
        return (end.at - self.at) * 1e3


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The CPU in the place of a GPU, and tensors that are small."""
    stand_in = SimpleNamespace(name="Stand-in", L2_cache_size=1 << 18, free=64 << 20, capability=(9, 0), slept=0)

    def sleep(_: int) -> None:
        stand_in.slept += 1

    for name, value in {
        "device": lambda _: contextlib.nullcontext(),
        "mem_get_info": lambda _: (stand_in.free, 1 << 40),
        "get_device_properties": lambda _: stand_in,
        "get_device_capability": lambda _: stand_in.capability,
        "synchronize": lambda _: None,
        "empty_cache": lambda: None,
        "Event": _Event,
        "_sleep": sleep,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    for name, value in {"WIDTH": 256, "ROWS": (32, 256), "WARM_UP_S": 0.0, "SERIES_S": 0.0, "LEAST_RATE": 1.0}.items():
        monkeypatch.setattr(ceilings, name, value)
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    yield stand_in
    torch.backends.cuda.matmul.fp32_precision = before


def test_measuring_gives_every_rate_and_leaves_the_flag_for_tf32_as_it_was(gpu: SimpleNamespace) -> None:
    found = measure(torch.device("cpu"))
    assert list(found.figures()) == ["copy", "read", "write", "fp32", "tf32", "fp16", "bf16"]
    assert found.device == "Stand-in"
    assert Ceilings(**json.loads(json.dumps(asdict(found)))) == found
    assert gpu.slept
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"


def test_an_older_gpu_has_no_tf32_and_no_bfloat16(gpu: SimpleNamespace) -> None:
    gpu.capability = (7, 5)
    found = measure(torch.device("cpu"))
    assert (found.tf32, found.bf16) == (None, None)
    assert list(found.figures()) == ["copy", "read", "write", "fp32", "fp16"]


def test_a_full_gpu_is_not_measured(gpu: SimpleNamespace) -> None:
    gpu.free = 7 << 20
    with pytest.raises(DeviceError, match=r"it has 0\.0 GiB of free memory"):
        measure(torch.device("cpu"))


def test_a_gpu_that_fails_is_told_and_leaves_the_flag_for_tf32_as_it_was(
    gpu: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(torch, "mm", fail)
    with pytest.raises(DeviceError, match="cannot measure the peak rates of cpu: out of memory"):
        measure(torch.device("cpu"))
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"
