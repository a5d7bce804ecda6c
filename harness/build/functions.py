"""``load_inline(functions=...)``: mistakes in it that every device refuses, told in words that say what to write.

``functions`` takes the names of C++ functions that ``cpp_sources`` declares; torch binds each for Python in the C++
unit. Kernels cannot be bound, and what only ``cuda_sources`` knows is not known there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from harness.build.errors import BuildFailed

_NO_CODE = re.compile(r'//[^\n]*|/\*.*?(?:\*/|\Z)|(?:\bR"([^\s()\\]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*")', re.DOTALL)
_SIGNATURE = re.compile(r"(\w+)\s*\(")
_SHOWN_CHARACTERS = 80


def check_functions(name: str, functions: object, cpp_sources: object, cuda_sources: object) -> None:
    """Refuse signatures, and names of kernels, whatever compiler would have to say of them.

    Args:
        name: The extension's name.
        functions: As ``load_inline`` takes it; so are the sources.
        cpp_sources: The C++ sources.
        cuda_sources: The CUDA sources.

    Raises:
        BuildFailed: One is there; the message says what to write instead.
    """
    cpp, cuda = _code(cpp_sources), _code(cuda_sources)
    for function in _names(functions):
        signature = _SIGNATURE.search(function)
        bare = signature[1] if signature is not None else function.strip()
        kernel = "__global__" in function or _is_kernel(bare, cpp, cuda)
        if signature is None and not kernel:
            continue
        shown = " ".join(function.split())
        shown = shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}…"
        what = " and ".join(["is a signature"] * (signature is not None) + ["names a kernel"] * kernel)
        if kernel:
            remedy = (
                "Python cannot launch a kernel: write a C++ function in cuda_sources that takes torch::Tensor and "
                f"launches {bare}<<<grid, block>>>(...), declare that function in cpp_sources, and give its name here"
            )
        else:
            remedy = f"Put the signature into cpp_sources, with a semicolon, and give the name {bare!r} here"
        raise BuildFailed(
            f"load_inline({name!r}): functions must hold names of C++ functions that cpp_sources declares; {shown!r} "
            f"{what}. {remedy}."
        )


def undeclared_functions(functions: object, cpp_sources: object, cuda_sources: object) -> str:
    """Why a build failed, where the C++ unit binds a name that it does not know; empty where that is not it."""
    cpp, cuda = _code(cpp_sources), _code(cuda_sources)
    if re.search(r"^[ \t]*#[ \t]*include[ \t]*(?![ \t<])", cpp, re.MULTILINE):
        return ""  # a header of its own may declare anything
    lines = []
    for function in _names(functions):
        if not function.isidentifier() or re.search(rf"\b{function}\b", cpp):
            continue
        heads = list(_heads(function, cuda))
        shown = f": {heads[0]};" if heads and len(heads[0]) <= 2 * _SHOWN_CHARACTERS else ""
        where = f"put the declaration of the one in cuda_sources there{shown}" if heads else "no source defines it"
        lines.append(f"functions names {function!r}, which cpp_sources does not declare: {where}")
    return "\n".join(lines)


def _names(functions: object) -> list[str]:
    """The functions' names from any of the forms that torch takes; what is no string is left out."""
    if isinstance(functions, str):
        return [functions]
    if not isinstance(functions, Mapping | Sequence):
        return []
    return [one for one in functions if isinstance(one, str)]


def _code(sources: object) -> str:
    """Sources without comments and strings."""
    texts = [sources] if isinstance(sources, str) else sources if isinstance(sources, Sequence) else []
    return _NO_CODE.sub(" ", "\n".join(text for text in texts if isinstance(text, str)))


def _is_kernel(function: str, cpp: str, cuda: str) -> bool:
    """Whether a name is that of a kernel and of no function of the host."""
    heads = [*_heads(function, cuda), *_heads(function, cpp)]
    return bool(heads) and all("__global__" in head for head in heads)


def _heads(function: str, code: str) -> Iterator[str]:
    """What precedes the body of each definition of a function: its attributes, type, name and arguments."""
    if not function.isidentifier():
        return
    for match in re.finditer(rf"\b{function}\s*\(", code):
        depth, stop = 1, match.end()
        while stop < len(code) and depth:
            depth += (code[stop] == "(") - (code[stop] == ")")
            stop += 1
        if re.match(r"[^;{}()]*\{", code[stop:]) is None:
            continue
        start = max(code.rfind(one, 0, match.start()) for one in ";{}") + 1
        lines = code[start:stop].splitlines()
        yield " ".join(" ".join(line for line in lines if not line.lstrip().startswith("#")).split())
