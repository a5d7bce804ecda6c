"""Rewrites CUDA source to C++ for the emulator's runtime and header stand-ins.

The rewriter works on tokens, before the preprocessor, and keeps every line in place. It leaves a
malformed part of a text unchanged, so that the compiler reports it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from harness.emulator.device_branches import decide_device_branches
from harness.emulator.launch_bounds import note_kernels, rewrite_launch_bounds
from harness.emulator.launches import Kernels, rewrite_clusters, rewrite_kernel_calls, rewrite_launches
from harness.emulator.lexer import Kind, Token, tokenize, written
from harness.emulator.plain_kernels import rewrite_plain_kernels
from harness.emulator.ptx.instructions import REDUCTIONS
from harness.emulator.ptx.macros import DEFINE, Macro, Refused, choices, definitions
from harness.emulator.ptx.statement import parse_statement
from harness.emulator.ptx.translation import translate
from harness.emulator.shared_memory import rewrite_shared
from harness.emulator.syntax import Code, names_in
from harness.emulator.waits import rewrite_waits

PTX_CONSTRUCT = "inline PTX"
PTX_REMEDY = "guard it with #ifdef __CUDA_ARCH__ and give a plain C++ fallback in the #else branch"

#: The words that begin an assembler statement.
ASM_WORDS = frozenset({"asm", "__asm__", "__asm"})
_ASM_QUALIFIERS = frozenset({"volatile", "__volatile__", "__volatile", "goto", "inline"})
_VARIABLES = frozenset({"__device__", "__constant__"})
_ENDS_A_DECLARATOR = frozenset({"(", "{", "}", "=", "[", ";", "operator"})
#: A part of the names of macros that register for a dispatch key; libraries wrap torch's in their own.
_LIBRARY_MACRO = "TORCH_LIBRARY_IMPL"
_SHARED_QUALIFIERS = frozenset({"__shared__", "static", "extern", "volatile", "__align__", "alignas", "(", ")"})


def rewrite_cuda(source: str, by_address: bool = False) -> str:
    """Rewrites the text of a CUDA translation unit.

    Args:
        source: CUDA C++ for nvcc.
        by_address: Whether host code may launch a kernel whose address alone it knows.

    Returns:
        C++ with the same number of lines, each construct on its own line.
    """
    tokens = tokenize(_with_shared_macros_expanded(source))
    device_macros = frozenset(_macros_naming(tokens, {"__global__", "__device__"}))
    code = Code(tokens)
    decide_device_branches(code, device_macros)
    kernels = Kernels(code)
    macros = definitions(tokens)
    _rewrite_macros(tokens, kernels, device_macros, macros, by_address)
    _rewrite_code(code, kernels, device_macros, macros)
    rewrite_waits(code)
    rewrite_plain_kernels(code)
    rewrite_launch_bounds(code)
    if by_address:
        note_kernels(code)
    return written(tokens)


def rewrite_host(source: str) -> str:
    """Rewrites the text of a plain C++ translation unit. Only names of the CUDA device change.

    Args:
        source: C++ for the host compiler.

    Returns:
        C++ with the same number of lines.
    """
    tokens = tokenize(source)
    _rewrite_device(Code(tokens))
    for token in tokens:
        if token.kind is Kind.DIRECTIVE and (macro := DEFINE.match(token.text)):
            body = tokenize(token.text[macro.end() :], directives=False)
            _rewrite_device(Code(body))
            token.written = token.text[: macro.end()] + written(body)
    return written(tokens)


def _rewrite_code(
    code: Code,
    kernels: Kernels,
    device_macros: frozenset[str],
    macros: Mapping[str, list[Macro]],
    in_macro: bool = False,
) -> None:
    _rewrite_device(code)
    _rewrite_asm(code, macros)
    _rewrite_new(code)
    _rewrite_reductions(code)
    _rewrite_variables(code)
    rewrite_kernel_calls(code, kernels, in_macro)
    rewrite_clusters(code)
    rewrite_launches(code, kernels)
    rewrite_shared(code, device_macros)


def _rewrite_macros(
    tokens: list[Token],
    kernels: Kernels,
    device_macros: frozenset[str],
    macros: Mapping[str, list[Macro]],
    by_address: bool,
) -> None:
    """Rewrites the body of each ``#define`` line by itself."""
    for token in tokens:
        macro = DEFINE.match(token.text) if token.kind is Kind.DIRECTIVE else None
        if macro is None:
            continue
        parameters = frozenset(re.findall(r"[A-Za-z_]\w*", macro["parameters"] or ""))
        body = tokenize(token.text[macro.end() :], directives=False)
        code = Code(body, parameters)
        _rewrite_code(code, kernels, device_macros, macros, in_macro=True)
        rewrite_launch_bounds(code)
        if by_address:
            note_kernels(code)
        token.written = token.text[: macro.end()] + written(body)


