"""Tests the description of a failing tensor: its worst element, how many are wrong, and any pattern."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.judge.compare.error_pattern import look, summary, worst_index
from harness.judge.reference.equivalence import FLOORS, NO_ERROR, allowed, deviation, magnitude
from harness.records.record import EvaluationRecord, PrecisionClass, Status, TensorReport
from harness.report.single import sections
from tests.judge import in_process

FP32 = FLOORS[PrecisionClass.FP32]
SHAPE = (6, 8, 5, 7)
Bug = Callable[[torch.Tensor], torch.Tensor]


def draw(shape: tuple[int, ...], seed: int = 7) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def seen(received: torch.Tensor, exact: torch.Tensor, pieces: int = 1) -> dict[str, Any]:
    """The fields of a report, the tensor looked at in so many pieces of dimension 0."""
    looks, first = [], 0
    for mine, theirs in zip(received.tensor_split(pieces), exact.tensor_split(pieces), strict=True):
        allowance = allowed(magnitude(theirs), NO_ERROR, FP32)
        worst = worst_index(mine, theirs, deviation(mine, theirs), allowance.maximum)
        looks.append(look(mine, theirs, allowance, worst, first_row=None if pieces == 1 else first))
        first += theirs.shape[0]
    return summary(looks, tuple(exact.shape))


def put(value: float, *index: Any) -> Bug:
    def bug(tensor: torch.Tensor) -> torch.Tensor:
        tensor[index] = value
        return tensor

    return bug


def flat(bug: Bug, *shape: int) -> Bug:
    """A bug of the tensor as if it had another shape."""
    return lambda tensor: bug(tensor.reshape(shape or (-1,))).reshape(tensor.shape)


EVERYWHERE = slice(None)
CHANNEL_WEIGHTS = draw((8, 1, 1), seed=3).float()
BUGS: dict[str, tuple[Bug, int | None, str]] = {
    "tail": (flat(put(1.0, slice(-10, None))), 10, "exactly the last 10 elements of the flattened tensor"),
    "unwritten_tail": (flat(put(math.nan, slice(-10, None))), 10, "all of them NaN, as if nothing was written there"),
    "head": (flat(put(9.0, slice(10))), 10, "exactly the first 10 elements of the flattened tensor"),
    "range": (flat(put(9.0, slice(400, 477))), 77, "exactly elements 400 to 476 of the flattened tensor"),
    "block_tail": (
        flat(put(9.0, Ellipsis, slice(25, None)), 6, 8, 35),
        480,
        "exactly the last 10 elements of each block of 35 in the last 2 dimensions",
    ),
    "every_fourth": (flat(put(9.0, slice(3, None, 4))), 420, "exactly every 4th element of the flattened tensor"),
    "nan_rows": (put(math.nan, [1, 4]), 560, "exactly the elements at indices 1 and 4 in dimension 0; all of them NaN"),
    "last_row": (put(9.0, -1), 280, "exactly the elements at index 5 (the last) in dimension 0"),
    "one_channel": (put(9.0, EVERYWHERE, 3), 210, "exactly the elements at index 3 in dimension 1; received is 9"),
    "one_group": (
        put(9.0, 2, slice(4, 6)),
        70,
        "exactly the elements at index 2 in dimension 0 and at indices 4 to 5 in dimension 1",
    ),
    "past_an_index": (
        put(9.0, EVERYWHERE, EVERYWHERE, slice(3, None)),
        672,
        "exactly the elements at index 3 and all after it in dimension 2",
    ),
    "every_second_index": (
        put(9.0, EVERYWHERE, slice(1, None, 2)),
        840,
        "exactly the elements at every 2nd index from 1 to 7 in dimension 1",
    ),
    "one_element": (put(9.0, 2, 3, 1, 1), 1, ""),
    "factor": (lambda x: x * 2, 1680, "received is 2 times expected"),
    "small_factor": (lambda x: x * 1.00001, None, "received is 1.00001 times expected"),
    "sign": (lambda x: -x, 1680, "received is expected with the opposite sign"),
    "offset": (lambda x: x - 0.5, 1680, "received is expected - 0.5"),
    "line": (lambda x: 2 * x + 1, 1680, "received is 2 times expected + 1"),
    "zeros": (torch.zeros_like, 1680, "received is 0 at all of them"),
    "no_weight": (
        lambda x: x * CHANNEL_WEIGHTS,
        1680,
        "received is expected with a factor per index of dimension 1",
    ),
    "no_bias": (
        lambda x: x + CHANNEL_WEIGHTS,
        1680,
        "received is expected with an offset per index of dimension 1",
    ),
    "shifted_rows": (lambda x: x.roll(1, 0), 1680, "received is expected shifted by 1 along dimension 0"),
    "shifted": (lambda x: x.roll(-1, 3), 1680, "received is expected shifted by -1 along dimension 3"),
    "shifted_flat": (flat(lambda x: x.roll(1)), 1680, "received is expected shifted by 1 in the flattened tensor"),
    "transposed": (
        lambda x: x.transpose(2, 3).reshape(SHAPE),
        None,
        "received is expected with dimensions 2 and 3 transposed",
    ),
    "channels_last": (
        lambda x: x.movedim(1, -1).reshape(SHAPE),
        None,
        "received is expected with dimension 1 moved to the end",
    ),
    "reversed": (lambda x: x.flip(1), 1680, "received is expected reversed along dimension 1"),
    "halves": (lambda x: x.roll(4, 1), 1680, "received is expected with the halves of dimension 1 swapped"),
    "mixed_up": (
        lambda x: x[:, [3, 1, 2, 0, 4, 7, 6, 5]],
        None,
        "indices of dimension 1 are mixed up: 0 holds the value that belongs at 3, 3 holds the value that belongs at 0",
    ),
    "broadcast": (
        lambda x: x[:, :1].expand(SHAPE),
        1470,
        "1 holds the value that belongs at 0, 2 holds the value that belongs at 0",
    ),
    "some_of_a_channel": (
        lambda x: x + torch.where((draw(SHAPE, 1) > 0.5) & (torch.arange(8).view(8, 1, 1) == 2), draw(SHAPE, 2), 0),
        None,
        "only among the elements at index 2 in dimension 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_told_by_its_pattern(name: str, pieces: int) -> None:
    bug, wrong, words = BUGS[name]
    exact = draw(SHAPE)
    fields = seen(bug(exact.float()), exact, pieces)
    assert words in fields["pattern"]
    assert bool(words) == bool(fields["pattern"])
    if wrong is not None:
        assert fields["wrong"] == wrong


@pytest.mark.parametrize("pieces", [1, 3])
def test_what_spans_pieces_is_told_of_the_whole_or_not_at_all(pieces: int) -> None:
    exact = draw(SHAPE)
    swapped = seen(exact.float()[[5, 1, 2, 0, 4, 3]], exact, pieces)
    assert "exactly the elements at indices 0, 3 and 5 in dimension 0" in swapped["pattern"]
    assert ("0 holds the value that belongs at 5, 3 holds the value that belongs at 0" in swapped["pattern"]) is (
        pieces == 1
    )
    assert "reversed" not in seen(exact.float().reshape(3, 2, 8, 5, 7).flip(1).reshape(SHAPE), exact, pieces)["pattern"]
    different = torch.cat([exact.float()[:2] * 2, exact.float()[2:] * 3])
    assert "times" not in seen(different, exact, pieces)["pattern"]


@pytest.mark.parametrize("shape", [(40, 40), (30, 50)])
def test_a_matrix_that_is_transposed(shape: tuple[int, ...]) -> None:
    exact = draw(shape)
    assert "with dimensions 0 and 1 transposed" in seen(exact.float().t().reshape(shape), exact)["pattern"]


def test_errors_at_random_have_no_pattern() -> None:
    for seed in range(100):
        exact = draw(SHAPE, seed)
        count = 1 + seed * 16
        places = torch.randperm(exact.numel(), generator=torch.Generator().manual_seed(seed))[:count]
        received = exact.float()
        received.view(-1)[places] += 1 + draw((count,), seed).abs().float()
        fields = seen(received, exact)
        assert (fields["wrong"], fields["pattern"]) == (count, "")
    exact = draw(SHAPE)
    assert seen(exact.float() + draw(SHAPE, 3).float(), exact)["pattern"] == ""
    assert seen(exact.half().float(), exact)["pattern"] == ""


def test_what_is_not_finite_is_the_worst_and_is_counted() -> None:
    exact = draw(SHAPE)
    exact[0, 0, 0, :2] = torch.tensor([math.nan, math.inf])
    received = exact.float()
    received[0, 1, 1, 1] += 100
    received[5, 2, 4, 3] = math.nan
    received[1, 2, 3, 4] = -math.inf
    fields = seen(received, exact)
    assert (fields["wrong"], fields["pattern"]) == (3, "1 of them NaN; 1 of them infinite")
    assert fields["worst_index"] in ((5, 2, 4, 3), (1, 2, 3, 4))
    received[0, 0, 0, :2] = received[0, 0, 0, :2].flip(0)
    assert seen(received, exact)["wrong"] == 5


def test_answers_that_are_true_or_false_and_scalars_are_looked_at() -> None:
    exact = (draw(SHAPE) > 0).double()
    fields = seen(put(0.0, EVERYWHERE, 3)(exact.clone()), exact)
    assert fields["pattern"] == "only among the elements at index 3 in dimension 1; received is 0 at all of them"
    exact = draw((1,))[0]
    allowance = allowed(magnitude(exact), NO_ERROR, FP32)
    worst = worst_index(exact * 2, exact, deviation(exact * 2, exact), allowance.maximum)
    fields = summary([look(exact * 2, exact, allowance, worst)], ())
    assert (fields["worst_index"], fields["wrong"]) == ((), 1)


def test_the_worst_element_is_the_one_that_is_furthest_beyond_its_own_budget() -> None:
    exact = draw((4, 100))
    exact[2] *= 1e-3
    received = exact.clone()
    received[0, 5] += 1e-3
    received[2, 7] += 5e-4
    fields = seen(received, exact)
    assert fields["worst_index"] == (2, 7)
    assert fields["wrong"] == 2
    assert fields["allowed"] == pytest.approx(256 * 2.0**-23 * float(exact[2].square().mean().sqrt()))


def test_a_count_is_told_as_a_share() -> None:
    blank = TensorReport("output", (8, 64), "float32", False)
    assert blank.counted == ""
    assert TensorReport("y", (8, 64), "float32", False, wrong=12).counted == "12 of 512 elements wrong (2.3 %)"
    assert TensorReport("y", (10**9,), "float32", False, wrong=1).counted.endswith("(1e-07 %)")
    assert TensorReport("y", (8,), "float32", False, wrong=0).counted == "none of 8 elements is wrong by itself"


PROBLEM = """
import torch
import torch.nn as nn

