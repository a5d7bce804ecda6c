"""Recognises C++ units that only declare functions and bind them for Python.

``load_inline`` makes such a unit for most solutions, whose functions are all in the CUDA unit. It
needs torch's types by name alone, and compiles in a quarter of the time without torch's headers.
"""

from __future__ import annotations

import re

from harness.emulator.compiler import INCLUDE_TORCH
from harness.emulator.lexer import Kind, tokenize

#: The folder of stand-ins for torch's headers. A compiler must search it before torch's own.
DECLARED = INCLUDE_TORCH / "declared"

_TEXT = '""'
_NAME = r"[A-Za-z_]\w*"
_PLAIN = (
    r"(?:(?:(?:un)?signed )?(?:char|short|int|long long|long)|bool|float|double"
    r"|(?:std :: )?(?:u?int(?:8|16|32|64)|size)_t"
    r"|(?:torch|at) :: (?:Tensor|ScalarType)|std :: string)"
)
_OPTIONAL = rf"(?:std|c10|at|torch) :: optional < {_PLAIN} >"
_LIST = rf"std :: vector < {_PLAIN} >"
_TYPE = rf"(?:{_PLAIN}|{_OPTIONAL}|{_LIST})"
_RETURNED = rf"(?:void|{_TYPE}|std :: tuple < {_TYPE}(?: , {_TYPE})* >)"
_PARAMETER = rf"(?:const )?{_TYPE}(?: const)?(?: &)?(?: {_NAME})?(?: = (?:- )?[\w.+-]+)?"
_DECLARED = rf"{_RETURNED} {_NAME} \( (?:{_PARAMETER} (?:, {_PARAMETER} )*)?\) ; "
_FUNCTION = rf"(?:(?:& )?{_NAME}|torch :: wrap_pybind_function \( {_NAME} \))"
_BOUND = rf"{_NAME} \. def \( {_TEXT} , {_FUNCTION} (?:, (?:{_TEXT} )+)?\) ; "
_MODULE = rf"PYBIND11_MODULE \( TORCH_EXTENSION_NAME , {_NAME} \) {{ (?:{_BOUND})*}} "
_UNIT = re.compile(rf"(?:{_DECLARED})*(?:{_MODULE})?(?:{_DECLARED})*")
_DIRECTIVE = re.compile(
    r"#\s*(?:line\b.*|pragma\s+once|include\s*<(?:torch/extension\.h|vector|string|tuple|optional|cstdint)>)\s*"
)


def only_declares(text: str) -> bool:
    """Tells whether a unit only declares functions of common types and binds them for Python.

    Args:
        text: The unit, with the headers and the binding that ``load_inline`` adds.
    """
    words: list[str] = []
    for token in tokenize(text):
        if token.kind is Kind.DIRECTIVE and not _DIRECTIVE.fullmatch(token.text):
            return False
        if token.is_code:
            words.append(_TEXT if token.kind is Kind.STRING else token.text)
    return _UNIT.fullmatch("".join(f"{word} " for word in words)) is not None