def _macros(tokens: list[Token]) -> dict[str, list[Token]]:
    """Returns the object-like macros of a text with the tokens of their bodies."""
    found: dict[str, list[Token]] = {}
    for token in tokens:
        macro = DEFINE.match(token.text) if token.kind is Kind.DIRECTIVE else None
        if macro is not None and macro["parameters"] is None:
            found[macro["name"]] = tokenize(token.text[macro.end() :], directives=False)
    return found


def _macros_naming(tokens: list[Token], words: set[str]) -> set[str]:
    return {name for name, body in _macros(tokens).items() if names_in(body) & words}


def _with_shared_macros_expanded(source: str) -> str:
    """Expands macros that only stand for ``__shared__`` and would hide declarations."""
    if "__shared__" not in source:
        return source
    tokens = tokenize(source)
    spellings: dict[str, str] = {}
    for name, body in _macros(tokens).items():
        code = [token for token in body if token.is_code]
        if "__shared__" in names_in(body) and all(
            token.text in _SHARED_QUALIFIERS or token.kind is Kind.NUMBER for token in code
        ):
            spellings[name] = " ".join(token.text for token in code)
    for token in tokens:
        if token.kind is Kind.NAME and token.text in spellings:
            token.written = spellings[token.text]
    return written(tokens)


def _rewrite_asm(code: Code, macros: Mapping[str, list[Macro]]) -> None:
    """Replaces inline PTX by C++ with the same meaning, if it has one with each definition of its macros.

    What the emulator does not run becomes an assertion, which fails if the preprocessor lets it through. Without any
    PTX the statement only keeps the compiler from moving accesses, and does so here too.
    """
    for position in range(len(code)):
        if code.text(position) not in ASM_WORDS or not code.is_name(position):
            continue
        opening = position + 1
        while code.text(opening) in _ASM_QUALIFIERS:
            opening += 1
        closing = code.close_of(opening) if code.text(opening) == "(" else None
        if closing is None:
            continue
        if _is_empty_asm(code, opening + 1, closing):
            code.replace(position, closing + 1, '__asm__ __volatile__("" ::: "memory")')
            continue
        try:
            code.replace(position, closing + 1, _meaning(code, opening + 1, closing, macros))
        except Refused as reason:
            what = re.sub(r'["\\\s]+', " ", f"{PTX_CONSTRUCT} ({reason})")
            failure = f'static_assert(false, "cuemu-unsupported: {what}: {PTX_REMEDY}")'
            code.replace(position, closing + 1, f"do {{ {failure}; }} while (0)")


def _meaning(code: Code, start: int, stop: int, macros: Mapping[str, list[Macro]]) -> str:
    """Returns the C++ for what stands between an ``asm`` statement's parentheses.

    Raises:
        Refused: The emulator does not run it, or it depends on which of a macro's definitions holds.
    """
    chosen = choices(code, start, stop, macros)
    meanings = {translate(parse_statement(code, start, stop, choice)) for choice in chosen}
    if len(meanings) > 1:
        raise Refused("a template whose meaning depends on a macro with several definitions")
    return meanings.pop()


def _rewrite_new(code: Code) -> None:
    """Marks every ``new`` that allocates, since the checker must know what a kernel allocates."""
    for position in range(len(code)):
        is_expression = code.text(position) == "new" and code.is_name(position)
        if is_expression and code.text(position - 1) != "operator" and code.is_name(position + 1):
            code.token(position).written = "new CUEMU_ON_HEAP"


