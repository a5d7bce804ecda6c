"""Tests the report of a run: every figure in its place, and a reason for every gap."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.records.record import EvaluationRecord, PrecisionClass, Status
from harness.report.agreement import markdown_agreement, overlap
from harness.report.benchmark import as_json, markdown
from harness.report.scores import print_scores
from harness.timing.scores import score
from harness.timing.statistics import latency, median_interval

COMMAND = "python -m harness benchmark"


def measured(solution: str, candidate_ms: float, seed: int = 1, **changes: Any) -> EvaluationRecord:
    """A record as a GPU gives it: 30 rounds in either direction, eager at 9 and 18 ms, ``compile`` at 6 and 12."""
    noise = random.Random(seed)
    samples: dict[str, Any] = {}
    floor: dict[str, Any] = {}
    for direction, factor in (("forward", 1.0), ("forward_backward", 2.0)):
        sides = {"candidate": candidate_ms, "eager": 9.0, "compile": 6.0}
        for side, ms in sides.items():
            series = [ms * factor * (1 + abs(noise.gauss(0, 0.004))) for _ in range(30)]
            samples.setdefault(direction, {})[side] = vars(latency(series, series))
        of_candidate = median_interval(samples[direction]["candidate"]["samples_ms"])
        share = [3.51 * factor / one for one in (of_candidate.ratio, of_candidate.high, of_candidate.low)]
        floor[direction] = {"floor_ms": 3.51 * factor, "bound": "bytes", "share": share}
    record = EvaluationRecord(
        problem="norm",
        solution=solution,
        case="full",
        device="cuda:0",
        status=Status.PASSED,
        message="",
        seed="ab",
        digest=solution,
        problem_digest="p",
        precision_class=PrecisionClass.FP32,
        samples=samples,
        baselines={"eager": {}, "compile": {"prepare_s": 43.125, "note": "2 graph breaks"}},
        floor=floor,
        peak_bytes={"forward": {"candidate": 7 * 2**30, "eager": 14 * 2**30}},
        environment={"gpu": "NVIDIA H200", "torch": "2.11.0", "harness": "0.1.0"},
        created_at="2026-01-01T00:00:00+00:00",
    )
    return replace(record, **changes)


def cells(text: str, heading: str, label: str, case: str = "full") -> dict[str, str]:
    """A row of the table under a heading, by the header's names."""
    table = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    (row,) = (row for row in rows if row[0] == label and (heading == "Environment" or row[1] == case))
    return dict(zip(rows[0], row, strict=True))


def without_candidate(record: EvaluationRecord, direction: str) -> EvaluationRecord:
    sides = {"uncertified" if side == "candidate" else side: of for side, of in record.samples[direction].items()}
    return replace(record, samples={**record.samples, direction: sides})


def test_a_row_has_every_figure() -> None:
    text = markdown([measured("norm/fused", 5.37)], COMMAND, 12.34, "Group norm")
    assert text.startswith("# Group norm\n")
    assert f"\n    {COMMAND}\n\nin 12.3 s.\n" in text
    forward, both = cells(text, "Forward", "norm/fused"), cells(text, "Forward+backward", "norm/fused")
    assert forward["candidate ms"].startswith("5.3")
    assert both["candidate ms"].startswith("10.7")
    assert forward["eager ms"].startswith("9.0")
    assert forward["compile ms"].startswith("6.0")
    assert forward["over eager"] == "1.677x [1.672, 1.681]"
    assert forward["over compile"].startswith("1.11")
    assert forward["share of floor"] == "65.2 %"
    assert forward["floor ms (bound by)"] == "3.510 (bytes)"
    assert both["floor ms (bound by)"] == "7.020 (bytes)"
    assert (forward["peak GiB"], forward["eager's peak GiB"]) == ("7.00", "14.0")
    assert (both["peak GiB"], both["eager's peak GiB"]) == ("-", "-")


def test_an_interval_is_that_of_the_median() -> None:
    record = measured("norm/fused", 5.37)
    (row,) = as_json([record], COMMAND)["directions"]["forward"]
    found = median_interval(record.samples["forward"]["candidate"]["samples_ms"]).widened()
    assert row["latency"]["candidate"] == [*found, False]
    assert row["speedup"]["eager"][1] < row["speedup"]["eager"][0] < row["speedup"]["eager"][2]


