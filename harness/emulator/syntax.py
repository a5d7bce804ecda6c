"""Parses the parts of C++'s grammar that the rewriter needs: brackets, arguments, names.

All functions work on positions among the code tokens, without comments, blanks and preprocessor
lines. They return None if the text does not hold what they look for, and raise no error for a
malformed text.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.emulator.lexer import Kind, Token, line_breaks, on_one_line

_OPENING = {"(": ")", "[": "]", "{": "}"}
_CLOSING = {closing: opening for opening, closing in _OPENING.items()}

Range = tuple[int, int]
"""A range of tokens: its first position, and the position after its last."""


class Code:
    """The code tokens of a text, by position.

    Attributes:
        tokens: Every token of the text.
        places: The index in ``tokens`` of each code position.
        parameters: The names of a macro's parameters, if the text is a macro's body.
    """

    def __init__(self, tokens: list[Token], parameters: frozenset[str] = frozenset()):
        self.tokens = tokens
        self.places = [index for index, token in enumerate(tokens) if token.is_code]
        self.parameters = parameters
        self._repeated = _repeated_branches(tokens)

    def __len__(self) -> int:
        return len(self.places)

    def token(self, position: int) -> Token:
        """Returns the token at a position, which must exist."""
        return self.tokens[self.places[position]]

    def text(self, position: int) -> str:
        """Returns the text at a position; empty outside the code."""
        return self.token(position).text if 0 <= position < len(self.places) else ""

    def is_name(self, position: int) -> bool:
        """Tells whether the token at a position is a name or a keyword."""
        return 0 <= position < len(self.places) and self.token(position).kind is Kind.NAME

    def adjacent(self, position: int) -> bool:
        """Tells whether a token and the next one are adjacent, without even a blank in between."""
        return position + 1 < len(self.places) and self.places[position + 1] == self.places[position] + 1

    def span(self, start: int, stop: int) -> list[Token]:
        """Returns all tokens from a position up to another one, with blanks and comments."""
        if start >= stop:
            return []
        return self.tokens[self.places[start] : self.places[stop - 1] + 1]

    def one_line(self, start: int, stop: int) -> str:
        """Returns the text between two positions on one line."""
        return on_one_line(self.span(start, stop))

    def replace(self, start: int, stop: int, text: str) -> None:
        """Replaces the tokens between two positions, and keeps their line breaks after the text."""
        replaced = self.span(start, stop)
        breaks = "".join(line_breaks(token.text) for token in replaced)
        for token in replaced:
            token.written = ""
        replaced[0].written = text + breaks

    def _bracket(self, position: int) -> str:
        return "" if self.places[position] in self._repeated else self.text(position)

    def close_of(self, position: int) -> int | None:
        """Returns the bracket that closes the one at a position."""
        wanted: list[str] = []
        for index in range(position, len(self)):
            text = self._bracket(index)
            if text in _OPENING:
                wanted.append(_OPENING[text])
            elif text in _CLOSING:
                if not wanted or wanted.pop() != text:
                    return None
                if not wanted:
                    return index
        return None

    def open_of(self, position: int) -> int | None:
        """Returns the bracket that opens the one at a position."""
        wanted: list[str] = []
        for index in range(position, -1, -1):
            text = self._bracket(index)
            if text in _CLOSING:
                wanted.append(_CLOSING[text])
            elif text in _OPENING:
                if not wanted or wanted.pop() != text:
                    return None
                if not wanted:
                    return index
        return None

    def angle_close(self, position: int) -> int | None:
        """Returns the ``>`` that closes the template arguments which the ``<`` here opens."""
        depth = 0
        index = position
        while index < len(self):
            text = self.text(index)
            if text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return index
            elif text in _OPENING:
                closing = self.close_of(index)
                if closing is None:
                    return None
                index = closing
            elif text in _CLOSING or text in (";", "<<<"):
                return None
            index += 1
        return None

    def angle_open(self, position: int) -> int | None:
        """Returns the ``<`` that opens the template arguments which the ``>`` here closes."""
        depth = 0
        index = position
        while index >= 0:
            text = self.text(index)
            if text == ">":
                depth += 1
            elif text == "<":
                depth -= 1
                if depth == 0:
                    return index
            elif text in _CLOSING:
                opening = self.open_of(index)
                if opening is None:
                    return None
                index = opening
            elif text in _OPENING or text in (";", "<<<"):
                return None
            index -= 1
        return None

    def arguments(self, start: int, stop: int) -> list[Range]:
        """Splits an argument list at its commas, except those inside brackets.

        Template arguments count as brackets.
        """
        if start >= stop:
            return []
        ranges: list[Range] = []
        first = index = start
        while index < stop:
            text = self.text(index)
            if text == ",":
                ranges.append((first, index))
                first = index + 1
            else:
                index = self._past_group(index, stop)
            index += 1
        ranges.append((first, stop))
        return ranges

    def _past_group(self, index: int, stop: int) -> int:
        """Returns the end of the group or template argument list that opens here.

        Else the position itself.
        """
        closing: int | None = None
        if self.text(index) in _OPENING:
            closing = self.close_of(index)
        elif self.text(index) == "<" and self.is_name(index - 1):
            closing = self.angle_close(index)
        return closing if closing is not None and closing < stop else index


def _repeated_branches(tokens: Sequence[Token]) -> set[int]:
    """Returns the brackets that ``#else`` branches open in addition to the ``#if`` branch.

    ``#if A`` / ``void f() {`` / ``#else`` / ``void g() {`` / ``#endif`` opens one body, not two.
    """
    repeated: set[int] = set()
    branches: list[list[list[int]]] = []
    for index, token in enumerate(tokens):
        if token.kind is Kind.DIRECTIVE:
            word = token.text.lstrip("# \t")
            if word.startswith("if"):
                branches.append([[]])
            elif word.startswith("el") and branches:
                branches[-1].append([])
            elif word.startswith("endif") and branches:
                first, *others = branches.pop()
                if _depth(tokens, first):
                    repeated.update(place for branch in others for place in branch)
                if branches:
                    branches[-1][-1].extend(first)
        elif branches and token.is_code:
            branches[-1][-1].append(index)
    return repeated


def _depth(tokens: Sequence[Token], places: Sequence[int]) -> int:
    """Returns the number of brackets that a piece of text opens and does not close."""
    texts = [tokens[place].text for place in places]
    return sum(text in _OPENING for text in texts) - sum(text in _CLOSING for text in texts)


def callee_start(code: Code, stop: int) -> int | None:
    """Returns the first position of a called expression, given its end.

    The function understands ``ns::k<T, 2>``, ``this->k``, ``table[i]``, ``(*pointer)``, ``pick(x)``
    and ``T::template k<4>``.

    Args:
        code: The text.
        stop: The position after the expression.

    Returns:
        The first position; None if no expression ends there.
    """
    index: int | None = _primary_start(code, stop - 1)
    while index is not None:
        before = code.text(index - 1)
        if before == "template":
            index -= 1
        elif before in (".", "->"):
            index = _primary_start(code, index - 2)
        elif before == "::":
            qualifier = code.text(index - 2)
            if not (code.is_name(index - 2) or qualifier == ">") or qualifier in _STATEMENT_WORDS:
                return index - 1
            index = _primary_start(code, index - 2)
        else:
            return index
    return None


_STATEMENT_WORDS = frozenset({"return", "else", "do", "case", "co_return", "co_yield", "throw", "goto", "if", "while"})


def _primary_start(code: Code, last: int) -> int | None:
    """Returns the start of a name, call, index or parenthesis that ends at a position."""
    index: int | None = last
    while index is not None:
        text = code.text(index)
        if text == "]":
            opening = code.open_of(index)
            index = None if opening is None else opening - 1
        elif text == ")":
            opening = code.open_of(index)
            if opening is None:
                return None
            if not _called(code, opening - 1):
                return opening
            index = opening - 1
        elif text == ">":
            opening = code.angle_open(index)
            if opening is None or not code.is_name(opening - 1):
                return None
            return opening - 1
        else:
            return index if code.is_name(index) and text not in _STATEMENT_WORDS else None
    return None


def _called(code: Code, position: int) -> bool:
    text = code.text(position)
    return (code.is_name(position) and text not in _STATEMENT_WORDS) or text in (">", "]")


_CASTS = frozenset({"reinterpret_cast", "static_cast", "const_cast"})


def without_casts(code: Code, start: int, stop: int) -> Range:
    """Returns the kernel inside casts, ``&`` and parentheses.

    Examples: ``(const void*)k<T>``, ``&k``, ``reinterpret_cast<void*>(&k)``, ``(k)``.

    Args:
        code: The text.
        start: The expression's first position.
        stop: The position after it.

    Returns:
        The range of the bare expression; the given range if there is nothing to remove.
    """
    while start < stop:
        text = code.text(start)
        if text in ("&", "*"):
            start += 1
        elif text in _CASTS and code.text(start + 1) == "<" and code.text(stop - 1) == ")":
            closing = code.angle_close(start + 1)
            if closing is None or code.text(closing + 1) != "(":
                break
            start, stop = closing + 2, stop - 1
        elif text == "(":
            closing = code.close_of(start)
            if closing is None or closing >= stop:
                break
            start, stop = (start + 1, stop - 1) if closing == stop - 1 else (closing + 1, stop)
        else:
            break
    return start, stop


def base_name(code: Code, start: int, stop: int) -> str:
    """Returns a kernel's name without namespaces and template arguments.

    The name is empty if the expression holds none.
    """
    start, stop = without_casts(code, start, stop)
    name = ""
    index = start
    while index < stop:
        if code.is_name(index):
            if code.text(index) not in ("template", "this"):
                name = code.text(index)
        elif code.text(index) == "<" and name:
            closing = code.angle_close(index)
            if closing is None:
                break
            index = closing
        elif code.text(index) not in ("::", ".", "->"):
            break
        index += 1
    return name


def names_in(tokens: Sequence[Token]) -> set[str]:
    """Returns every name in the code of a text."""
    return {token.text for token in tokens if token.kind is Kind.NAME}
