"""The static scan: finds what a reader of a solution's record should know about its text."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator

from harness.records.record import REPORT, Finding
from harness.scanning import cuda, python, torch_use
from harness.scanning.hot_path import HotPath
from harness.scanning.literals import Literals, Located, is_empty, sources
from harness.scanning.program import Program, inside, literal, parsed
from harness.scanning.rules import RULES, Hit
from harness.system.text import has_costly_fields, one_line, shortened

#: The scan skips longer texts and larger trees, so that none takes more than seconds.
MOST_CHARACTERS, MOST_NODES = 1 << 18, 100_000
MOST_FINDINGS = 50
_MOST_SEEN = 80


def scan(text: str) -> tuple[Finding, ...]:
    """Returns the findings of the rules in a solution's text, without running it.

    The result depends on the text alone. The function never raises. A text that is not Python gives
    no findings. A text too large to be read in seconds gives ``not-scanned``.

    Args:
        text: The solution's source.

    Returns:
        Findings of level ``report`` in the order of the lines: one for each rule and line, at most
        ``MOST_FINDINGS``. If there are more, each rule keeps its first.
    """
    return tuple(_finding(hit) for hit in _chosen(_hits(text)))


def readable(text: str) -> ast.Module | str:
    """Returns the tree of a text that can be read in seconds, or else why it cannot.

    The reason is empty for a text that is not Python.
    """
    if len(text) > MOST_CHARACTERS:
        return f"{len(text):,} characters; the scan reads at most {MOST_CHARACTERS:,}"
    if has_costly_fields(text):
        return f"f-strings and {text.count('{'):,} braces in {len(text):,} characters"
    tree = parsed(text)
    if tree is None:
        return ""
    if sum(1 for _ in itertools.islice(inside(tree), MOST_NODES + 1)) > MOST_NODES:
        return f"more than {MOST_NODES:,} names, numbers and expressions"
    return tree


def _hits(text: str) -> Iterator[Hit]:
    tree = readable(text)
    if isinstance(tree, str):
        if tree:
            yield Hit(None, "not-scanned", tree)
        return
    program = Program(tree)
    for detector in (*python.DETECTORS, *torch_use.detectors(HotPath(program))):
        for node in program.of(*detector.types):
            for place, seen in detector.look(program, node):
                yield Hit(getattr(place, "lineno", None), detector.rule, seen)
    yield from _source_hits(program, Literals(program, text))


def _source_hits(program: Program, literals: Literals) -> Iterator[Hit]:
    """Yields the hits in the sources that a program passes to a compiler."""
    texts: dict[str, Located] = {}
    room = cuda.MOST_CHARACTERS
    for source in sources(program, literals):
        located = source.located
        if source.what and not located.text.strip() and not is_empty(source.node):
            yield Hit(source.node.lineno, "unread-source", source.what)
        if located.text not in texts:
            if cuda.too_long(located.text) or len(located.text) > room:
                yield Hit(source.node.lineno, "not-scanned", source.what or "a C++ source")
                continue
            room -= len(located.text)
            texts[located.text] = located
    if literals.is_cut:
        yield Hit(None, "not-scanned", "sources that consist of too many pieces")
    names = {value for node in program.of(ast.Constant) if (value := literal(node)) and len(value) < 200}
    yield from cuda.cuda_hits(list(texts.values()), names.__contains__)


def _chosen(hits: Iterable[Hit]) -> list[Hit]:
    """Returns one hit for each rule and line.

    If there are too many, the first hit of each rule comes first, then the first of all hits.
    """
    places: dict[tuple[int | None, str], Hit] = {}
    for hit in hits:
        places.setdefault((hit.line, hit.rule), hit)
    order = list(RULES)
    found = sorted(places.values(), key=lambda hit: (hit.line or 0, order.index(hit.rule)))
    first: dict[str, Hit] = {}
    for hit in found:
        first.setdefault(hit.rule, hit)
    kept = set(list(dict.fromkeys([*first.values(), *found]))[:MOST_FINDINGS])
    return [hit for hit in found if hit in kept]


def _finding(hit: Hit) -> Finding:
    rule = RULES[hit.rule]
    seen = one_line(shortened(hit.seen, _MOST_SEEN))
    return Finding(
        rule.name,
        kernel=None,
        line=hit.line,
        accesses=(),
        remedy=rule.remedy,
        message=f"{seen}: {rule.what}",
        level=REPORT,
    )
