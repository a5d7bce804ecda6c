"""Where temporary files lie."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.errors import HarnessError
from harness.system.scratch import check_temporary_folder


def test_an_ordinary_temporary_folder_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=0))
    check_temporary_folder()


def test_a_folder_that_compilers_do_not_take_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/tmp/a\nb")
    with pytest.raises(HarnessError, match=r"has a line break in its name.*set TMPDIR"):
        check_temporary_folder()


@pytest.mark.skipif(not hasattr(os, "ST_NOEXEC"), reason="this system does not tell how a folder is mounted")
def test_a_folder_from_which_nothing_can_be_loaded_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC))
    with pytest.raises(HarnessError, match=r"is mounted noexec.*set TMPDIR"):
        check_temporary_folder()


def test_a_name_that_is_no_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    monkeypatch.setattr("tempfile.tempdir", place)
    with pytest.raises(HarnessError, match="no text in this locale"):
        check_temporary_folder()