def _rewrite_reductions(code: Code) -> None:
    """Notes atomic operations whose result nobody uses: those of one kind commute (``check --exhaustive``)."""
    opened: list[int] = []
    macros = _macros(code.tokens).keys()
    for position in range(len(code)):
        text = code.text(position)
        if text in ("(", "[", "{"):
            opened.append(position)
        elif text in (")", "]", "}") and opened:
            opened.pop()
        kind = REDUCTIONS.get(text.removesuffix("_system"))
        closing = code.close_of(position + 1) if kind and code.text(position + 1) == "(" else None
        if closing is None or code.text(closing + 1) != ";" or not _begins_statement(code, position, opened):
            continue
        # An argument that calls a function may have an atomic operation of its own, and so may a macro.
        calls = any(code.text(index) == "(" and code.is_name(index - 1) for index in range(position + 2, closing))
        if not calls and not names_in(code.span(position + 2, closing)) & macros and not _is_redefined(code, text):
            code.token(position).written = f"::cuemu::discards({kind}), {text}"


def _begins_statement(code: Code, position: int, opened: list[int]) -> bool:
    # Not in the head of a loop, nor as the value of a block in parentheses.
    if opened and (code.text(opened[-1]) != "{" or code.text(opened[-1] - 1) == "("):
        return False
    before = code.text(position - 1)
    if before != ")":
        return before in (";", "{", "}", "else")
    opening = code.open_of(position - 1)
    return opening is not None and code.text(opening - 1) in ("if", "for", "while")


def _is_redefined(code: Code, name: str) -> bool:
    """Tells whether a text defines a function of its own with the name of an atomic one."""
    return any(
        code.text(position) == name
        and (code.is_name(position - 1) or code.text(position - 1) in ("*", "&", ">"))
        and code.text(position - 1) not in ("return", "else", "do")
        for position in range(1, len(code))
    )


def _rewrite_variables(code: Code) -> None:
    """Marks variables of the device, since the checker must see where one ends."""
    for position in range(len(code)):
        if code.text(position) not in _VARIABLES or not code.is_name(position):
            continue
        end = position + 1
        while end < len(code) and code.text(end) not in _ENDS_A_DECLARATOR:
            end += 1
        if end < len(code) and code.text(end) in "=[;":
            code.token(position).written = f"{code.text(position)} CUEMU_APART"


def _is_empty_asm(code: Code, start: int, closing: int) -> bool:
    """Tells whether an assembler statement has no instruction and sets no variable.

    ``"+r"(x)`` changes nothing where there is no instruction; ``"=r"(x)`` would be set to anything.
    """
    index = start
    while re.fullmatch(r'"\s*"', code.text(index)):
        index += 1
    has_operands = index > start and code.text(index) == ":" and code.text(index + 1) != ":"
    while has_operands and index + 1 < closing:
        after = code.close_of(index + 2) if code.text(index + 2) == "(" else None
        if after is None or not code.text(index + 1).startswith('"+'):
            return False
        index, has_operands = after + 1, code.text(after + 1) == ","
    return index > start and (index == closing or code.text(index) in (":", "::"))


def _rewrite_device(code: Code) -> None:
    """Rewrites names of the CUDA device to the CPU, where the emulated device's tensors lie."""
    for position in range(len(code)):
        text = code.text(position)
        if not code.is_name(position):
            continue
        if text == "kCUDA":
            code.token(position).written = "kCPU"
        elif text == "is_cuda" and code.text(position + 1) == "(":
            code.token(position).written = "is_cpu"
            if [code.text(position - back) for back in range(4, 0, -1)] == ["type", "(", ")", "."]:
                for back in range(1, 5):  # the type of a tensor tells only whether it is CUDA's
                    code.token(position - back).written = ""
        elif text == "cuda" and code.text(position - 1) in (".", "->") and code.text(position + 1) == "(":
            code.token(position).written = "cpu"
        elif text == "aoti_torch_device_type_cuda":
            code.token(position).written = "aoti_torch_device_type_cpu"
        elif text.endswith("CUDA") and _names_device(code, position):
            code.token(position).written = f"{text.removesuffix('CUDA')}CPU"
        elif text == "Device" and code.text(position + 1) in ("(", "{"):
            _rewrite_device_string(code, position + 2)


def _names_device(code: Code, position: int) -> bool:
    """Tells whether ``CUDA`` or ``AutogradCUDA`` is a device enumerator or a registration's dispatch key."""
    if code.text(position - 1) == "::" and code.text(position - 2) in (
        "DeviceType",
        "DispatchKey",
        "Backend",
    ):
        return True
    is_second = code.text(position - 1) == "," and code.text(position - 3) == "("
    return is_second and _LIBRARY_MACRO in code.text(position - 4)


def _rewrite_device_string(code: Code, position: int) -> None:
    if re.fullmatch(r'"cuda(:\d+)?"', code.text(position)):
        code.token(position).written = '"cpu"'
