"""A project with one problem, whose template needs no compiler: its settings are right, wrong, or end badly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.kills import PROBLEM

PARAMS = """\
problem = "tanh"

[parameters.kind]
type = "str"
default = "right"
choices = ["right", "wrong", "crash", "unbuildable", "unrendered"]
meaning = "what becomes of a setting"

[parameters.step]
type = "int"
default = 2
choices = [1, 2, 4]
when = "kind == 'right'"
meaning = "counts only in a right one"

[parameters.width]
type = "int"
default = 8
range = [8, 32]
multiple_of = 8
meaning = "always counts"

[parameters.idle]
type = "bool"
default = false
meaning = "changes nothing"

[[constraints]]
rule = "step * width <= 64"
message = "a tile has at most 64 floats"

[variants.tanh]
default = true

[variants.wide]
on_demand = true
width = 32
"""

SOLUTION = """\
import os
import torch

WIDTH = {{ width }}
{% if idle %}
{% endif %}
{% if kind == "right" %}
STEP = {{ step }}
{% elif kind == "unbuildable" %}
import no_such_module
{% elif kind == "unrendered" %}
{{ width // 0 }}
{% endif %}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        {% if kind == "crash" %}
        os.abort()
        {% endif %}
        return x.{{ "sinh" if kind == "wrong" else "tanh" }}()
"""


@pytest.fixture
def make_project(tmp_path: Path) -> Callable[..., Path]:
    """Writes a project and returns its folder; keywords replace its files."""

    def make(params: str = PARAMS, solution: str = SOLUTION) -> Path:
        root = tmp_path / "project"
        for name, text in {
            "problems/tanh.py": PROBLEM,
            "templates/tanh/params.toml": params,
            "templates/tanh/solution.py.j2": solution,
        }.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return root

    return make
