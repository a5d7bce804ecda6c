from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.project.paths import harness_home, project_root

REPOSITORY = Path(__file__).resolve().parents[2]


def test_project_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert project_root() == REPOSITORY
    (tmp_path / "problems").mkdir()
    assert project_root() == tmp_path


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "home/.cache/kernel-harness"),
        ("linux", {"XDG_CACHE_HOME": "{root}/xdg"}, "xdg/kernel-harness"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "home/.cache/kernel-harness"),
        ("darwin", {"XDG_CACHE_HOME": "{root}/xdg"}, "home/Library/Caches/kernel-harness"),
        ("linux", {"HARNESS_HOME": "{root}/mine", "XDG_CACHE_HOME": "{root}/xdg"}, "mine"),
        ("linux", {"HARNESS_HOME": "~/mine"}, "home/mine"),
        ("linux", {"HARNESS_HOME": ""}, "home/.cache/kernel-harness"),
    ],
)
def test_harness_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], expected: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HARNESS_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(root=tmp_path))
    assert harness_home() == tmp_path / expected
    assert not (tmp_path / expected).exists()