CASES = {"full": {}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 1))

    def forward(self, x):
        return torch.tanh(x) * self.weight


def get_inputs():
    return [torch.randn(6, 8, 9)]


def get_init_inputs():
    return []
"""
WRONG_CHANNEL = "y = torch.tanh(x) * self.weight; return torch.cat([y[:, :3], y[:, 3:4] * 2, y[:, 4:]], 1)"
DOUBLED_GRADIENT = "w = self.weight * 2; return torch.tanh(x) * (w - w.detach() / 2)"


def record_of(forward: str, folder: Path, home: Path) -> EvaluationRecord:
    answer = PROBLEM.replace("Model(nn", "ModelNew(nn").replace("return torch.tanh(x) * self.weight", forward)
    return in_process.judged(PROBLEM, answer, folder, home)


def test_a_record_tells_where_an_output_is_wrong(tmp_path: Path, home: Path) -> None:
    record = record_of(WRONG_CHANNEL, tmp_path, home)
    (report,) = record.outputs
    assert report.wrong == 54
    assert report.pattern == "exactly the elements at index 3 in dimension 1; received is 2 times expected"
    assert report.worst_index is not None
    assert report.received is not None
    assert report.expected is not None
    assert report.allowed is not None
    assert report.worst_index[1] == 3
    assert report.received == pytest.approx(2 * report.expected)
    assert report.eager == pytest.approx(report.expected)
    assert 0 < report.allowed < 1e-3
    first, worst, wrong, *_ = record.message.splitlines()
    assert first.startswith("output: relative L2 error")
    assert worst.startswith(f"  worst at {list(report.worst_index)}: received {report.received:.6g}, expected")
    assert wrong == f"  54 of 432 elements wrong (12.5 %): {report.pattern}"
    assert "54 of 432 elements wrong" in next(text for text in sections(record) if text.startswith("tensors"))
    assert EvaluationRecord.from_json(record.to_json()).outputs == record.outputs


@pytest.mark.parametrize(("forward", "is_class"), [("{} * 1.001", False), ("{}.half().float()", True)])
def test_a_scale_error_is_no_lower_precision(forward: str, is_class: bool, tmp_path: Path, home: Path) -> None:
    record = record_of("return " + forward.format("(torch.tanh(x) * self.weight)"), tmp_path, home)
    assert record.status is Status.WRONG_OUTPUT
    assert ("its precision is of class" in record.message) == is_class


def test_a_record_tells_where_a_gradient_is_wrong(tmp_path: Path, home: Path) -> None:
    record = record_of(DOUBLED_GRADIENT, tmp_path, home)
    x, weight = sorted(record.gradients, key=lambda report: report.name != "x")
    assert (x.ok, x.wrong, x.pattern) == (True, None, "")
    assert (weight.ok, weight.wrong, weight.pattern) == (False, 8, "received is 2 times expected")
    assert "gradient of weight under the" in record.message


def test_gradients_in_pieces_of_the_batch(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.judge.evaluation.drawn_case.EXACT_SHARE", 10**7)
    wrong_sample = "y = torch.tanh(x) * self.weight; return torch.cat([y[:4], y[4:5] * 2, y[5:]])"
    record = record_of(wrong_sample, tmp_path, home)
    assert record.reference_pieces > 1
    (report,) = record.outputs
    words = "exactly the elements at index 4 in dimension 0; received is 2 times expected"
    assert (report.wrong, report.pattern) == (72, words)
    assert report.worst_index is not None
    assert report.worst_index[0] == 4
    assert report.eager == pytest.approx(report.expected)
    x = next(report for report in record.gradients if report.name == "x")
    assert (x.wrong, x.pattern) == (72, words)


def test_where_eager_itself_overflows_a_failed_copy_is_told_so(tmp_path: Path, home: Path) -> None:
    overflows = PROBLEM.replace("torch.tanh(x) * self.weight", "torch.exp(40 * x) * self.weight")
    record = in_process.judged(overflows, overflows.replace("Model(nn", "ModelNew(nn"), tmp_path, home)
    assert record.status is Status.WRONG_GRADIENT
    assert "eager's is not finite there, so right answers may fail, too: `validate` of the problem" in record.message
    assert "eager's is not finite" not in record_of(DOUBLED_GRADIENT, tmp_path, home).message