def test_what_has_no_figure_says_why() -> None:
    records = [
        measured("norm/wrong", 1.0, status=Status.WRONG_OUTPUT, message="output: relative L2 error 3.6e-01\nmore"),
        measured("norm/liar", 1.0, status=Status.CHEATED, rule="clock", message="too fast"),
        without_candidate(
            measured("norm/small", 1.0, message="note: speed (forward) is not certified and does not count: no memory"),
            "forward",
        ),
        measured("norm/cpu", 1.0, samples={}, device="cpu"),
        measured("norm/half", 1.0, samples={}, message="speed was not measured: eager died"),
        measured("norm/gone", 1.0, samples={}),
    ]
    text = markdown(records, COMMAND)
    why = {name: cells(text, "Forward", f"norm/{name}")["candidate ms"] for name in
           ("wrong", "liar", "small", "cpu", "half", "gone")}  # fmt: skip
    assert why["wrong"] == "WRONG_OUTPUT: output: relative L2 error 3.6e-01"
    assert why["liar"] == "CHEATED: clock: too fast"
    assert why["small"] == "not timed: speed (forward) is not certified and does not count: no memory"
    assert why["cpu"] == "not timed: the CPU emulator does not measure speed"
    assert why["half"] == "not timed: speed was not measured: eager died"
    assert why["gone"] == "not timed"
    for name in why:
        assert cells(text, "Forward", f"norm/{name}")["over eager"] == "-"
        assert cells(text, "Forward", f"norm/{name}")["share of floor"] == "-"
    assert cells(text, "Forward+backward", "norm/small")["candidate ms"].startswith("2.0")
    scored = text.split("## Scores\n")[1].splitlines()[3]
    assert scored.startswith("| forward | eager | 4 | 4 | 2 | - | - |")


def test_a_speed_that_is_not_counted_is_not_taken_from_elsewhere() -> None:
    kept = {"forward": [99.0, 98.0, 100.0]}
    record = without_candidate(measured("norm/fused", 5.0), "forward")
    record = replace(record, forward_ms=0.1, speedup={"forward": 99.0}, baselines={"eager": {"speedup": kept}})
    row = cells(markdown([record], COMMAND), "Forward", "norm/fused")
    assert row["over eager"] == "-"
    assert row["candidate ms"].startswith("not timed")


def test_notes_tell_what_to_know_and_each_thing_once() -> None:
    about = {
        "compile": {"prepare_s": 43.125, "note": "2 graph breaks"},
        "compile-max-autotune": {"failure": "out of memory"},
    }
    flags = ["throttled by power: raise the limit"]
    message = "note: other streams were at work\nnote: speed (forward) is not certified"
    two = [
        measured(name, ms, baselines=about, device_state={"flags": flags}, message=message)
        for name, ms in (("norm/a", 5.0), ("norm/b", 3.0))
    ]
    both = "norm/a full, norm/b full: "
    notes = as_json(two, COMMAND)["notes"]
    assert f"{both}compile: 2 graph breaks" in notes
    assert f"{both}compile took 43.1 s to compile" in notes
    assert f"{both}compile-max-autotune could not be timed: out of memory" in notes
    assert f"{both}the device was not stable: {flags[0]}" in notes
    assert f"{both}other streams were at work" in notes
    assert not any("certified" in note for note in notes)
    (below,) = (note for note in notes if "forward: below the floor (116." in note)
    assert below.startswith("norm/b full: ")
    assert all(f"\n- {note}\n" in markdown(two, COMMAND) for note in notes)


def test_latencies_of_an_earlier_record_are_marked_and_give_no_score() -> None:
    record = measured("norm/fused", 5.0)
    for sides in record.samples.values():
        del sides["compile"]
    record = replace(record, baselines={"compile": {"forward_ms": 6.0, "kept_from": "abcdef012345"}})
    text = markdown([record], COMMAND)
    row = cells(text, "Forward", "norm/fused")
    assert (row["compile ms"], row["over compile"]) == ("6.000 (kept)", "-")
    assert "its latencies are those of record abcdef012345" in text
    assert "| forward | eager | 1 |" in text
    assert "| forward | compile |" not in text


def test_records_that_disagree_on_the_environment_show_all_values() -> None:
    state = {stage: {"sm_clock_mhz": 1980, "power_w": 300} for stage in ("before", "during")}
    one = measured("norm/a", 5.0, device_state=state)
    two = measured("norm/b", 5.0, device_state={"during": {"sm_clock_mhz": 1400, "power_w": 300}})
    two = replace(two, environment={**two.environment, "torch": "2.12.0"})
    text = markdown([one, two], COMMAND)
    assert cells(text, "Environment", "torch")["value"] == "2.11.0, 2.12.0"
    assert cells(text, "Environment", "GPU")["value"] == "NVIDIA H200"
    assert "| sm_clock_mhz | 1980 | 1690 (1400 to 1980) | - |" in text
    assert "| power_w | 300 | 300 | - |" in text


def test_modes_of_short_calls_have_a_table() -> None:
    modes = {
        "forward": {
            "graph": {"candidate_ms": 0.00712, "eager_ms": 0.0211, "overhead_ms": 0.0029},
            "kernels": {"failure": "no kernel was seen"},
        }
    }
    text = markdown([measured("norm/fused", 5.0, modes=modes)], COMMAND)
    assert "| norm/fused | full | forward | graph | 0.007120 | 0.02110 | 0.002900 | - |" in text
    assert "| norm/fused | full | forward | kernels | - | - | - | no kernel was seen |" in text
    assert "## Short calls" not in markdown([measured("norm/fused", 5.0)], COMMAND)


