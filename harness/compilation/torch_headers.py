"""Selects the torch headers that a translation unit needs, by the names in it.

g++ needs 18 s for ``torch/extension.h`` and nvcc over a minute. Nearly all of that goes to
declarations that the extension never mentions. The stand-in (``lean/``) includes the core (tensors,
checks, dispatch macros) and what ``selection`` adds. All of these are torch's own headers. So every
declaration is torch's, and a missing one is a compiler error, after which the build is repeated
with the original headers.
"""

from __future__ import annotations

import re
from collections.abc import Set
from pathlib import Path

#: The folder of the stand-ins. The compiler must search it before torch's own.
LEAN = Path(__file__).resolve().parent / "lean"
#: The header that the stand-ins include for each translation unit, in a folder that the compiler
#: searches, too.
SELECTION = "lean_torch_selection.h"
#: The macro that a selection defines if the unit needs the binding for Python, and its header.
WITH_PYTHON = "LEAN_TORCH_WITH_PYTHON"
BINDING = "lean_torch_binding.h"

_REAL_ONLY = frozenset({"autograd", "nn", "jit", "optim", "serialize", "script", "Module", "custom_class"})

_BY_NAME: dict[str, frozenset[str]] = {
    "torch/library.h": frozenset(
        {
            "TORCH_LIBRARY",
            "TORCH_LIBRARY_IMPL",
            "TORCH_LIBRARY_FRAGMENT",
            "TORCH_FN",
            "Library",
            "TORCH_SELECTIVE_NAME",
        }
    ),
    "ATen/TensorIndexing.h": frozenset({"indexing", "Slice"}),
    "ATen/Parallel.h": frozenset({"parallel_for", "parallel_reduce", "get_num_threads"}),
    "ATen/AccumulateType.h": frozenset({"acc_type", "acc_type_device"}),
    "ATen/OpMathType.h": frozenset({"opmath_type", "OpMathType"}),
    "ATen/TensorUtils.h": frozenset({"TensorArg", "checkAllSameGPU", "checkSameGPU", "CheckedFrom"}),
    "ATen/Context.h": frozenset({"globalContext", "Context"}),
    "ATen/DeviceGuard.h": frozenset({"device_of", "OptionalDeviceGuard", "DeviceGuard"}),
    "ATen/ExpandUtils.h": frozenset({"infer_size", "expand_inplace", "expand_outplace"}),
    "ATen/NativeFunctions.h": frozenset({"native"}),
}
_PYTHON = frozenset(
    {
        "py",
        "pybind11",
        "PYBIND11_MODULE",
        "PyObject",
        "wrap_pybind_function",
        "wrap_pybind_function_no_gil",
        "THPVariable",
    }
)
#: The names of a binding that only gives functions to Python.
_BOUND = frozenset({"PYBIND11_MODULE", "wrap_pybind_function"})
#: ``torch::tensor`` takes torch's default dtype and ``at::tensor`` that of the elements, so only
#: the original is right. ``std`` in a text means the standard library or a method.
_NOT_OPERATORS = frozenset({"tensor", "std"})
#: An option that asks for a gradient. The factories of ``torch`` accept it, and those of ``at``
#: refuse it.
_GRADIENT_OPTION = re.compile(r"\brequires_grad\s*\(\s*[^\s)]")
_STAND_INS = re.compile(r"#[ \t]*include[ \t]*[<\"]torch/(extension|types|all|torch|python)\.h[>\"]")


def uses_torch_headers(text: str) -> bool:
    """Tells whether a text includes one of the big headers that have a stand-in.

    Args:
        text: A translation unit.
    """
    return _STAND_INS.search(text) is not None


def needs_real_headers(text: str, names: Set[str]) -> bool:
    """Tells whether a text needs torch's own headers (for C++ modules, autograd or scripting).

    Args:
        text: The author's text.
        names: Every name in it.
    """
    return "torch" in names and (bool(names & _REAL_ONLY) or _GRADIENT_OPTION.search(text) is not None)


def selection(names: Set[str], torch_root: Path) -> str:
    """Returns the text of the header that the stand-ins include for one translation unit.

    Args:
        names: Every name in the author's text.
        torch_root: The folder of torch's package.

    Returns:
        The ``#include`` lines: one for each operator whose name occurs, and one for each feature.
    """
    folder = torch_root / "include" / "ATen" / "ops"
    operators = set()
    for name in names - _NOT_OPERATORS:
        for candidate in (name, name.removesuffix("_"), name.removesuffix("_out")):
            if candidate and not candidate.startswith("_") and (folder / f"{candidate}.h").is_file():
                operators.add(f"ATen/ops/{candidate}.h")
    features = {header for header, triggers in _BY_NAME.items() if names & triggers}
    lines = ["#define LEAN_TORCH_OPERATORS", *_included(operators), "#undef LEAN_TORCH_OPERATORS", *_included(features)]
    if names & _PYTHON:
        lines.append(f"#define {WITH_PYTHON}")
    return "\n".join([*lines, ""])


def only_binds(names: Set[str]) -> bool:
    """Tells whether a unit needs the binding for Python, and of it no more than to bind functions.

    Args:
        names: Every name in the author's text and in the generated binding.
    """
    return bool(names & _PYTHON) and names & _PYTHON <= _BOUND


def lean_files() -> list[Path]:
    """Returns the stand-ins and this file, which all influence a build and so belong to its key."""
    return [Path(__file__).resolve(), *sorted(LEAN.rglob("*.h"))]


def _included(headers: Set[str]) -> list[str]:
    return [f"#include <{header}>" for header in sorted(headers)]
