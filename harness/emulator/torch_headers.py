"""Which of torch's headers a translation unit needs, told from the names in it.

``torch/extension.h`` takes more than 20 s to compile, nearly all of it for declarations that the extension never
mentions. Our stand-in includes the core (tensors, checks, dispatch macros) and what ``selection`` adds.
"""

from __future__ import annotations

import re
from collections.abc import Set
from pathlib import Path

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
    "ATen/Context.h": frozenset({"globalContext"}),
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
_STAND_INS = re.compile(r"#[ \t]*include[ \t]*[<\"]torch/(extension|types|all|torch|python)\.h[>\"]")


def uses_torch_headers(text: str) -> bool:
    """Whether a text includes one of the big headers that we have a stand-in for.

    Args:
        text: A translation unit.
    """
    return _STAND_INS.search(text) is not None


def needs_real_headers(names: Set[str]) -> bool:
    """Whether the names alone tell that only torch's own headers will do (its C++ modules, autograd, scripting).

    Args:
        names: Every name in the author's text.
    """
    return "torch" in names and bool(names & _REAL_ONLY)


def selection(names: Set[str], torch_root: Path) -> str:
    """The text of the header that the stand-ins include for one translation unit.

    Args:
        names: Every name in the author's text.
        torch_root: Torch's package folder.

    Returns:
        ``#include`` lines: one for each operator whose name occurs, and for each feature.
    """
    operators = torch_root / "include" / "ATen" / "ops"
    headers = {header for header, triggers in _BY_NAME.items() if names & triggers}
    for name in names:
        for candidate in (name, name.removesuffix("_"), name.removesuffix("_out")):
            if candidate and not candidate.startswith("_") and (operators / f"{candidate}.h").is_file():
                headers.add(f"ATen/ops/{candidate}.h")
    lines = [f"#include <{header}>" for header in sorted(headers)]
    if names & _PYTHON:
        lines.append("#define CUEMU_TORCH_WITH_PYTHON 1")
    return "\n".join([*lines, ""])
