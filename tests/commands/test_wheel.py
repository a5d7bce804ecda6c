"""Tests the wheel, built from the sdist and installed alone: it judges, and writes nothing into its folder."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Harness = Callable[..., Any]
REPOSITORY = Path(__file__).resolve().parents[2]
LEFT_BEHIND = ("__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis")


def python(*arguments: str | Path, cwd: Path) -> None:
    ran = subprocess.run([sys.executable, *map(str, arguments)], cwd=cwd, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def sources(folder: Path) -> set[str]:
    """The files that belong to the project, without what tools leave behind."""
    return {name for name in files(folder) if not set(LEFT_BEHIND) & set(Path(name).parts)}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist's files."""
    folder = tmp_path_factory.mktemp("sdist")
    python("-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=REPOSITORY)
    (archive,) = folder.glob("*.tar.gz")
    python("-m", "tarfile", "-e", archive, folder, cwd=folder)
    (inside,) = [path for path in folder.iterdir() if path.is_dir()]
    return inside


@pytest.fixture(scope="module")
def wheel(unpacked: Path) -> Path:
    """The wheel, built from the sdist alone."""
    folder = unpacked.parent / "wheel"
    python("-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "-q", "-w", folder, cwd=unpacked)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The folder that the wheel is installed to."""
    folder = wheel.parent / "installed"
    python("-m", "pip", "install", "--no-deps", "--no-index", "-q", "--target", folder, wheel, cwd=wheel.parent)
    return folder


def test_the_sdist_has_what_builds_and_tests_it(unpacked: Path) -> None:
    for folder in ("harness", "problems", "templates", "solutions", "tests"):
        assert sources(unpacked / folder) == sources(REPOSITORY / folder)
    for name in ("pyproject.toml", ".ci/hatch_build.py", "constraints.txt", "LICENSE", "README.md", "CONTRIBUTING.md"):
        assert (unpacked / name).read_bytes() == (REPOSITORY / name).read_bytes()


def test_the_wheel_has_the_package_and_the_project_and_nothing_else(wheel: Path) -> None:
    expected = {f"harness/{name}" for name in sources(REPOSITORY / "harness")}
    for folder in ("problems", "templates", "solutions"):
        expected |= {f"harness/bundled/{folder}/{name}" for name in sources(REPOSITORY / folder)}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    metadata = {name for name in names if ".dist-info/" in name}
    assert names - metadata == expected
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in metadata)


def test_the_installed_wheel_judges_and_stays_as_it_is(harness: Harness, installed: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> Any:
        return harness(*arguments, cwd=tmp_path, PYTHONPATH=str(installed))

    before = files(installed)
    check = run("render", "--check")
    assert check.code == 0, check.err
    lines = check.err.splitlines()
    assert lines
    assert all(line.startswith(f"fresh {installed / 'harness' / 'bundled'}") for line in lines)

    ran = run("evaluate", "--fresh", "group_norm/fused", "--case", "odd", "--device", "cpu", "--json")
    assert ran.code == 0, ran.out + ran.err
    assert [(row["solution"], row["status"]) for row in ran.rows] == [("group_norm/fused", "PASSED")]

    for words in (["group_norm"], ["--all"], ["group_norm", "-p", "threads=64", "--name", "mine"]):
        refused = run("render", *words)
        assert (refused.code, refused.out) == (2, "")
        for word in (str(installed / "harness" / "bundled"), "part of the harness's installation", "-o FILE", "--root"):
            assert word in refused.err
    refused = run("new", "problem", "mine", "--root", str(installed / "harness" / "bundled"))
    assert refused.code == 2
    assert "part of the harness's installation" in refused.err

    assert run("render", "group_norm", "-p", "threads=64", "-o", "mine.py").code == 0
    assert run("new", "problem", "mine").code == 0
    assert run("new", "template", "mine", "--problem", "mine").code == 0
    assert run("render", "mine").code == 0
    assert {"mine.py", "solutions/mine/mine.py", "templates/mine/binding.h"} <= files(tmp_path)
    assert files(installed) == before
