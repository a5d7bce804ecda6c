"""Tests which sources count as the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.generation.normal_form import normal_digest
from tests.generation.kernels import OVERFITTED, RIGHT


@pytest.mark.parametrize(
    "other",
    [
        RIGHT + "\n# a remark\n",
        RIGHT.replace("x = x.contiguous()", "x  =  x.contiguous()  # now it is"),
        RIGHT.replace("  int i", "      int  i"),
        RIGHT.replace("  int i", "  // the element\n  /* of\n x */ int i"),
    ],
    ids=["remark", "blanks", "blanks in CUDA", "remarks in CUDA"],
)
def test_layout_and_remarks_make_no_other_source(other: str) -> None:
    assert other != RIGHT
    assert normal_digest(other) == normal_digest(RIGHT)


@pytest.mark.parametrize(
    "other",
    [OVERFITTED, RIGHT.replace("x.contiguous()", "x"), RIGHT.replace('name="tanh"', 'name="tan h"'), "("],
    ids=["launch", "call", "short string", "no Python"],
)
def test_other_code_is_another_source(other: str) -> None:
    assert normal_digest(other) != normal_digest(RIGHT)


@given(st.text())
def test_any_text_has_a_digest(text: str) -> None:
    assert normal_digest(text) == normal_digest(text)


def test_deep_nesting_is_no_fault() -> None:
    assert normal_digest("x = " + "-" * 5000 + "1\n") != normal_digest("x = 1\n")


def test_what_nobody_closes_is_no_comment() -> None:
    """To look for the end of each of so many would take hours."""
    assert normal_digest(f'CUDA = """int a;\n{"/* " * 300_000}"""') != normal_digest('CUDA = """int a;\n/* left"""')
