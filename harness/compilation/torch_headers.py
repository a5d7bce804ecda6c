"""Which of torch's headers a translation unit needs, told from the names in it.

``torch/extension.h`` takes g++ 18 s and nvcc over a minute, nearly all of it for declarations that the extension never
mentions. Our stand-in (``lean/``) includes the core (tensors, checks, dispatch macros) and what ``selection`` adds, all
of it torch's own headers: what is declared is declared as torch does, and what is not is an error of the compiler,
after which the original headers follow.
"""

from __future__ import annotations

import re
from collections.abc import Set
from pathlib import Path

#: The folder of the stand-ins, to be searched before torch's own.
LEAN = Path(__file__).resolve().parent / "lean"
#: What they include of each translation unit's own, in a folder that is searched too.
SELECTION = "lean_torch_selection.h"

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
#: ``torch::tensor`` takes torch's default dtype, ``at::tensor`` the elements' own: only the original is right. Where
#: ``std`` stands in a text it is the standard library's, and the other is a method.
_NOT_OPERATORS = frozenset({"tensor", "std"})
#: Factories of ``at`` refuse what those of ``torch`` take: options that ask for a gradient.
_GRADIENT_OPTION = re.compile(r"\brequires_grad\s*\(\s*[^\s)]")
_STAND_INS = re.compile(r"#[ \t]*include[ \t]*[<\"]torch/(extension|types|all|torch|python)\.h[>\"]")


def uses_torch_headers(text: str) -> bool:
    """Whether a text includes one of the big headers that we have a stand-in for.

    Args:
        text: A translation unit.
    """
    return _STAND_INS.search(text) is not None


def needs_real_headers(text: str, names: Set[str]) -> bool:
    """Whether the text tells that only torch's own headers will do (its C++ modules, autograd, scripting).

    Args:
        text: The author's text.
        names: Every name in it.
    """
    return "torch" in names and (bool(names & _REAL_ONLY) or _GRADIENT_OPTION.search(text) is not None)


def selection(names: Set[str], torch_root: Path) -> str:
    """The text of the header that the stand-ins include for one translation unit.

    Args:
        names: Every name in the author's text.
        torch_root: Torch's package folder.

    Returns:
        ``#include`` lines: one for each operator whose name occurs, and for each feature.
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
        lines.append("#define LEAN_TORCH_WITH_PYTHON")
    return "\n".join([*lines, ""])


def lean_files() -> list[Path]:
    """The stand-ins and this file: what decides a build besides the author's text and torch."""
    return [Path(__file__).resolve(), *sorted(LEAN.rglob("*.h"))]


def _included(headers: Set[str]) -> list[str]:
    return [f"#include <{header}>" for header in sorted(headers)]
