"""Writes a judged solution as an installable package that registers a ``torch.library`` operator."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping
from importlib import resources

import jinja2

from harness.errors import UsageError
from harness.records.record import EvaluationRecord
from harness.records.run_config import RunConfig
from harness.wire.structure import ROOT

#: Names of torch's own operators, of Python's modules and of the harness.
_TAKEN = {"torch", "aten", "prim", "prims", "c10d", "inductor", "quantized", "harness", *sys.stdlib_module_names}
_PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1.0"
description = "{problem} by a kernel that passed record {record}"
requires-python = ">=3.11"
dependencies = ["torch", "ninja"]

[tool.hatch.build.targets.wheel]
packages = ["src/{name}"]
"""


def package_files(name: str, record: EvaluationRecord, solution: str, reference: str) -> Mapping[str, str]:
    """Returns the package's files by their paths.

    Args:
        name: The package's name, which is the operator's namespace, too.
        record: The solution's record, a pass.
        solution: The solution's text.
        reference: The problem's text.

    Raises:
        UsageError: The name cannot be imported, or the problem's results cannot be an operator's:
            they are no tensor or tuple of tensors, or its forward changes buffers.
    """
    if not re.fullmatch("[a-z][a-z0-9_]*[a-z0-9]", name) or keyword.iskeyword(name):
        raise UsageError(
            f"--name {name!r}: a package needs a name that Python can import, of small letters, digits and _, such as "
            "fused_norm"
        )
    if name in _TAKEN:
        raise UsageError(
            f"--name {name!r} is taken by Python, torch or the harness: choose another one, such as fused_norm"
        )
    names = [one.name for one in record.outputs]
    other = next((one for one in names if not re.fullmatch(rf"{ROOT}(\[\d+\])?", one)), None)
    if other is not None:
        raise UsageError(
            f"problem {record.problem} gives {other!r}: an operator gives one tensor or a tuple of tensors, and "
            "changes no buffers"
        )
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, trim_blocks=True, autoescape=False
    )
    text = (resources.files("harness.generation") / "files" / "package.py.j2").read_text(encoding="utf-8")
    told = {"name": name, "problem": record.problem, "record": record.record}
    return {
        "pyproject.toml": _PYPROJECT.format(**told),
        f"src/{name}/__init__.py": environment.from_string(text).render(
            **told, is_single=names == [ROOT], differentiates=not RunConfig.of(record).forward_only
        ),
        f"src/{name}/solution.py": solution,
        f"src/{name}/reference.py": reference,
    }
