"""Chooses the code that an answer ends with, or explains why the answer has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from harness.answers.code import MODEL, defines_reference, mentions_model, parse
from harness.answers.parts import CodeBlock, FinalPart, final_part
from harness.answers.reading import RawAnswer
from harness.errors import AnswerError
from harness.system.text import one_line

_SHOWN_CHARACTERS = 60
_SHOWN_PIECES = 5
_ONLY_REFERENCE = (
    f"defines Model and no {MODEL}; if that Model is the solution, rename it to {MODEL}, else give a complete answer"
)


@dataclass(frozen=True)
class Extract:
    """The code of an answer.

    Attributes:
        code: Text of the code as it stands in the answer, with LF line ends.
        first: Number of its first line in the answer, from 1.
        last: Number of its last line.
        notes: Remarks for the reader about how the code was chosen.
    """

    code: str
    first: int
    last: int
    notes: tuple[str, ...]


def extract(answer: RawAnswer) -> Extract:
    """Returns the last complete code of an answer: valid Python that defines ``ModelNew``.

    If the whole answer is such code, the function returns all of it. Otherwise it reads only fenced
    code after the reasoning. Of several complete pieces, it prefers the last one that also binds
    the names that ``ModelNew`` is derived from. An excerpt that repeats the class without its
    imports does not.

    Raises:
        AnswerError: The answer has no complete code, or an unfinished version follows it.
    """
    whole = "\n".join(answer.lines)
    if parse(whole).defines_model:
        return Extract(f"{whole}\n", 1, len(answer.lines), ())
    try:
        part = final_part(answer.lines)
    except AnswerError as error:
        raise AnswerError(f"{answer.shown}: {error}") from None
    if part.reasoning_ends is not None and parse(part.text).defines_model:
        return _bare(part, len(answer.lines))
    complete = [piece for piece in part.pieces if piece.is_complete]
    if not complete:
        _refuse(answer, part)
    chosen = next((piece for piece in reversed(complete) if piece.parsed.stands_alone), complete[-1])
    _refuse_what_follows(answer, part, chosen)
    return Extract(chosen.text, chosen.first, chosen.last, _notes(part, complete, chosen))


def _bare(part: FinalPart, last: int) -> Extract:
    """Returns the code that follows the reasoning without a fence."""
    stripped = part.text.lstrip("\n")
    return Extract(f"{stripped}\n", part.first + len(part.text) - len(stripped), last, ())


def _notes(part: FinalPart, complete: list[CodeBlock], chosen: CodeBlock) -> tuple[str, ...]:
    notes = []
    if len(complete) > 1:
        which = "the last" if chosen is complete[-1] else f"the last one that defines what its {MODEL} inherits from"
        others = _places([piece for piece in complete if piece is not chosen])
        notes.append(f"{len(complete)} blocks of code define {MODEL}: took {which}; left out: {others}")
    rest = [piece for piece in part.pieces if not piece.is_complete and piece.text.strip()]
    if rest:
        notes.append(f"left out code without {MODEL}: {_places(rest)}")
    return tuple(notes)


def _refuse_what_follows(answer: RawAnswer, part: FinalPart, chosen: CodeBlock) -> None:
    """Raises AnswerError if an unfinished next version makes the chosen code a likely draft."""
    for piece in part.pieces[part.pieces.index(chosen) + 1 :]:
        cut_off = _is_cut_off(answer, piece)
        if cut_off or (mentions_model(piece.text) and not (piece.closed and piece.parsed.parses)):
            why = _stop(answer, piece) if cut_off else _fault(answer, piece)
            raise AnswerError(
                f"{answer.shown}: incomplete code follows the complete code of lines "
                f"{chosen.first}-{chosen.last}, so that may be a draft: {why}; if it is the final code, "
                "remove what follows it"
            )


def _refuse(answer: RawAnswer, part: FinalPart) -> NoReturn:
    last = part.pieces[-1] if part.pieces else None
    unfinished = [piece for piece in part.pieces if mentions_model(piece.text)]
    if part.reasoning_begins is not None:
        why = (
            f"the text stops at line {len(answer.lines)}, inside the reasoning that begins at line "
            f"{part.reasoning_begins}: {_tail(answer)}; only code after the reasoning counts"
        )
    elif last is not None and _is_cut_off(answer, last):
        why = _stop(answer, last)
        if last.parsed.defines_model:
            why += "; the code so far is complete: if nothing was cut off, add a line ``` at the end"
        else:
            why += "; allow the model more output, or give a complete answer"
    elif unfinished:
        why = f"{_fault(answer, unfinished[-1])}; correct it, or ask the model again"
    elif renamed := [piece for piece in part.pieces if defines_reference(piece.text)]:
        why = f"the code of {_places(renamed)} {_ONLY_REFERENCE}"
    elif part.pieces:
        why = f"{_places(part.pieces)}: none defines {MODEL} by a class or an assignment; {_stop_in_prose(answer)}"
    elif part.reasoning_ends is not None and not part.text.strip():
        why = (
            f"nothing follows the reasoning, which ends at line {part.reasoning_ends}; only code after the "
            "reasoning counts"
        )
    else:
        why = _no_fence(answer, part)
    raise AnswerError(f"{answer.shown}: no complete code: {why}")


def _no_fence(answer: RawAnswer, part: FinalPart) -> str:
    """Explains why a text without a fence is not code: it is prose, or it does not parse."""
    if not mentions_model(part.text):
        if defines_reference(part.text):
            return f"it {_ONLY_REFERENCE}"
        return f"the answer has no code fence (```), and {_stop_in_prose(answer)}"
    parsed = parse(part.text)
    at = part.first + parsed.line - 1
    return (
        f"the answer has no code fence (```), and does not parse as plain code: line {at}: {parsed.fault}: "
        f"{_shown(answer.lines[at - 1])}; correct that line, or give a complete answer"
    )


def _is_cut_off(answer: RawAnswer, piece: CodeBlock) -> bool:
    return not piece.closed and piece.last == len(answer.lines)


def _fault(answer: RawAnswer, piece: CodeBlock) -> str:
    """Explains why a piece that begins to define the model is not complete."""
    if not piece.parsed.parses:
        return _syntax_error(answer, piece)
    if not piece.closed:
        return f"the fence that opens at line {piece.opening} is not closed before line {piece.last + 1}"
    return f"the code of lines {piece.first}-{piece.last} names {MODEL}, but not at module level"


def _stop_in_prose(answer: RawAnswer) -> str:
    return f"the text stops at line {len(answer.lines)}, in prose: {_tail(answer)}; give a complete answer"


def _stop(answer: RawAnswer, piece: CodeBlock) -> str:
    return (
        f"the text stops at line {len(answer.lines)}, inside a code block whose fence opens at line "
        f"{piece.opening} and never closes: {_tail(answer)}"
    )


def _syntax_error(answer: RawAnswer, piece: CodeBlock) -> str:
    at = min(piece.opening + piece.parsed.line, len(answer.lines))
    return (
        f"the code of lines {piece.first}-{piece.last} does not parse: line {at}: {piece.parsed.fault}: "
        f"{_shown(answer.lines[at - 1])}"
    )


def _places(pieces: Sequence[CodeBlock]) -> str:
    shown = [f"{piece.first}-{piece.last}" if piece.text else str(piece.opening) for piece in pieces[:_SHOWN_PIECES]]
    more = f" and {len(pieces) - _SHOWN_PIECES} more" if len(pieces) > _SHOWN_PIECES else ""
    return f"line{'s' if len(pieces) > 1 or pieces[0].text else ''} {', '.join(shown)}{more}"


def _tail(answer: RawAnswer) -> str:
    """Returns the end of the answer's last line, for messages."""
    line = one_line(answer.lines[-1].strip())
    return f"'{line}'" if len(line) <= _SHOWN_CHARACTERS else f"'…{line[-_SHOWN_CHARACTERS:]}'"


def _shown(line: str) -> str:
    line = one_line(line.strip())
    return f"'{line}'" if len(line) <= _SHOWN_CHARACTERS else f"'{line[:_SHOWN_CHARACTERS]}…'"
