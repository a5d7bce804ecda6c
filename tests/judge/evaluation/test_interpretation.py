"""Tests what a verdict on Triton kernels claims, on machines with and without Triton."""

from __future__ import annotations

import pytest

from harness.judge.evaluation import interpretation
from harness.judge.evaluation.interpretation import INTERPRETED_TRIALS, Interpretation
from harness.judge.process.candidate_stopped import CandidateStopped
from harness.records.record import EvaluationRecord, PrecisionClass, Status

KERNEL = "import torch\nimport triton\n@triton.jit\ndef own(x):\n    pass\n"
GUARDED = "try:\n    import triton\n    @triton.jit\n    def own(x):\n        pass\nexcept ImportError:\n    pass\n"
INSTALL = "judge it on a GPU, or let Triton's interpreter look for faults first: pip install triton numpy"


def having(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    monkeypatch.setattr(interpretation, "is_installed", lambda package: package in packages)


@pytest.mark.parametrize(
    ("text", "device", "packages", "message"),
    [
        (KERNEL, "cpu", (), f"line 2: this machine has no triton; {INSTALL}"),
        (KERNEL, "cpu", ("triton",), f"line 2: this machine has no numpy; {INSTALL}"),
        (KERNEL, "cpu", ("triton", "numpy"), ""),
        (KERNEL, "cuda:0", (), "line 2: this machine has no triton; pip install triton"),
        (KERNEL, "cuda:0", ("triton",), ""),
        (GUARDED, "cpu", (), ""),  # it has an alternative, which is judged
        ("import cupy\n", "cpu", (), "line 1: this machine has no cupy; judge it on a GPU"),
        ("import cupy\n", "cuda:0", (), "line 1: this machine has no cupy; pip install cupy-cuda12x"),
        ("# import triton\nimport torch\n", "cpu", (), ""),
    ],
)
def test_a_missing_package_is_told_from_the_text(
    monkeypatch: pytest.MonkeyPatch, text: str, device: str, packages: tuple[str, ...], message: str
) -> None:
    having(monkeypatch, *packages)
    languages = Interpretation(text, device)
    if not message:
        languages.check_packages()
        return
    with pytest.raises(CandidateStopped) as stopped:
        languages.check_packages()
    assert (stopped.value.status, stopped.value.message) == (Status.UNSUPPORTED, message)


def record(status: Status) -> EvaluationRecord:
    return EvaluationRecord("p", "s", "odd", "cpu", status, "what happened", "", "", "", PrecisionClass.FP32)


@pytest.mark.parametrize(
    ("status", "told", "words"),
    [
        (Status.PASSED, Status.INTERPRETED, "interpreted: not judged"),
        (Status.TIMEOUT, Status.UNSUPPORTED, "Triton's interpreter is too slow"),
        (Status.WRONG_OUTPUT, Status.WRONG_OUTPUT, "note: Triton's interpreter ran its kernels"),
        (Status.CHEATED, Status.CHEATED, ""),
    ],
)
def test_an_interpreted_solution_fails_or_is_not_judged(
    monkeypatch: pytest.MonkeyPatch, status: Status, told: Status, words: str
) -> None:
    having(monkeypatch, "triton", "numpy")
    for text in (KERNEL, GUARDED):
        interpreted = Interpretation(text, "cpu").told(record(status))
        assert interpreted.status is told
        assert words in interpreted.message
        assert "what happened" in interpreted.message
    for unlike in (Interpretation(KERNEL, "cuda:0"), Interpretation("# triton.jit", "cpu")):
        assert unlike.told(record(status)) == record(status)
    having(monkeypatch)
    assert Interpretation(GUARDED, "cpu").told(record(status)) == record(status)


def test_an_interpreted_solution_runs_fewer_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, "triton", "numpy")
    interpreted = Interpretation(KERNEL, "cpu")
    assert [interpreted.trials(asked) for asked in (1, 5)] == [1, INTERPRETED_TRIALS]
    assert Interpretation(KERNEL, "cuda:0").trials(5) == 5
