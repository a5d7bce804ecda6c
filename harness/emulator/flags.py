"""Translates a solution's flags for nvcc, host compiler and linker for the emulator's compiler.

The module drops flags that only steer nvcc's code generation. It also drops flags that change
numbers or tie the library to one machine (``-ffast-math``, ``-march=native``), since the emulator
promises the same rounding everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

#: What torch defines for every CUDA source: 16-bit floats without operators and implicit conversions.
TORCH_DEFINITIONS = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
)
_WITH_VALUE = frozenset({"-D", "-U", "-I", "-include", "-isystem", "-iquote", "-idirafter"})
_NVCC_WITH_VALUE = frozenset(
    {
        "-Xptxas",
        "--ptxas-options",
        "-gencode",
        "--generate-code",
        "-arch",
        "--gpu-architecture",
        "-code",
        "--gpu-code",
        "-maxrregcount",
        "--maxrregcount",
        "-Xlinker",
        "-Xnvlink",
        "-Xarchive",
        "-Xcudafe",
        "-ccbin",
        "--compiler-bindir",
        "-t",
        "--threads",
        "-x",
        "-diag-suppress",
        "--diag-suppress",
        "-MF",
        "-MT",
        "-MQ",
        "-o",
    }
)
_LONG_NAMES = {
    "--define-macro": "-D",
    "--undefine-macro": "-U",
    "--include-path": "-I",
    "--pre-include": "-include",
}
_KEPT_FEATURES = re.compile(
    r"-f(openmp|permissive|exceptions|rtti|char8_t|concepts|constexpr-\S+|template-depth\S*|signed-char|unsigned-char"
    r"|wrapv|no-(exceptions|rtti|char8_t|strict-overflow))$"
)
_CUDA_LIBRARIES = re.compile(
    r"-l(cudart\w*|cuda|cudadevrt|nvrtc\w*|cublas\w*|cudnn\w*|curand|cusparse|cusolver|cufft|nvToolsExt|nccl"
    r"|c10_cuda|torch_cuda\w*)$"
)


def host_flags(flags: Sequence[str]) -> list[str]:
    """Returns the compiler flags to keep from ``extra_cflags``.

    Args:
        flags: The solution's flags.

    Returns:
        Definitions, include paths, language features, and a ``-std`` newer than the default.
    """
    return _kept(flags, nvcc=False)


def cuda_flags(flags: Sequence[str]) -> list[str]:
    """Returns the compiler flags for ``extra_cuda_cflags``.

    Flags behind ``-Xcompiler`` count as host flags. A solution for ``sm_90a`` gets the name that nvcc defines for the
    instructions of that variant.

    Args:
        flags: The solution's flags in nvcc's spelling.

    Returns:
        The flags for g++ or clang++.
    """
    kept = _kept(flags, nvcc=True)
    is_hopper = any(re.search(r"(?:sm|compute)_90a\b", flag) for flag in flags)
    return [*kept, "-D__CUDA_ARCH_FEAT_SM90_ALL"] if is_hopper else kept


def linker_flags(flags: Sequence[str]) -> list[str]:
    """Returns the linker flags without CUDA's libraries, which the emulator replaces.

    Args:
        flags: The solution's ``extra_ldflags``.

    Returns:
        The flags to link with.
    """
    # torch joins the flags into one command line. So an empty string is no flag, and one string may
    # hold several.
    words = [word for flag in flags for word in flag.split()]
    return [word for word in words if not _CUDA_LIBRARIES.match(word) and "fast-math" not in word]


def _kept(flags: Sequence[str], *, nvcc: bool) -> list[str]:
    kept: list[str] = []
    # A flag and its value may come as one string ("-D NAME").
    words = [word for flag in flags for word in ([flag] if flag.startswith("-D") and "=" in flag else flag.split())]
    index = 0
    while index < len(words):
        word = words[index]
        following = words[index + 1] if index + 1 < len(words) else None
        if nvcc and word.split("=")[0] in ("-Xcompiler", "--compiler-options"):
            value = word.split("=", 1)[1] if "=" in word else following
            index += 1 if "=" in word else 2
            kept.extend(_kept((value or "").strip("\"'").split(","), nvcc=False))
            continue
        name = word.split("=")[0]
        if name in _LONG_NAMES:
            value = word.split("=", 1)[1] if "=" in word else following
            index += 1 if "=" in word else 2
            if value is not None:
                kept.extend([_LONG_NAMES[name], value])
            continue
        takes_value = word in _WITH_VALUE or (nvcc and word in _NVCC_WITH_VALUE) or word in ("-std", "--std")
        if word in _WITH_VALUE and following is not None:
            kept.extend([word, following])
        elif not takes_value and _is_kept(word):
            kept.append(word)
        index += 2 if takes_value else 1
    return kept


def _is_kept(word: str) -> bool:
    if word.startswith(("-D", "-U", "-I", "-isystem", "-iquote", "-pthread")):
        return True
    if word.startswith(("-std=", "--std=")):
        return _newer_standard(word.split("=", 1)[1])
    return bool(_KEPT_FEATURES.match(word))


def _newer_standard(standard: str) -> bool:
    """Tells whether a standard is newer than C++20, the oldest that torch's headers accept."""
    return standard.removeprefix("gnu++").removeprefix("c++") in ("2b", "23", "2c", "26")
