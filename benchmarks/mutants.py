"""Does the judge notice one small change? Mutants of solutions that pass are judged, then checked.

    python -m benchmarks.mutants --problem group_norm solutions/group_norm/plain.py --count 40
    python -m benchmarks.mutants --problem 43_Max_Pooling_3D.py answer.py -- --forward-only --timeout 6

Each mutant has one change in its CUDA source: another comparison, operator, number or index, a barrier or a guard left
out, and so on (``OPERATORS``). Which ones are drawn depends on ``--seed`` alone. Mutants that do not build are left
out. One that fails, or gets a finding that its original does not get, is killed. What ``evaluate`` passes is given to
``check``. Prints each mutant that survives both, with its line before and after: it is equivalent to its original, or
the judge has a hole. Then a table by operator. Options of ``evaluate`` stand behind ``--``. Exit code 1 where an
original does not pass.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from benchmarks.common import count, program, say, table
from harness.emulator.lexer import Kind, Token
from harness.emulator.lexer import tokenize as tokens_of
from harness.errors import UsageError

#: What replaces a token's text, by operator. Each pair is tried where the first stands in CUDA source.
REPLACED = {
    "comparison": {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="},
    "arithmetic": {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "+=": "-=", "*=": "+=", ">>": "<<"},
    "logic": {"&&": "||", "||": "&&"},
    "accumulation": {"+=": "="},
    "extremum": {"fmaxf": "fminf", "fminf": "fmaxf", "max": "min", "min": "max"},
    "function": {"expf": "exp2f", "tanhf": "sinf", "sqrtf": "fabsf", "rsqrtf": "sqrtf", "logf": "log2f", "fabsf": ""},
    "dimension": {"x": "y", "y": "x"},
    "atomic": {"atomicAdd": "*"},
    "memory": {"zeros": "empty", "zeros_like": "empty_like"},
}
#: The outcomes of a mutant. Without a verdict nothing is known of it.
KILLED, BY_CHECK, SURVIVES, NOT_BUILT = "killed", "killed by check", "survives", "does not build"
NO_VERDICT = "no verdict"
OUTCOMES = (KILLED, BY_CHECK, SURVIVES, NOT_BUILT, NO_VERDICT)
#: All operators. For the last five more than one token decides.
OPERATORS = (*REPLACED, "number", "index", "guard", "barrier", "initial value")
_NO_OPERANDS = {
    "return",
    "float",
    "int",
    "double",
    "void",
    "char",
    "bool",
    "half",
    "auto",
    "scalar_t",
    "Tensor",
    "vector",
}
_BARRIERS = {"__syncthreads", "__syncwarp", "sync"}
_INTEGER = re.compile(r"(\d+)([uUlL]*)\Z")
_FLOAT = re.compile(r"(\d*\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)([fF]?)\Z")


@dataclass(frozen=True)
class Change:
    """One change of a solution's text.

    Attributes:
        operator: Which of ``OPERATORS``.
        start, end: The characters that it replaces.
        text: What stands there instead.
    """

    operator: str
    start: int
    end: int
    text: str

    def applied(self, source: str) -> str:
        """Return the mutant's text."""
        return source[: self.start] + self.text + source[self.end :]

    def lines(self, source: str) -> tuple[str, str]:
        """Return the first line that changes, before and after."""
        at = source.count("\n", 0, self.start)
        return source.splitlines()[at].strip(), self.applied(source).splitlines()[at].strip()


