"""Tests the scores of samples: what they count, and over what."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest

from harness.records.record import EvaluationRecord, PrecisionClass, Status
from harness.report.sample_scores import (
    as_csv,
    as_json,
    kernelbench_results,
    print_sample_scores,
    results_of,
    sample_name,
)
from harness.timing.sample_scores import Counting, SampleScore, pass_at_k, sample_scores
from harness.timing.statistics import latency


def record(name: str, status: Status = Status.PASSED, speedup: float | None = None, **changes: Any) -> EvaluationRecord:
    """A record of ``MODEL/LEVEL/PROBLEM/sample_N``, of 2 ms and noiseless if it has a speedup."""
    *_, level, problem, _ = name.split("/")
    samples = {}
    if speedup is not None:
        sides = {"candidate": 2.0, "eager": 2 * speedup}
        samples = {"forward": {side: vars(latency([ms] * 10, [ms] * 10)) for side, ms in sides.items()}}
    return EvaluationRecord(
        problem=problem,
        solution=name,
        case="full",
        device="cuda:0",
        status=status,
        message="",
        seed="ab",
        digest="d",
        problem_digest="p",
        precision_class=PrecisionClass.FP32,
        problem_path=f"/problems/{level}/{problem}.py",
        samples=samples,
        forward_ms=None if speedup is None else 2.0,
        **changes,
    )


def scored(records: list[EvaluationRecord], counting: Counting = Counting.PASSED) -> list[SampleScore]:
    """The scores in one way of counting."""
    return [one for one in sample_scores(results_of(records)) if one.counting is counting]


WRONG = Status.WRONG_OUTPUT


@pytest.mark.parametrize(
    ("samples", "correct", "k", "expected"),
    [(1, 1, 1, 1.0), (1, 0, 1, 0.0), (4, 1, 1, 0.25), (4, 1, 2, 0.5), (4, 2, 2, 5 / 6), (5, 5, 5, 1.0), (5, 1, 5, 1.0)],
)
def test_pass_at_k(samples: int, correct: int, k: int, expected: float) -> None:
    assert pass_at_k(samples, correct, k) == pytest.approx(expected)


def test_pass_at_k_needs_k_samples() -> None:
    with pytest.raises(ValueError, match="pass@2"):
        pass_at_k(1, 1, 2)


def test_problems_count_alike_however_many_samples_they_have() -> None:
    names = [sample_name("m", "level1", "1_A", n) for n in range(4)]
    records = [record(names[0]), *(record(name, WRONG) for name in names[1:])]
    records.append(record(sample_name("m", "level1", "2_B", 0)))
    (score,) = scored(records)
    assert (score.model, score.level) == ("m", "level1")
    assert (score.problems, score.solved, score.samples, score.correct) == (2, 2, 5, 2)
    assert score.pass_at == {1: pytest.approx((0.25 + 1) / 2)}


def test_speed_is_of_the_best_and_of_the_mean() -> None:
    records = [
        record(sample_name("", "level1", "1_A", 0), speedup=3.0),
        record(sample_name("", "level1", "1_A", 1), speedup=1.2),
        record(sample_name("", "level1", "2_B", 0), speedup=0.5),
        record(sample_name("", "level1", "2_B", 1), WRONG),
    ]
    (score,) = scored(records)
    fast = score.fast["forward"]
    assert fast[1.0][:] == (0.5, 0.5, 0.5)
    assert fast[1.5][:] == (0.5, 0.5, 0.25)
    assert score.timed == {"forward": 3, "forward_backward": 0}
    assert "forward_backward" not in score.fast
    assert score.mean["forward"].ratio == pytest.approx((3.0 * 1.2 * 0.5) ** (1 / 3))


def test_a_sample_is_correct_if_all_its_cases_pass() -> None:
    name = sample_name("", "level1", "1_A", 0)
    (score,) = scored([record(name, speedup=2.0), replace(record(name, WRONG), case="odd")])
    assert (score.samples, score.correct, score.timed["forward"]) == (1, 0, 0)


def test_levels_and_models_have_scores_of_their_own_and_a_total() -> None:
    places = [("a", "level1"), ("a", "level2"), ("b", "level1")]
    records = [record(sample_name(model, level, "1_A", 0)) for model, level in places]
    found = [(one.model, one.level, one.samples) for one in scored(records)]
    assert found == [("a", "level1", 1), ("a", "level2", 1), ("a", "", 2), ("b", "level1", 1)]


def test_other_solutions_are_samples_of_their_problem() -> None:
    records = [replace(record("x/level1/1_A/sample_0"), solution=name) for name in ("1_A/fused", "1_A/plain")]
    assert [(one.model, one.number) for one in results_of(records)] == [("", 0), ("", 1)]


def test_kernelbench_reads_results_by_number() -> None:
    records = [
        record("m/level1/10_A/sample_0", speedup=2.0),
        record("m/level1/2_B/sample_1", Status.BUILD_ERROR),
        record("m/level1/2_B/sample_0", WRONG),
        record("m/level1/no_number/sample_0"),
    ]
    runs = kernelbench_results(records)
    assert list(runs) == ["m/level1"]
    assert list(runs["m/level1"]) == ["2", "10"]
    build, wrong = runs["m/level1"]["2"]
    assert (build["sample_id"], build["compiled"], build["correctness"], build["runtime"]) == (1, False, False, -1.0)
    assert (wrong["compiled"], wrong["correctness"]) == (True, False)
    assert runs["m/level1"]["10"][0]["runtime"] == 2.0


def test_a_model_s_name_is_no_formula_in_a_spreadsheet() -> None:
    rows = as_csv([record("=1+1/level1/1_A/sample_0", speedup=2.0)]).splitlines()
    assert rows[1].startswith("'=1+1,level1,passed,eager,fp32,")
    assert len(rows[0].split(",")) == len(rows[1].split(","))


def beside(name: str, status: Status, correct: bool, speedup: float | None = None, **changes: Any) -> EvaluationRecord:
    """A record with KernelBench's verdict beside the harness's."""
    told: dict[str, Any] = {"correct": correct, "tolerance": 1e-4, "error": 1e-3, "trials": 5}
    if correct and speedup is not None:
        told |= {"runtime_ms": 2.5, "eager_ms": 2.5 * speedup, "speedup": speedup}
    return replace(record(name, status, speedup=speedup, **changes), kernelbench=told, policy={"preset": "kernelbench"})


def test_kernelbench_s_own_verdict_is_scored_beside() -> None:
    records = [
        beside("m/level1/1_A/sample_0", Status.PASSED, True, 1.2),
        beside("m/level1/2_B/sample_0", WRONG, True),
        beside("m/level1/3_C/sample_0", WRONG, False),
    ]
    (mine,), (theirs,) = scored(records), scored(records, Counting.KERNELBENCH)
    assert (mine.correct, theirs.correct, mine.pass_at[1], theirs.pass_at[1]) == (1, 2, 1 / 3, 2 / 3)
    assert theirs.fast["forward"][1.0] == (1 / 3, None, 1 / 3)
    assert theirs.mean["forward"] == (pytest.approx(1.2), None, None)
    assert [one.counting for one in sample_scores(results_of([record("m/level1/1_A/sample_0")]))] == [
        "passed",
        "own kernel",
    ]
    (entry,) = kernelbench_results(records)["m/level1"]["1"]
    assert (entry["correctness"], entry["runtime"], entry["runtime_stats"]) == (True, 2.5, {"mean": 2.5})
    (entry,) = kernelbench_results(records)["m/level1"]["2"]
    assert (entry["correctness"], entry["runtime"]) == (True, -1.0)


def test_samples_without_own_kernels_have_no_share_in_their_own_score() -> None:
    records = [
        record("m/level1/1_A/sample_0", speedup=3.0, own_share=0.0),
        record("m/level1/2_B/sample_0", speedup=1.2, own_share=0.9),
    ]
    (mine,), (own,) = scored(records), scored(records, Counting.OWN_KERNEL)
    assert (mine.correct, mine.own, own.correct, own.own) == (2, 1, 1, 1)
    assert (mine.fast["forward"][1.5].best, own.fast["forward"][1.5].best) == (0.5, 0.0)
    assert own.mean["forward"].ratio == pytest.approx(1.2)


def test_each_score_says_what_it_is_over_and_how_it_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        beside("m/level1/1_A/sample_0", Status.PASSED, True, 1.2, own_share=0.5),
        replace(record("m/level1/2_B/sample_0"), precision_class=PrecisionClass.TEN_BIT),
    ]
    for row in as_json(records):
        assert (row["baseline"], row["precision"], row["problems"]) == ("eager", "10-bit, fp32", 2)
        assert "CUDA events" in row["clock"]
    assert as_csv(records).splitlines()[0].startswith("model,level,counting,baseline,precision,clock,problems,")
    print_sample_scores(records)
    told = " ".join(capsys.readouterr().out.split())
    for counting in ("passed", "kernelbench"):
        assert f"{counting}: correct if" in told
    assert "precision 10-bit, fp32; speedup over eager; certified CUDA events in paired rounds" in told
    assert "problems: those with a judged answer" in told
    (untimed, _) = as_json([replace(record("m/level1/1_A/sample_0"), device="cpu")])
    assert untimed["clock"] is None


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """A terminal."""
        return True


def test_a_narrow_terminal_breaks_no_name_and_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [record(f"a_model_with_a_name/level1/19_ReLU/sample_{number}", speedup=1.5) for number in range(10)]
    tables = {}
    for width in (60, 400):
        monkeypatch.setenv("COLUMNS", str(width))
        stream = Terminal()
        print_sample_scores(records, stream)
        tables[width] = [line.rstrip() for line in stream.getvalue().splitlines() if "level1" in line]
        assert max(map(len, tables[width])) <= width
    assert "100.0 %  100.0 %  100.0 %" in tables[400][0]
    name, *cells = tables[60][0].split("  ")
    assert name == "a_model_with_a_name level1"
    assert [cell.strip() for cell in cells if cell][-2:] == ["10", "100.0 %"]


def test_samples_that_this_machine_cannot_run_are_counted_in_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = record("m/level1/1_A/sample_0", WRONG)
    print_sample_scores([wrong])
    assert "in no score" not in capsys.readouterr().out
    print_sample_scores([wrong, record("m/level1/1_A/sample_1", Status.UNSUPPORTED)])
    out = " ".join(capsys.readouterr().out.split())
    assert "unsupported on this machine, so in no score: 1 of 2 samples" in out
    assert "m level1 1 0 1 0 " in out
    print_sample_scores([record("m/level1/1_A/sample_1", Status.UNSUPPORTED)])
    assert "m level1 0 0 0 0 " in " ".join(capsys.readouterr().out.split())


def test_a_failure_in_one_case_is_a_verdict() -> None:
    unsupported = record("m/level1/1_A/sample_0", Status.UNSUPPORTED)
    (score,) = scored([unsupported, replace(unsupported, case="other", status=WRONG)])
    assert (score.samples, score.unjudged, score.pass_at[1]) == (1, 0, 0.0)
    assert kernelbench_results([unsupported]) == {}
