"""Finds mistakes in ``load_inline(functions=...)`` that fail on every device.

``functions`` takes the names of C++ functions that ``cpp_sources`` declares. torch binds each of
them for Python in the C++ unit. It cannot bind a kernel, and that unit does not know what only
``cuda_sources`` declares.

``check_functions`` refuses a build before any compiler runs, so it must be certain. A header of the
author's, a macro that pastes names or a flag that defines one could supply what the text lacks. In
such a case the compiler decides.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Mapping, Sequence

from harness.compilation.errors import BuildFailed

#: Comments, and strings and character literals with their prefixes. A digit separator does not
#: start one.
_NO_CODE = re.compile(
    r"//[^\n]*|/\*.*?(?:\*/|\Z)"
    r'|\b(?:u8|[uUL])?R"([^\s()\\]{0,16})\(.*?(?:\)\1"|\Z)|"(?:\\.|[^"\\\n])*"'
    r"|(?:\b(?:u8|[uUL])|(?<!\w))'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)
_SPLICE = re.compile(r"\\[ \t]*\r?\n")
_SIGNATURE = re.compile(r"(\w+)\s*\(")
_SHOWN_CHARACTERS = 80
#: The limits for the number of times that a source names a function and for the length of its
#: arguments. Beyond them the compiler decides.
_MOST_NAMED, _MOST_ARGUMENTS = 500, 5_000
#: An ``#include`` of a file that may be the author's.
_OWN_INCLUDE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*(?:include|import|embed)\w*[ \t]*(?![ \t])(?!<(?![./]))", re.MULTILINE)
_CONDITION = re.compile(r"[ \t]*(?:#|%:)[ \t]*(?P<begins>if)?(?P<ends>endif)?")
_MODULE = re.compile(r"\bPYBIND11_MODULE\s*\(\s*(\w+)")
#: The part after the name of a declaration that cannot be a variable's: its last or only parameter
#: is a tensor.
_DECLARED = re.compile(
    r"\s*\((?:[^(){};=]*,)?\s*(?:const\s+)?(?:(?:torch|at)::)?Tensor\b[\s&]*\w*\s*\)\s*(?:noexcept\s*)?;"
)
#: Flags that neither define a name nor add a file.
_PLAIN_FLAG = re.compile(
    r"-(?:O|std=|f(?!plugin)|m|g|pthread|pedantic|W(?![lpa],)|[wv]$|arch|lineinfo|use_fast_math|Xptxas|t\d|rdc=)"
    r"|--(?:use_fast_math|expt-|extended-lambda|generate-code|gpu-|ptxas-options|maxrregcount|std|threads)"
    r"|(?:arch|code)=|\d+$"
)


def check_functions(
    name: str, functions: object, cpp_sources: object, cuda_sources: object, *, flags: object = (), linked: object = ()
) -> None:
    """Refuses what no compiler would build.

    That is a signature, a kernel, a name that no source has, or a second module.

    Args:
        name: The extension's name.
        functions: The argument of ``load_inline``. The sources have its forms, too.
        cpp_sources: The C++ sources.
        cuda_sources: The CUDA sources.
        flags: Compiler flags and include folders. If one of them is not known to be harmless, most
            checks are left to the compiler.
        linked: Linker flags, whose libraries could define a function.

    Raises:
        BuildFailed: A check failed; the message says what to write instead.
    """
    _check_signatures(name, functions, cpp_sources, cuda_sources)
    if functions is None or not are_plain(flags):
        return
    cpp, cuda = code_of(cpp_sources), code_of(cuda_sources)
    if _has_module(name, cpp) or _has_module(name, cuda):
        raise BuildFailed(
            f"load_inline({name!r}): functions and PYBIND11_MODULE both define the Python module, so it is defined "
            "twice. Remove PYBIND11_MODULE from the source, or leave functions out."
        )
    certain = [one for one in _names(functions) if one.isascii() and one.isidentifier() and not _is_in_libraries(one)]
    pasted = any(mark in cpp + cuda for mark in ("##", "%:%:"))
    why = "" if pasted else undeclared_functions(certain, cpp_sources, cuda_sources)
    if not why and not pasted and not list(_words(linked)) and not _has_own_include(cpp_sources, cuda_sources):
        undefined = [one for one in certain if _is_only_declared(one, cpp, cuda)]
        if undefined:
            why = f"functions names {undefined[0]!r}, which cpp_sources declares and no source defines: add its body"
    if why:
        raise BuildFailed(f"load_inline({name!r}): {why}")


def _check_signatures(name: str, functions: object, cpp_sources: object, cuda_sources: object) -> None:
    cpp, cuda = code_of(cpp_sources), code_of(cuda_sources)
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
                "Python cannot launch a kernel. Write a C++ function in cuda_sources that takes "
                f"torch::Tensor and launches {bare}<<<grid, block>>>(...), declare it in cpp_sources, and "
                "give its name here"
            )
        else:
            remedy = f"Move the signature to cpp_sources, with a semicolon, and give the name {bare!r} here"
        raise BuildFailed(
            f"load_inline({name!r}): functions must hold names of C++ functions that cpp_sources declares; {shown!r} "
            f"{what}. {remedy}."
        )


def undeclared_functions(functions: object, cpp_sources: object, cuda_sources: object) -> str:
    """Explains a build that failed because the C++ unit binds an undeclared name.

    Returns:
        The explanation; empty if that is not the reason.
    """
    cpp, cuda = code_of(cpp_sources), code_of(cuda_sources)
    if _has_own_include(cpp_sources):
        return ""  # a header of the author's may declare anything
    lines = []
    for function in _names(functions):
        if not function.isidentifier() or re.search(rf"\b{function}\b", cpp):
            continue
        heads = [head for head in _heads(function, cuda) if "__global__" not in head]
        shown = f": {heads[0]};" if heads and len(heads[0]) <= 2 * _SHOWN_CHARACTERS else ""
        where = f"add the declaration of the function in cuda_sources{shown}" if heads else "no source defines it"
        lines.append(f"functions names {function!r}, which cpp_sources does not declare: {where}")
    return "\n".join(lines)


def _names(functions: object) -> list[str]:
    """Returns the functions' names from any of the forms that torch takes.

    It ignores what is not a string.
    """
    if isinstance(functions, str):
        return [functions]
    if not isinstance(functions, Mapping | Sequence):
        return []
    return [one for one in functions if isinstance(one, str)]


def are_plain(flags: object) -> bool:
    """Tells whether compiler flags and include folders neither define a name nor add a file."""
    return all(map(_PLAIN_FLAG.match, _words(flags)))


def texts_of(sources: object) -> list[str]:
    """Returns the texts of sources in any of the forms that torch takes."""
    texts = [sources] if isinstance(sources, str) else sources if isinstance(sources, Sequence) else []
    return [text for text in texts if isinstance(text, str)]


def _words(flags: object) -> Iterator[str]:
    """Yields the words of nested flags.

    An object that is no text becomes a word that is no flag.
    """
    if isinstance(flags, str):
        yield from flags.split()
    elif isinstance(flags, Sequence):
        for one in flags:
            yield from _words(one)
    elif flags is not None:
        yield repr(flags)


def code_of(sources: object) -> str:
    """Returns sources without comments, strings and characters, and with continued lines joined."""
    return _NO_CODE.sub(" ", _SPLICE.sub("", "\n".join(texts_of(sources))))


def _is_in_libraries(function: str) -> bool:
    """Tells whether the C library or Python has a function of this name.

    An included header may declare it.
    """
    return hasattr(ctypes.CDLL(None), function)


def _has_own_include(*sources: object) -> bool:
    return any(_OWN_INCLUDE.search(_SPLICE.sub("", text)) for given in sources for text in texts_of(given))


def _has_module(name: str, code: str) -> bool:
    """Tells whether a source certainly defines the extension's Python module.

    It does so under no condition and with pybind's own macro.
    """
    found, depth = False, 0
    for line in code.splitlines():
        condition = _CONDITION.match(line)
        if condition is None:
            found |= depth == 0 and any(one in ("TORCH_EXTENSION_NAME", name) for one in _MODULE.findall(line))
            continue
        depth += (condition["begins"] is not None) - (condition["ends"] is not None)
        if "PYBIND11_MODULE" in line or "TORCH_EXTENSION_NAME" in line:
            return False
    return found


def _is_only_declared(function: str, cpp: str, cuda: str) -> bool:
    """Tells whether sources only declare a function, with tensor parameters."""
    if re.search(rf"\b{function}\b", cuda):
        return False
    named = list(re.finditer(rf"\b{function}\b", cpp))
    return bool(named) and all(_DECLARED.match(cpp, match.end()) for match in named)


def _is_kernel(function: str, cpp: str, cuda: str) -> bool:
    """Tells whether a name belongs to a kernel and to no host function."""
    heads = [*_heads(function, cuda), *_heads(function, cpp)]
    return bool(heads) and all("__global__" in head for head in heads)


def _heads(function: str, code: str) -> Iterator[str]:
    """Yields the head of each definition of a function: attributes, type, name, arguments."""
    if not function.isidentifier():
        return
    named = list(re.finditer(rf"\b{function}\s*\(", code))
    for match in named if len(named) <= _MOST_NAMED else ():
        depth, stop = 1, match.end()
        while stop < min(len(code), match.end() + _MOST_ARGUMENTS) and depth:
            depth += (code[stop] == "(") - (code[stop] == ")")
            stop += 1
        if re.match(r"[^;{}()]*\{", code[stop:]) is None:
            continue
        start = max(code.rfind(one, 0, match.start()) for one in ";{}") + 1
        lines = code[start:stop].splitlines()
        yield " ".join(" ".join(line for line in lines if not line.lstrip().startswith("#")).split())