def test_names_are_no_markdown() -> None:
    name = "norm/a|b`c`<img>\n[x](http://y)"
    text = markdown([measured(name, 5.0)], COMMAND)
    assert "| norm/a\\|b\\`c\\`\\<img>\\\\x0a[x]\\(http://y) | full |" in text


def test_a_custom_case_says_what_it_is_and_a_file_which_problem_it_answers() -> None:
    text = markdown([measured("mine.py", 5.0, case="custom", constants={"n": 5})], COMMAND)
    assert cells(text, "Forward", "mine.py on norm", "custom n=5")["candidate ms"].startswith("5.0")


def test_scores_are_printed_as_in_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    records = [measured("norm/a", 5.0), measured("norm/b", 5.0, status=Status.CRASHED)]
    print_scores([score(records, "eager", "forward")])
    out = capsys.readouterr().out
    text = markdown(records, COMMAND)
    mean = text.split("## Scores\n")[1].splitlines()[3].split(" | ")[5]
    assert mean == "1.801x [1.796, 1.806]"
    assert mean in out
    assert "50 %" in out
    print_scores([])
    assert capsys.readouterr().out == ""


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["nan", "inf", "", "|", "candidate"])
    | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["forward", "forward_backward", "candidate", "eager", "|`", "samples_ms", "speedup", "share", "floor_ms",
             "bound", "note", "failure", "flags", "before", "during", "graph", "candidate_ms", "uncertified"]
        ), inner, max_size=3,
    ),
    max_leaves=12,
)  # fmt: skip
OBJECT = st.dictionaries(st.sampled_from(["forward", "eager", "compile", "before", "flags"]), ANYTHING, max_size=3)


@settings(max_examples=60)
@given(st.sampled_from(["samples", "baselines", "floor", "modes", "device_state"]), OBJECT, st.booleans())
def test_nothing_in_a_file_makes_it_fail(name: str, value: dict[str, Any], is_bare: bool) -> None:
    whole = measured("norm/fused", 5.0)
    bare = replace(whole, samples={}, baselines={}, floor={}, peak_bytes={}, environment={})
    record = replace(bare if is_bare else whole, **{name: value})
    text = markdown([record], COMMAND)
    json.dumps(as_json([record], COMMAND), allow_nan=False)
    markdown_agreement(overlap([record], [whole]))
    lines = text.splitlines()
    for line, after in itertools.pairwise(lines):
        if line.startswith("|") and after.startswith("|"):
            assert line.replace("\\|", "").count("|") == after.replace("\\|", "").count("|")


@pytest.mark.parametrize("records", [[], [measured("norm/a", 1.0, status=Status.BUILD_ERROR, samples={}, floor={})]])
def test_a_run_without_a_figure_is_a_report_too(records: Sequence[EvaluationRecord]) -> None:
    assert "## Forward\n" in markdown(records, COMMAND)
    assert "## Forward+backward\n" not in markdown(records, COMMAND)
    assert as_json(records, COMMAND)["seconds"] is None


def test_two_runs_of_the_same_agree_and_two_of_different_speed_do_not() -> None:
    names = [f"norm/{number}" for number in range(20)]
    before = [measured(name, 5.0, seed) for seed, name in enumerate(names)]
    again = [measured(name, 5.0, seed + 100) for seed, name in enumerate(names)]
    slower = [measured(name, 5.5, seed + 100) for seed, name in enumerate(names)]
    rows = overlap(before, again)
    assert len(rows) == 20 * 2 * 3
    assert {row.quantity for row in rows} == {"candidate", "over eager", "over compile"}
    text = markdown_agreement(rows)
    agreed = sum(row.overlaps is True for row in rows if row.quantity == "candidate")
    assert agreed >= 38
    words = f"latency of candidates: the 95 % intervals of {agreed} out of 40 figures overlap ("
    assert words in text
    assert "; the requirement is 95.0 %: accepted)" in text
    assert not any(row.overlaps for row in overlap(before, slower))
    assert (
        "over eager: the 95 % intervals of 0 out of 40 figures overlap (0.0 %; the requirement is 95.0 %: not accepted)"
        in (markdown_agreement(overlap(before, slower)))
    )


def test_what_only_one_run_has_does_not_count_for_agreement() -> None:
    one, two = measured("norm/a", 5.0), measured("norm/b", 5.0)
    rows = overlap([one, two], [one, replace(two, status=Status.CRASHED)])
    assert {row.overlaps for row in rows if row.solution == "norm/b"} == {None}
    assert {row.overlaps for row in rows if row.solution == "norm/a"} == {True}
    text = markdown_agreement(rows)
    assert "the 95 % intervals of 2 out of 2 figures overlap" in text
    assert "2 cannot be compared" in text
    assert "nothing to compare" in markdown_agreement([])
