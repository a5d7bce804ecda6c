"""Tests ``scores --badge``: an SVG that says how many samples are correct, whatever is in their names."""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.records.record import EvaluationRecord, PrecisionClass, Status

Harness = Callable[..., Any]
SVG = "{http://www.w3.org/2000/svg}"
LATENCY = {"median_ms": 1.0, "low_ms": 1.0, "high_ms": 1.0, "spread_ms": 0.0}


def record(number: int, status: Status, ratio: float | None = None, direction: str = "forward") -> EvaluationRecord:
    """A record of a problem of its own, with ten equal pairs if it was timed."""
    made = EvaluationRecord(
        problem=f"p{number}",
        solution=f"p{number}/fast",
        case="full",
        device="cpu" if ratio is None else "cuda:0",
        status=status,
        message="",
        seed="ab",
        digest=f"d{number}",
        problem_digest="p",
        precision_class=PrecisionClass.FP32,
        record=f"{number:012x}",
    )
    if ratio is None:
        return made
    sides = {"candidate": {**LATENCY, "samples_ms": [1.0] * 10}, "eager": {**LATENCY, "samples_ms": [ratio] * 10}}
    return replace(made, samples={direction: sides}, speedup={direction: ratio})


def drawn(harness: Harness, folder: Path, records: list[EvaluationRecord], *options: str) -> ElementTree.Element:
    (folder / "results.jsonl").write_text("".join(f"{one.to_json()}\n" for one in records))
    ran = harness("scores", "results.jsonl", "--badge", "badge.svg", *options, cwd=folder)
    assert (ran.code, ran.out) == (0, ""), ran.err
    return ElementTree.fromstring((folder / "badge.svg").read_bytes())


def texts_of(svg: ElementTree.Element) -> list[str | None]:
    return [one.text for one in svg.iter(f"{SVG}text")]


@pytest.mark.parametrize("direction", ["forward", "forward_backward"])
def test_a_badge_has_the_correct_ones_and_their_speed(harness: Harness, tmp_path: Path, direction: str) -> None:
    records = [record(1, Status.PASSED, 1.0, direction), record(2, Status.PASSED, 4.0, direction)]
    svg = drawn(harness, tmp_path, [*records, record(3, Status.WRONG_OUTPUT)])
    assert texts_of(svg) == ["kernels", "2 of 3 correct, 2.0x"]
    words = direction.replace("_", "+")
    told = f"kernels: 2 of 3 correct, geometric mean of speedups over eager 2.0x (2 timed, {words})"
    assert (svg.attrib["role"], svg.attrib["aria-label"], svg.findtext(f"{SVG}title")) == ("img", told, told)


@pytest.mark.parametrize(
    ("statuses", "words", "color"),
    [
        ([Status.PASSED], "1 of 1 correct", "#2e7d32"),
        ([Status.PASSED, Status.CHEATED], "1 of 2 correct", "#b45309"),
        ([Status.TIMEOUT], "0 of 1 correct", "#b91c1c"),
    ],
)
def test_without_times_a_badge_has_no_speed(
    harness: Harness, tmp_path: Path, statuses: list[Status], words: str, color: str
) -> None:
    svg = drawn(harness, tmp_path, [record(number, status) for number, status in enumerate(statuses)])
    assert texts_of(svg) == ["kernels", words]
    assert [one.attrib.get("fill") for one in svg.iter(f"{SVG}rect")] == [None, "#555", color]


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ('</text><script>alert("1")</script>', '</text><script>alert("1")</script>'),
        ("a & b 'c' \x1b[31m\n{{ width }}{% raw %}", "a & b 'c' \\x1b[31m\\x0a{{ width }}{% raw %}"),
        ("\udcff", "\\udcff"),
        ("", None),
        ("long " * 100, f"{('long ' * 100)[:57]}..."),
    ],
)
def test_a_label_is_text_and_nothing_else(harness: Harness, tmp_path: Path, label: str, shown: str | None) -> None:
    svg = drawn(harness, tmp_path, [record(1, Status.PASSED)], "--label", label)
    assert texts_of(svg)[0] == shown
    assert {one.tag.removeprefix(SVG) for one in svg.iter()} == {"svg", "title", "clipPath", "rect", "g", "text"}


def test_the_fields_hold_their_texts(harness: Harness, tmp_path: Path) -> None:
    svg = drawn(harness, tmp_path, [record(1, Status.PASSED)], "--label", "WWWW iiii")
    _, left, right = (float(one.attrib["width"]) for one in svg.iter(f"{SVG}rect"))
    assert float(svg.attrib["width"]) == pytest.approx(left + right)
    for text, begin, width in zip(svg.iter(f"{SVG}text"), (0.0, left), (left, right), strict=True):
        length, middle = float(text.attrib["textLength"]), float(text.attrib["x"])
        assert begin < middle - length / 2
        assert middle + length / 2 < begin + width


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--badge", "folder"], "it is a folder, not a file"),
        (["--badge", "pipe"], "it is a pipe, not a file"),
        (["--badge", "none/badge.svg"], "cannot write none/badge.svg"),
        (["--badge", "badge.svg", "--csv"], "leave out --csv"),
        (["--badge", "badge.svg", "--kernelbench", "runs"], "leave out --badge"),
    ],
)
def test_what_cannot_be_written_is_refused(harness: Harness, tmp_path: Path, options: list[str], words: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "results.jsonl").write_text(record(1, Status.PASSED).to_json())
    ran = harness("scores", "results.jsonl", *options, cwd=tmp_path)
    assert (ran.code, ran.out, words in ran.err, "Traceback" in ran.err) == (2, "", True, False), ran.err
    assert not re.search(r"\.svg|written", " ".join(path.name for path in tmp_path.iterdir()))
