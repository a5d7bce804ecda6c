"""Tests copies and fills by the driver: they are told apart from kernels and are not evidence of work."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.judge.evidence.tracing import traced
from harness.judge.process.time_limits import Clock
from harness.records.kernels import CopyUse, KernelUse
from harness.records.record import EvaluationRecord, PrecisionClass, Status
from harness.report.profile import rows_of
from harness.wire.encoding import decode, encode
from harness.wire.replies import REPLIES, Inspected, Launched, Traced
from harness.worker import profiling

COPY, FILL = "Memcpy DtoD (Device -> Device)", "Memset (Device)"
TRACE = {
    "traceEvents": [
        {"cat": "gpu_memcpy", "name": COPY, "args": {"bytes": 4096, "stream": 7}},
        {"cat": "gpu_memset", "name": FILL, "args": {"bytes": 12}},
        {"cat": "gpu_memcpy", "name": COPY, "args": {"bytes": 1000}},
        {"cat": "kernel", "name": "void add(float*)", "args": {"grid": [1, 1, 1]}},
        {"cat": "cuda_runtime", "name": COPY, "args": {"bytes": 1}},
        {"ph": "M", "name": "process_name", "pid": 0},
    ]
}


class Profiler:
    """Stands for torch's, on a GPU: two kernels, two copies and a fill, and an export to fail."""

    trace: Any = TRACE

    def __init__(self, **options: Any):
        pass

    def __enter__(self) -> Profiler:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def function_events(self) -> list[Any]:
        told = (
            ("spin_kernel(long)", 1, 7),
            ("void add(float*)", 5, 7),
            (FILL, 1, 7),
            ("void inner::own<2>(int)", 9, 13),
            (COPY, 2, 7),
            (COPY, 4, 13),
        )
        return [
            SimpleNamespace(
                device_type=SimpleNamespace(name="CUDA"),
                name=name,
                time_range=SimpleNamespace(start=number, elapsed_us=lambda spent=spent: spent * 1e3),
                device_resource_id=stream,
            )
            for number, (name, spent, stream) in enumerate(told)
        ]

    def export_chrome_trace(self, path: str) -> None:
        if self.trace is None:
            raise RuntimeError("Trace is already saved.")
        Path(path).write_text(self.trace if isinstance(self.trace, str) else json.dumps(self.trace))


@pytest.mark.parametrize(("trace", "moved"), [(TRACE, (12, 5096)), (None, (None, None)), ("{", (None, None))])
def test_copies_come_with_what_they_moved_where_the_profiler_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trace: Any, moved: tuple[int | None, int | None]
) -> None:
    monkeypatch.setattr(profiling, "profile", Profiler)
    monkeypatch.setattr(Profiler, "trace", trace)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    (tmp_path / "own.so").write_bytes(b"..3ownILi2E..")
    seen = profiling.launched(lambda: None, [tmp_path / "own.so"])
    assert seen == [
        Launched("add", 1, False, 5.0),
        Launched(FILL, 1, False, 1.0, True, moved[0]),
        Launched("inner::own<2>", 1, True, 9.0, aside=1),
        Launched(COPY, 2, False, 6.0, True, moved[1], aside=1),
    ]


def test_a_sum_without_one_of_its_parts_is_no_sum() -> None:
    events = [*TRACE["traceEvents"], {"cat": "gpu_memcpy", "name": COPY, "args": {"stream": 7}}]
    assert profiling.bytes_moved({"traceEvents": events}) == {FILL: 12}
    assert profiling.bytes_moved({}) == {}


def fields(*forward: Launched) -> dict[str, Any]:
    """What a record gets of a worker that says this of its forward."""
    return judged(forward)


def judged(
    forward: tuple[Launched, ...],
    inference: tuple[Launched, ...] = (),
    latencies: dict[str, float | None] | None = None,
    refused: tuple[str, ...] = (),
) -> dict[str, Any]:
    """What a record gets of a worker on a GPU that says this of its calls."""
    reply = Traced(True, forward, (), inference, {}, None, refused)
    said = [decode(encode(one), REPLIES) for one in (reply, Inspected((), (), ()))]
    setting: Any = SimpleNamespace(leaves=(), exchange=SimpleNamespace(outputs=(), gradients={}))
    worker: Any = SimpleNamespace(request=lambda *arguments: said.pop(0))
    return traced(setting, worker, Clock(1.0, 1.0), latencies=latencies or {})


