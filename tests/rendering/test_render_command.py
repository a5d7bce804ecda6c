"""Tests ``harness render``: files, streams and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

MakeProject = Callable[..., Path]
REPOSITORY = Path(__file__).resolve().parents[2]


def harness(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness", *arguments]
    environment = {"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def solutions(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (root / "solutions" / "scale").glob("*")}


def test_default_variant_is_written_once(make_project: MakeProject) -> None:
    root = make_project()
    first = harness("render", "demo", folder=root)
    assert (first.returncode, first.stdout, first.stderr) == (0, "", "wrote solutions/scale/plain.py\n")
    assert solutions(root).keys() == {"plain.py"}
    second = harness("render", "demo", folder=root)
    assert (second.returncode, second.stdout, second.stderr) == (
        0,
        "",
        "unchanged solutions/scale/plain.py\n",
    )


def test_named_variant_all_and_check(make_project: MakeProject) -> None:
    root = make_project()
    assert harness("render", "demo", "--variant", "fancy", folder=root).returncode == 0
    assert "FANCY = True" in solutions(root)["fancy.py"]

    everything = harness("render", "--all", folder=root)
    assert everything.returncode == 0
    assert everything.stderr == "wrote solutions/scale/plain.py\nunchanged solutions/scale/fancy.py\n"
    assert harness("render", "--check", folder=root).returncode == 0

    plain = root / "solutions" / "scale" / "plain.py"
    fancy = root / "solutions" / "scale" / "fancy.py"
    plain.write_text(plain.read_text() + "# mine\n")
    template = root / "templates" / "common" / "fancy.txt"
    template.write_text("FANCY = 2\n")
    edited = plain.read_text()
    check = harness("render", "--check", folder=root)
    assert check.returncode == 1
    assert check.stderr == "edited by hand solutions/scale/plain.py\nstale solutions/scale/fancy.py\n"
    assert plain.read_text() == edited

    plain.write_text("THREADS = 1\n")
    fancy.unlink()
    check = harness("render", "--check", folder=root)
    assert check.stderr == "not rendered solutions/scale/plain.py\nmissing solutions/scale/fancy.py\n"


def test_a_variant_on_demand_is_rendered_when_it_is_named(make_project: MakeProject) -> None:
    root = make_project()
    assert harness("render", "--all", folder=root).returncode == 0
    assert solutions(root).keys() == {"plain.py", "fancy.py"}
    assert harness("render", "--check", folder=root).returncode == 0
    for name in ("demo", "scale"):  # the template, or its problem
        printed = harness("render", name, "--variant", "wide", "-o", "-", folder=root)
        assert (printed.returncode, "THREADS = 512\n" in printed.stdout) == (0, True)
    assert harness("render", "scale", "--variant", "wide", folder=root).stderr == "wrote solutions/scale/wide.py\n"
    assert harness("render", "scale", folder=root).stderr == "unchanged solutions/scale/plain.py\n"

    # What is there is kept fresh.
    (root / "templates" / "demo" / "solution.py.j2").write_text("WIDTH = {{ threads }}  # {{ mode }}\n")
    assert "stale solutions/scale/wide.py" in harness("render", "--check", folder=root).stderr
    assert "wrote solutions/scale/wide.py" in harness("render", "--all", folder=root).stderr
    (row,) = map(json.loads, harness("list", "templates", "--json", folder=root).stdout.splitlines())
    assert (row["variants"], row["on demand"]) == ("plain fancy", "wide")


def test_own_parameters_go_where_the_user_says(make_project: MakeProject) -> None:
    root = make_project()
    named = harness("render", "demo", "-p", "threads=64", "--name", "small", folder=root)
    assert named.returncode == 0
    assert "THREADS = 64" in solutions(root)["small.py"]

    printed = harness("render", "demo", "--variant", "fancy", "-p", "threads=512", "-o", "-", folder=root)
    assert (printed.returncode, printed.stderr) == (0, "")
    assert "THREADS = 512\nFANCY = True\n" in printed.stdout

    filed = harness("render", "demo", "-o", "out/mine.py", folder=root)
    assert filed.returncode == 0
    assert (root / "out" / "mine.py").read_text() == harness("render", "demo", "-o", "-", folder=root).stdout
    assert solutions(root).keys() == {"small.py"}
    assert [path.name for path in (root / "out").iterdir()] == ["mine.py"]


@pytest.mark.parametrize(
    ("arguments", "pieces"),
    [
        ([], ["name a template", "--all"]),
        (["demos"], ["no template 'demos'", "'demo'"]),
        (["../demo"], ["no template '../demo'"]),
        (["demo", "--variant", "fany"], ["no variant 'fany'", "'fancy'"]),
        (["scale", "--variant", "wid"], ["no variant 'wid'", "'wide'"]),
        (["demo", "-p", "threads=64"], ["--name or -o"]),
        (["demo", "-p", "threads", "-o", "-"], ["'threads'", "KEY=VALUE"]),
        (["demo", "-p", "threads=64", "-p", "threads=96", "-o", "-"], ["twice", "'64'", "'96'"]),
        (["demo", "-p", "threads=64", "--name", "../../evil"], ["'../../evil'", "underscores"]),
        (["demo", "-p", "threads=64", "--name", "plain"], ["plain", "declared variant"]),
        (["demo", "--name", "a", "-o", "b"], ["one of them"]),
        (["demo", "-p", "threads=40", "-o", "-"], ["'threads'", "40", "a multiple of 32"]),
        (["demo", "-p", "threds=64", "-o", "-"], ["'threds'", "'threads'"]),
        (["--all", "demo"], ["--all"]),
        (["--all", "-p", "threads=64"], ["--all"]),
        (["demo", "-o", "templates"], ["templates"]),
        (["demo", "-o", "/dev/full"], ["/dev/full", "a device"]),
        (["demo", "-p", "threads=64", "-o", "/dev/zero"], ["/dev/zero", "a device"]),
    ],
)
def test_wrong_usage(make_project: MakeProject, arguments: list[str], pieces: list[str]) -> None:
    root = make_project()
    result = harness("render", *arguments, folder=root)
    assert (result.returncode, result.stdout) == (2, "")
    assert "Traceback" not in result.stderr
    for piece in pieces:
        assert piece in result.stderr
    assert not (root / "solutions").exists()


def test_two_defaults_over_templates_are_refused(make_project: MakeProject) -> None:
    root = make_project()
    other = root / "templates" / "other"
    other.mkdir()
    for name in ("params.toml", "solution.py.j2"):
        (other / name).write_text((root / "templates" / "demo" / name).read_text())
    result = harness("render", "--all", folder=root)
    assert result.returncode == 2
    assert "demo/plain, other/plain" in result.stderr
    params = (other / "params.toml").read_text().replace("default = true\n", "")
    (other / "params.toml").write_text(params)
    clash = harness("render", "--all", folder=root)
    assert clash.returncode == 2
    assert "'demo' and 'other' both render" in clash.stderr
    assert not (root / "solutions").exists()


def test_committed_solutions_are_fresh() -> None:
    check = harness("render", "--check", folder=REPOSITORY)
    assert check.returncode == 0, check.stderr
    assert check.stderr.count("fresh solutions/") >= 2


def test_render_does_not_import_torch() -> None:
    program = (
        "import sys; sys.argv = ['harness', 'render', '--check']; "
        "from harness.__main__ import run; code = run(); sys.exit(code or 'torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, check=False)
    assert result.returncode == 0
