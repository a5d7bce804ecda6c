"""Each example of the gallery gets its status, and the page shows what the program prints."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.records.record import Status
from tests.gallery.gallery import REPOSITORY, SHOWN, UNSHOWN, Example, examples_folder, output, section, steady

PAGE = (REPOSITORY / "docs" / "gallery.md").read_text()
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def test_every_status_is_shown_once_or_has_a_reason() -> None:
    shown = [example.status for example in SHOWN]
    assert sorted([*shown, *UNSHOWN]) == sorted(Status)
    assert [*SECTIONS] == [*Status]
    assert all(UNSHOWN[status] in SECTIONS[status] for status in UNSHOWN)


@pytest.mark.parametrize("example", SHOWN, ids=lambda example: str(example.status))
def test_an_example_gets_its_status_as_the_page_shows(harness: Callable[..., Any], example: Example) -> None:
    def run(arguments: list[str], folder: Path, environment: dict[str, str]) -> str:
        ran = harness(*arguments, cwd=folder, **environment)
        assert ran.code == {Status.PASSED: 0, Status.HARNESS_ERROR: 3}.get(example.status, 1), ran.err
        return str(ran.out + ran.err)

    with examples_folder() as folder:
        printed = output(example, folder, run)
    (row,) = [line for line in printed.splitlines() if line.startswith(f"{example.file}  ")]
    assert row.split()[1] == example.status
    written = f"## {example.status}\n{SECTIONS[example.status]}"
    stale = "stale: python -m tests.gallery.gallery > docs/gallery.md"
    assert steady(written, example) == steady(section(example, printed), example), stale