def test_a_copy_is_no_kernel() -> None:
    own, copy = Launched("own", 1, True, 3.0), Launched(COPY, 2, False, 1.0, True, 4096)
    assert fields(own, copy) == {
        "kernels": {"forward": (KernelUse("own", 1, True, 3.0),)},
        "copies": {"forward": (CopyUse(COPY, 2, 1.0, 4096),)},
        "operators": {},
        "own_share": 1.0,
        "findings": (),
    }
    assert fields(own)["copies"] == {}


def test_a_copy_is_no_evidence_of_a_kernel_of_its_own() -> None:
    pretended = Launched("own", -3, True, 3.0, True, -4)
    found = fields(pretended)
    assert found["kernels"] == {"forward": ()}
    assert found["copies"] == {"forward": (CopyUse("own", 0, 3.0, 0),)}
    (finding,) = found["findings"]
    assert (finding.kind, finding.message) == ("no-own-kernel", "no kernel of the solution's own ran")


def record(**fields: Any) -> EvaluationRecord:
    return EvaluationRecord(
        "p", "p/s", "full", "cuda:0", Status.PASSED, "", "00", "11", "22", PrecisionClass.FP32, **fields
    )


def test_records_keep_copies_and_old_ones_load_without() -> None:
    whole = record(**fields(Launched("own", 1, True, 3.0), Launched(COPY, 2, False, 1.0, True, None)))
    assert EvaluationRecord.from_json(whole.to_json()) == whole
    old = json.loads(whole.to_json())
    del old["copies"]
    assert EvaluationRecord.from_json(json.dumps(old)) == record(kernels=whole.kernels, own_share=1.0)
    del old["own_share"]
    assert EvaluationRecord.from_json(json.dumps(old)).own_share is None


def test_shares_are_of_kernels_and_copies_together() -> None:
    forward = (Launched("own", 2, True, 6.0), Launched("gemm", 1, False, 3.0), Launched(COPY, 2, False, 1.0, True, 99))
    rows = rows_of(record(**fields(*forward)))["forward"]
    assert [(row.name, row.whose, row.launches, row.share, row.bytes) for row in rows] == [
        ("own", "own", 2, 0.6, None),
        ("gemm", "torch", 1, 0.3, None),
        (COPY, "driver", 2, 0.1, 99),
    ]


GEMM, OWN = Launched("gemm", 1, False, 9.0), Launched("own", 1, True, 1.0)


def test_own_share_is_of_the_time_of_kernels_in_all_calls() -> None:
    copy = Launched(COPY, 2, True, 90.0, True, 99)
    assert judged((OWN, GEMM, copy))["own_share"] == 0.1
    assert judged((OWN,), inference=(GEMM,))["own_share"] == 0.1  # what only a forward without gradients runs counts
    assert judged((OWN, Launched("gemm", 1, False, float("nan"))))["own_share"] == 1.0


def test_an_own_kernel_beside_torch_s_work_is_told() -> None:
    found = judged((OWN, Launched("gemm", 1, False, 199.0)))
    (finding,) = found["findings"]
    assert (found["own_share"], finding.kind) == (0.005, "no-own-kernel")
    assert finding.message == "own kernels: 0.5 % of device time"


def test_a_swallowed_build_failure_is_told_with_its_line() -> None:
    (finding,) = judged((GEMM,), refused=("answer.py:3: error: no such thing",))["findings"]
    assert finding.message.endswith("only gemm; its build failed: answer.py:3: error: no such thing")


@pytest.mark.parametrize(
    ("forward", "latency", "words"),
    [
        ((OWN,), 1.1, ""),
        ((OWN,), 2.2, "its kernels and copies take 1 ms, timed calls take 2.2 ms"),
        ((OWN,), 0.6, "its kernels and copies take 1 ms, timed calls take 0.6 ms"),
        ((Launched("own", 1, True, 0.4),), 0.1, ""),
        # The host takes the time of an honest kernel on a tiny case, and of many launches.
        ((Launched("own", 15, True, 0.059),), 1.513, ""),
        ((Launched("own", 300, True, 0.6),), 20.0, ""),
    ],
)
def test_a_trace_that_is_not_the_timed_call_is_told(forward: tuple[Launched, ...], latency: float, words: str) -> None:
    findings = judged(forward, inference=forward, latencies={"forward": latency})["findings"]
    assert [words in one.message for one in findings] == [True] * bool(words)


def test_operators_below_python_s_dispatch_are_counted() -> None:
    matrix = torch.ones(4, 4, requires_grad=True)

    def call() -> None:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.Python)):
            (matrix @ matrix).sum().backward()

    assert profiling.operators(call)["aten::mm"][0] == 3