def changes(source: str) -> list[Change]:
    """Return all changes of a Python file's CUDA sources, in order.

    Raises:
        UsageError: It is no Python.
    """
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: list[Change] = []
    try:
        tokens = list(tokenize.generate_tokens(StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError) as error:
        raise UsageError(f"a solution is not Python: {error}") from None
    for token in tokens:
        if token.type == tokenize.STRING and re.search(r"__global__|torch::", token.string):
            begin = starts[token.start[0] - 1] + token.start[1]
            found += _of_cuda(token.string, begin)
    return found


def _of_cuda(text: str, begin: int) -> Iterator[Change]:
    places: list[tuple[int, Token]] = []
    at = begin
    for token in tokens_of(text):
        if token.is_code:
            places.append((at, token))
        at += len(token.text)
    depth = 0
    for number, (start, token) in enumerate(places):
        word = token.text
        before = places[number - 1][1].text if number else ""
        after = places[number + 1][1].text if number + 1 < len(places) else ""
        depth += {"{": 1, "}": -1}.get(word, 0)
        if depth < 1:
            continue  # declarations, templates, includes
        end = start + len(word)
        for operator, words in REPLACED.items():
            if word in words and _is_meant(operator, places[number - 1][1], before, after):
                yield Change(operator, start, end, words[word])
        if token.kind is Kind.NUMBER and (changed := _number(word)) is not None:
            yield Change("initial value" if before == "=" and after == ";" else "number", start, end, changed)
        if word == "]" and before != "[":
            yield Change("index", start, start, " + 1")
        if word in _BARRIERS and after == "(":
            close = next((at for at, later in places[number:] if later.text == ";"), end)
            yield Change("barrier", start, close, "(void)0" if before not in (".", "->") else "size()")
        if word == "if" and after == "(":
            open_at, close_at = _parentheses(places[number + 1 :])
            yield Change("guard", open_at + 1, close_at, "true")


def _is_meant(operator: str, previous: Token, before: str, after: str) -> bool:
    """Return whether a token is an operator or a name of this kind here, not a part of something else."""
    match operator:
        case "arithmetic" | "comparison":  # between two operands: no pointer, sign, reference or template argument
            is_name = previous.kind is Kind.NAME and before not in _NO_OPERANDS and not before.endswith("_cast")
            return after not in (*_NO_OPERANDS, ">", ">>") and (
                is_name or previous.kind is Kind.NUMBER or before in (")", "]")
            )
        case "dimension":
            return before == "." and after not in "("
        case "memory":
            return before == "::"
        case "extremum" | "function" | "atomic":
            return after == "("
        case _:
            return True


def _number(word: str) -> str | None:
    if match := _INTEGER.match(word):
        return f"{int(match[1]) + 1}{match[2]}"
    if match := _FLOAT.match(word):
        value = float(match[1])
        return f"{value * 1.01 if value else 0.01!r}{match[2]}"
    return None


def _parentheses(places: Sequence[tuple[int, Token]]) -> tuple[int, int]:
    depth = 0
    for at, token in places:
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth == 0:
            return places[0][0], at
    return places[0][0], places[-1][0]


@dataclass
class Judged:
    """The verdict on one file.

    Attributes:
        statuses: The status of each case.
        findings: The kinds of its findings, and the names of the robustness checks that it failed.
    """

    statuses: list[str]
    findings: set[str]

    @property
    def passed(self) -> bool:
        """Whether every case passed."""
        return set(self.statuses) == {"PASSED"}

    def is_killed(self, original: Judged) -> bool:
        """Return whether this is told from the original: it fails, or has a finding that the original has not."""
        return not self.passed or bool(self.findings - original.findings)


def judged(files: Sequence[Path], problem: str, options: Sequence[str]) -> dict[str, Judged]:
    """Judge files on the emulator; the results by the file's name."""
    if not files:
        return {}
    command = [sys.executable, "-m", "harness", "evaluate", *map(str, files), "--problem", problem]
    done = subprocess.run(
        [*command, "--device", "cpu", "--fresh", "--json", *options], stdout=subprocess.PIPE, text=True, check=False
    )
    found: dict[str, Judged] = defaultdict(lambda: Judged([], set()))
    for line in done.stdout.splitlines():
        row: dict[str, Any] = json.loads(line)
        one = found[Path(row["solution_path"]).stem]
        one.statuses.append(str(row["status"]))
        one.findings |= {finding["kind"] for finding in row.get("findings") or []}
        one.findings |= {name for name, end in (row.get("robustness") or {}).items() if end.startswith("failed")}
    return found


def outcomes_of(
    source: str, name: str, problem: str, drawn: Sequence[Change], options: Sequence[str]
) -> list[str] | None:
    """Judge mutants of a solution.

    Args:
        source: The solution's text.
        name: A name for its files.
        problem: The problem, as of evaluate.
        drawn: The change of each mutant.
        options: Further options of evaluate.

    Returns:
        One of ``OUTCOMES`` for each mutant; None if the solution itself does not pass.
    """
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        original = Path(scratch) / f"{name}.py"
        original.write_text(source)
        files = [Path(scratch) / f"{name}_m{number}.py" for number in range(len(drawn))]
        for file, change in zip(files, drawn, strict=True):
            file.write_text(change.applied(source))
        plain = judged([original, *files], problem, options)
        if not plain[name].passed:
            return None
        alive = [file for file in files if not plain[file.stem].is_killed(plain[name])]
        checked = judged([original, *alive] if alive else [], problem, [*options, "--check"])
    found = []
    for file in files:
        statuses = set(plain[file.stem].statuses)
        if {"BUILD_ERROR", "UNSUPPORTED"} & statuses:
            found.append(NOT_BUILT)
        elif not statuses or "None" in statuses:
            found.append(NO_VERDICT)
        elif file not in alive:
            found.append(KILLED)
        else:
            found.append(BY_CHECK if checked[file.stem].is_killed(checked[name]) else SURVIVES)
    return found


def main() -> int:
    """Run the script; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("solutions", nargs="+", type=Path)
    parser.add_argument("--problem", required=True, help="as of evaluate")
    parser.add_argument("--count", type=count, default=30, help="mutants of each solution [default: 30]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="append a line for each mutant")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    options, further = parser.parse_args(words[:end]), words[end + 1 :]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    code = 0
    for solution in options.solutions:
        source = solution.read_text()
        possible = changes(source)
        drawn = random.Random(options.seed).sample(possible, min(options.count, len(possible)))
        outcomes = outcomes_of(source, solution.stem, options.problem, drawn, further)
        if outcomes is None:
            say(f"{solution}: it does not pass")
            code = 1
            continue
        for change, outcome in zip(drawn, outcomes, strict=True):
            counts[change.operator][outcome] += 1
            before, after = change.lines(source)
            if outcome == SURVIVES:
                say(f"{solution}: {change.operator}: {before}  ->  {after}")
            if options.json:
                row = {"solution": str(solution), "operator": change.operator, "outcome": outcome}
                with options.json.open("a") as stream:
                    stream.write(json.dumps(row | {"before": before, "after": after}) + "\n")
    rows = [(operator, *(counts[operator][one] for one in OUTCOMES)) for operator in OPERATORS if counts[operator]]
    rows.append(("all", *(sum(found[one] for found in counts.values()) for one in OUTCOMES)))
    print(table(("operator", *OUTCOMES), rows))
    return code


if __name__ == "__main__":
    sys.exit(program(main))
