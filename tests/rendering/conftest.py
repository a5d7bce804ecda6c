from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.rendering.render_templates import find_variant_template, render_variant

REPOSITORY = Path(__file__).resolve().parents[2]

PARAMS = """\
problem = "scale"

[parameters.threads]
type = "int"
default = 128
range = [32, 1024]
multiple_of = 32
meaning = "threads of a block"

[parameters.mode]
type = "str"
default = "plain"
choices = ["plain", "fancy"]
meaning = "which kernel"

[[constraints]]
rule = "mode == 'plain' or threads >= 64"
message = "the fancy kernel wants two warps"

[variants.plain]
default = true

[variants.fancy]
mode = "fancy"
threads = 256

[variants.wide]
on_demand = true
threads = 512
"""

SOLUTION = """\
THREADS = {{ threads }}
{% if mode == "fancy" %}
{% include "common/fancy.txt" %}
{% endif %}
"""


@pytest.fixture(scope="session")
def solution_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """The file of a problem's variant, rendered into a temporary folder, whether it is committed or on demand."""
    folder = tmp_path_factory.mktemp("variants")

    def rendered(problem: str, variant: str) -> Path:
        path = folder / problem / f"{variant}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(render_variant(REPOSITORY, find_variant_template(REPOSITORY, problem, variant), variant).text)
        return path

    return rendered


@pytest.fixture
def make_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A project of one problem and one template, current folder of the test; keywords replace its files."""

    def make(params: str = PARAMS, solution: str = SOLUTION, fancy: str = "FANCY = True\n") -> Path:
        files = {
            "problems/scale.py": "",
            "templates/demo/params.toml": params,
            "templates/demo/solution.py.j2": solution,
            "templates/common/fancy.txt": fancy,
        }
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        monkeypatch.chdir(tmp_path)
        return tmp_path

    return make
