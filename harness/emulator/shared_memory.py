"""Rewrites ``__shared__`` declarations into references to slots of the emulated block's memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.emulator.lexer import Kind, Token, line_breaks
from harness.emulator.syntax import Code, names_in

_QUALIFIERS = frozenset({"static", "extern", "constexpr", "inline", "__shared__"})
_KEPT_QUALIFIERS = frozenset({"volatile", "const"})
_ALIGNERS = frozenset({"__align__", "alignas", "__attribute__"})
_TYPE_INTRODUCERS = frozenset({"struct", "union", "class"})
_DEVICE_SPACES = frozenset({"__global__", "__device__"})


@dataclass(frozen=True)
class _Declarator:
    """One declared variable: ``*name[4][5] = initializer``.

    Attributes:
        prefix: The ``*`` and ``&`` before the name.
        name: The variable's name.
        extents: The text of the array extents with their brackets.
        unsized: Whether the first extent is ``[]``.
        initialized: Whether an initializer follows.
    """

    prefix: str
    name: str
    extents: str
    unsized: bool
    initialized: bool


@dataclass(frozen=True)
class _Declaration:
    """A whole ``__shared__`` declaration.

    Attributes:
        start: The first position, including qualifiers.
        stop: The position of the ``;`` (or the end of a macro's body).
        type_text: The type with its line breaks.
        is_extern: Whether the launch sets the size.
        alignments: The arguments of ``alignas`` and its like.
        declarators: The variables.
    """

    start: int
    stop: int
    type_text: str
    is_extern: bool
    alignments: tuple[str, ...]
    declarators: tuple[_Declarator, ...]


def rewrite_shared(code: Code, device_macros: frozenset[str]) -> None:
    """Rewrites every ``__shared__`` declaration.

    A declaration that the rewriter cannot read stays, so that the compiler reports it.

    Args:
        code: The text, or a macro's body.
        device_macros: Macros that expand to ``__global__`` or ``__device__``.
    """
    scopes = Scopes(code)
    done = 0
    for position in range(len(code)):
        if code.text(position) != "__shared__" or position < done:
            continue
        declaration = _read(code, position)
        if declaration is None:
            continue
        done = declaration.stop
        at_file_scope = not code.parameters and not scopes.in_function(position) and scopes.has_functions
        replacement = _local_text(code, declaration)
        if at_file_scope:
            _inject(code, scopes, declaration, replacement, device_macros)
            replacement = ""
        breaks_kept = replacement.count("\n")
        original = "".join(line_breaks(token.text) for token in code.span(declaration.start, declaration.stop))
        missing = "\n" * max(0, original.count("\n") - breaks_kept)
        if "\\" in original:
            missing = missing.replace("\n", "\\\n")
        for token in code.span(declaration.start, declaration.stop):
            token.written = ""
        code.token(declaration.start).written = replacement + missing


def _read(code: Code, position: int) -> _Declaration | None:
    start = _declaration_start(code, position)
    stop = _declaration_stop(code, position)
    alignments: list[str] = []
    is_extern = False
    index = start
    type_parts: list[int] = []
    while index < stop:
        text = code.text(index)
        if text in _ALIGNERS and code.text(index + 1) == "(":
            closing = code.close_of(index + 1)
            if closing is None:
                return None
            alignments.extend(_alignment(code, index, closing))
            index = closing
        elif text in _QUALIFIERS:
            is_extern = is_extern or text == "extern"
        elif text == "[" and code.text(index + 1) == "[" and not type_parts:
            closing = code.close_of(index)
            if closing is None:
                return None
            index = closing
        else:
            type_parts.append(index)
        index += 1
    return _split(code, start, stop, type_parts, is_extern=is_extern, alignments=tuple(alignments))


def _declaration_start(code: Code, position: int) -> int:
    """Returns the position of the first qualifier before ``__shared__``."""
    start = position
    while start > 0:
        before = code.text(start - 1)
        if before in _QUALIFIERS or before in _KEPT_QUALIFIERS:
            start -= 1
        elif before == ")":
            opening = code.open_of(start - 1)
            if opening is None or code.text(opening - 1) not in _ALIGNERS:
                break
            start = opening - 1
        else:
            break
    return start


def _declaration_stop(code: Code, position: int) -> int:
    index = position
    while index < len(code):
        text = code.text(index)
        if text == ";":
            return index
        if text in ("(", "[", "{"):
            closing = code.close_of(index)
            if closing is None:
                return index
            index = closing
        elif text in (")", "]", "}"):
            return index
        index += 1
    return len(code)


def _alignment(code: Code, position: int, closing: int) -> list[str]:
    inner = code.one_line(position + 2, closing)
    if code.text(position) != "__attribute__":
        return [inner]
    match = re.search(r"aligned(?:__)?\s*\((.*)\)", inner)
    return [match.group(1).rstrip(") ")] if match else []


def _split(
    code: Code, start: int, stop: int, parts: list[int], *, is_extern: bool, alignments: tuple[str, ...]
) -> _Declaration | None:
    """Splits the part after the qualifiers into the type and the declared variables."""
    if not parts:
        return None
    first_end = _first_declarator_end(code, parts)
    name_at = first_end - 1
    if name_at < 1 or not code.is_name(parts[name_at]):
        return None
    type_end = name_at
    while type_end > 0 and code.text(parts[type_end - 1]) in ("*", "&"):
        type_end -= 1
    if type_end == 0:
        return None
    declarators: list[_Declarator] = []
    for first, last in _top_level_commas(code, parts, type_end):
        declarator = _declarator(code, parts[first:last])
        if declarator is None:
            return None
        declarators.append(declarator)
    type_text = _joined(code, parts[:type_end])
    return _Declaration(
        start,
        stop=stop,
        type_text=type_text,
        is_extern=is_extern,
        alignments=alignments,
        declarators=tuple(declarators),
    )


def _first_declarator_end(code: Code, parts: list[int]) -> int:
    """Returns the index in ``parts`` after the first declared name."""
    index = 0
    while index < len(parts):
        text = code.text(parts[index])
        if text == "<":
            closing = code.angle_close(parts[index])
        elif (text == "{" and _opens_type_body(code, parts, index)) or (
            text == "(" and code.text(parts[index] - 1) == "decltype"
        ):
            closing = code.close_of(parts[index])
        elif text in ("[", ",", "=", "(", "{"):
            return index
        else:
            closing = None
        if closing is not None:
            while index < len(parts) and parts[index] < closing:
                index += 1
        index += 1
    return len(parts)


def _opens_type_body(code: Code, parts: list[int], index: int) -> bool:
    return any(code.text(position) in _TYPE_INTRODUCERS for position in parts[max(0, index - 3) : index])


def _top_level_commas(code: Code, parts: list[int], start: int) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    first = index = start
    while index < len(parts):
        text = code.text(parts[index])
        if text == ",":
            ranges.append((first, index))
            first = index + 1
        elif text in ("(", "[", "{"):
            closing = code.close_of(parts[index])
            while closing is not None and index < len(parts) - 1 and parts[index] < closing:
                index += 1
        index += 1
    ranges.append((first, len(parts)))
    return ranges


def _declarator(code: Code, parts: list[int]) -> _Declarator | None:
    index = 0
    while index < len(parts) and code.text(parts[index]) in ("*", "&"):
        index += 1
    prefix = "".join(code.text(position) for position in parts[:index])
    if index >= len(parts) or not code.is_name(parts[index]):
        return None
    name = code.text(parts[index])
    first_extent = index = index + 1
    while index < len(parts) and code.text(parts[index]) == "[":
        closing = code.close_of(parts[index])
        if closing is None or closing not in parts:
            return None
        index = parts.index(closing) + 1
    unsized = first_extent + 1 < index and code.text(parts[first_extent + 1]) == "]"
    extents_from = first_extent + 2 if unsized else first_extent
    extents = _joined(code, parts[extents_from:index])
    rest = [code.text(position) for position in parts[index:]]
    if rest and rest[0] not in ("=", "{", "("):
        return None
    return _Declarator(prefix, name, extents, unsized, bool(rest))


def _joined(code: Code, parts: list[int]) -> str:
    """Joins tokens with the blanks and line breaks between neighbours, but without comments."""
    pieces: list[str] = []
    for index, position in enumerate(parts):
        if index:
            if parts[index - 1] == position - 1:
                between = code.tokens[code.places[position - 1] + 1 : code.places[position]]
                pieces.append("".join(_blank(token) for token in between))
            else:
                pieces.append(" ")
        pieces.append(code.text(position))
    return "".join(pieces)


def _blank(token: Token) -> str:
    if token.kind is Kind.SPACE:
        return token.text
    if token.kind is Kind.DIRECTIVE:
        return token.text
    return " " + line_breaks(token.text)


def _local_text(code: Code, declaration: _Declaration) -> str:
    """Returns the declarations that replace the user's, without the last ``;``."""
    statements: list[str] = []
    type_text = declaration.type_text
    if len(declaration.declarators) > 1:
        # The type may hold line breaks or a struct's body, so it appears once.
        base = f"cuemu_base_{declaration.declarators[0].name}"
        statements.append(f"typedef {type_text} {base}")
        type_text = base
    for declarator in declaration.declarators:
        statements.extend(_declarator_text(code, declaration, declarator, type_text))
    return "; ".join(statements)


def _declarator_text(code: Code, declaration: _Declaration, declarator: _Declarator, type_text: str) -> list[str]:
    name = declarator.name
    suffix, quoted = (f"##{name}", f"#{name}") if name in code.parameters else (name, f'"{name}"')
    alias, key = f"cuemu_type_{suffix}", f"cuemu_key_{suffix}"
    statements = [f"typedef {type_text} {declarator.prefix}{alias}{declarator.extents}"]
    alignment = "0"
    if declaration.alignments:
        alignment, helper = _alignment_text(declaration.alignments, suffix)
        statements.extend(helper)
    if declaration.is_extern:
        slot = f"::cuemu::dynamic_shared<{alias}>({alignment})"
        if not declarator.unsized:
            statements.append(f"{alias}& {name} = *{slot}")
        elif _has_copying_lambda(code, declaration.stop):
            statements.append(f"{alias}* {name} = {slot}")
        else:
            statements.append(f"{alias} (&{name})[] = *reinterpret_cast<{alias} (*)[]>({slot})")
    else:
        slot = f"::cuemu::shared_slot<{alias}>(&{key}, {alignment}, {quoted}, __LINE__)"
        statements.append(f"static char {key}")
        statements.append(f"{alias}& {name} = {slot}")
    if declarator.initialized:
        message = f'"an initializer is not allowed for the __shared__ variable {name}"'
        statements.append(f"static_assert(sizeof({alias}) == 0, {message})")
    return statements


def _has_copying_lambda(code: Code, start: int) -> bool:
    """Tells whether a lambda copies what it names, which it cannot if that is an array of unknown length.

    Args:
        code: The text.
        start: The position from which on to look, up to the end of the block.
    """
    depth = 0
    for position in range(start, len(code)):
        text = code.text(position)
        if text == "[" and code.text(position + 1) == "=":
            return True
        depth += (text == "{") - (text == "}")
        if depth < 0:
            return False
    return False


def _alignment_text(alignments: tuple[str, ...], suffix: str) -> tuple[str, list[str]]:
    if len(alignments) == 1 and re.fullmatch(r"\d+", alignments[0]):
        return alignments[0], []
    # ``alignas`` takes a type or a number. A struct aligned that way tells the number.
    holder = f"cuemu_aligned_{suffix}"
    specifiers = " ".join(f"alignas({alignment})" for alignment in alignments)
    return f"alignof({holder})", [f"struct {specifiers} {holder} {{ char byte; }}"]


def _inject(code: Code, scopes: Scopes, declaration: _Declaration, text: str, device_macros: frozenset[str]) -> None:
    """Declares a file-scope variable again in every later device function that uses it."""
    names = {declarator.name for declarator in declaration.declarators}
    spaces = _DEVICE_SPACES | device_macros
    one_line = re.sub(r"\s*\\?\r?\n\s*", " ", text)
    for header, opening, closing in scopes.functions:
        if opening < declaration.stop:
            continue
        head, body = names_in(code.span(header, opening)), code.span(opening, closing)
        if not head & spaces or head & names or not names_in(body) & names:
            continue
        if not _declares_itself(code, opening, closing, names):
            code.token(opening).written += f" {one_line};"


def _declares_itself(code: Code, start: int, stop: int, names: set[str]) -> bool:
    for position in range(start, stop):
        if code.text(position) == "__shared__":
            declaration = _read(code, position)
            if declaration and any(declarator.name in names for declarator in declaration.declarators):
                return True
    return False


class Scopes:
    """The braces of a text that belong to functions.

    Attributes:
        functions: For every outermost function body, the positions of its header, its ``{`` and its
            ``}``.
        has_functions: Whether the text has a function body at all. Without one (a macro's body, a
            fragment) every position counts as inside a function.
    """

    def __init__(self, code: Code):
        self.functions: list[tuple[int, int, int]] = []
        self._scan(code)
        self.has_functions = bool(self.functions)

    def in_function(self, position: int) -> bool:
        """Returns whether a position is inside a function's body."""
        return any(opening < position < closing for _, opening, closing in self.functions)

    def _scan(self, code: Code) -> None:
        header = index = 0
        while index < len(code):
            text = code.text(index)
            if text in (";", "}"):
                header = index + 1
            elif text in ("(", "["):
                closing = code.close_of(index)
                index = index if closing is None else closing
            elif text == "{":
                if _is_function_header(code, header, index):
                    closing = code.close_of(index)
                    closing = len(code) if closing is None else closing
                    self.functions.append((header, index, closing))
                    index = closing
                header = index + 1
            index += 1


def _is_function_header(code: Code, start: int, opening: int) -> bool:
    while code.text(start) == "template" and (closing := code.angle_close(start + 1)) is not None:
        start = closing + 1  # a template's parameters may have defaults
    texts = [code.text(position) for position in range(start, opening)]
    if "namespace" in texts or "(" not in texts:
        return False
    before_parameters = texts[: texts.index("(")]
    if texts[0] == "struct" or (texts[0] in _TYPE_INTRODUCERS and texts[-1] != ")"):
        return texts[-1] in (")", "const", "noexcept", "override")
    return "=" not in before_parameters or "operator" in before_parameters
