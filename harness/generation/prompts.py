"""Fills the prompts: Jinja files in ``templates/prompts``, which people read and change."""

from __future__ import annotations

import ast
import difflib
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import jinja2

from harness.errors import SolutionError, TemplateError, UsageError
from harness.generation.attempts import Attempt, Kind
from harness.generation.feedback import Feedback, feedback_on
from harness.generation.fencing import fenced, inline
from harness.generation.ideas import Idea
from harness.project.paths import bundled_root
from harness.project.problems import Problem
from harness.project.solutions import problem_paths, read_solution, solution_paths
from harness.rendering.stamp import parse_stamp
from harness.system.text import one_line, shortened

#: Folder of the prompts in ``templates``. It holds no template of a kernel.
FOLDER = "prompts"
_EXAMPLE = "plain"
#: The most characters of a source in a prompt. More is cut, with dots at the end.
MAX_SOURCE_CHARACTERS = 100_000
#: The longest sources that are compared with the best one, and the longest comparison, in lines.
MAX_COMPARED_CHARACTERS, MAX_DIFFERENT_LINES = 60_000, 150
_EXPRESSION_ERRORS = (TypeError, ValueError, ArithmeticError, LookupError)


@dataclass(frozen=True)
class Example:
    """A solution of another problem that shows the form.

    Attributes:
        name: ``problem/variant``.
        source: Its text, without the stamp of a rendered file.
    """

    name: str
    source: str = field(repr=False)


class Prompts:
    """The prompts of a run.

    Args:
        root: Folder with ``templates`` and ``solutions``; what it lacks comes from the harness's own.
        problem: The problem to solve.
        device: Facts about the device, in sentences.
        constants: The constants of the cases that feedback speaks of.
        forward_only: Whether no gradients are asked for.
        mistakes: Mistakes of earlier answers, with their numbers (see ``mistakes_in``).

    Raises:
        UsageError: There is no example, or no folder of prompts.
    """

    def __init__(
        self,
        root: Path,
        problem: Problem,
        device: Sequence[str],
        constants: Mapping[str, Mapping[str, object]],
        *,
        forward_only: bool = False,
        mistakes: Mapping[str, int] = MappingProxyType({}),
    ):
        self._environment = _environment(root)
        example = find_example(root, problem.name)
        sizes = "; ".join(f"{name}: {_settings(settings)}" for name, settings in constants.items())
        self._common = {
            "problem": problem.name,
            "source": shown_source(problem),
            "precision": str(problem.precision),
            "device": "\n".join(device),
            "sizes": sizes,
            "forward_only": forward_only,
            "example": example.name,
            "example_source": example.source,
            "mistakes": mistakes,
        }
        for kind in Kind:  # a mistake is told before anything is sent
            self._template(f"{kind}.md.j2")

    def text(
        self, kind: Kind, parent: Attempt | None = None, best: Attempt | None = None, ideas: Sequence[Idea] = ()
    ) -> str:
        """Returns the prompt of a turn.

        Args:
            kind: What the turn asks for.
            parent: The attempt that it builds on; required unless the kind is ``write``.
            best: The best attempt so far, to show what it does differently; None if there is none.
            ideas: What was tried, for a first answer that is to try something else.

        Raises:
            TemplateError: A file of the prompts is missing or wrong; the message names it and its line.
        """
        values: dict[str, object] = {**self._common, "ideas": ideas}
        if parent is not None:
            values["attempt_source"] = shortened(parent.source, MAX_SOURCE_CHARACTERS)
            values["feedback"] = _feedback(parent)
            values["best"] = None if best is None or best.number == parent.number else _feedback(best)
            values["difference"] = "" if values["best"] is None or best is None else _difference(parent, best)
        return self._render(f"{kind}.md.j2", values)

    def _render(self, name: str, values: dict[str, object]) -> str:
        try:
            return self._template(name).render(values)
        except jinja2.TemplateSyntaxError as error:
            raise _syntax_error(error, name) from None
        except jinja2.TemplateNotFound as error:
            raise _missing(error) from None
        except (jinja2.TemplateError, UnicodeDecodeError, *_EXPRESSION_ERRORS) as error:
            frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename.endswith(".j2")]
            where = f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else name
            raise TemplateError(f"templates/{FOLDER}/{where}: {error}") from None

    def _template(self, name: str) -> jinja2.Template:
        try:
            return self._environment.get_template(name)
        except jinja2.TemplateSyntaxError as error:
            raise _syntax_error(error, name) from None
        except jinja2.TemplateNotFound as error:
            raise _missing(error) from None
        except UnicodeDecodeError:
            raise TemplateError(f"templates/{FOLDER}/{name} is not UTF-8 text") from None


def _syntax_error(error: jinja2.TemplateSyntaxError, name: str) -> TemplateError:
    return TemplateError(f"templates/{FOLDER}/{error.name or name}, line {error.lineno}: {error.message}")


def _missing(error: jinja2.TemplateNotFound) -> TemplateError:
    return TemplateError(f"templates/{FOLDER}/{one_line(str(error.name))} is missing")


def _environment(root: Path) -> jinja2.Environment:
    folders = [root / "templates" / FOLDER, bundled_root() / "templates" / FOLDER]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        finalize=inline,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.clear()
    environment.filters["fence"] = fenced
    return environment


def _feedback(attempt: Attempt) -> Feedback:
    if attempt.records:
        return feedback_on(attempt.records, attempt.source)
    return Feedback(status=str(attempt.outcome), message=attempt.message)


def _difference(attempt: Attempt, best: Attempt) -> str:
    """Returns the unified diff from an attempt's source to the best one's; empty if it would be long."""
    if len(attempt.source) + len(best.source) > MAX_COMPARED_CHARACTERS:
        return ""
    before, after = attempt.source.splitlines(), best.source.splitlines()
    lines = list(difflib.unified_diff(before, after, "this attempt", "the best", n=1, lineterm=""))
    return "\n".join(lines) if len(lines) <= MAX_DIFFERENT_LINES else ""


def shown_source(problem: Problem) -> str:
    """Returns a problem's text without the declaration of its cases.

    The sizes that a solution is judged with at the end stay unknown to whoever writes it.
    """
    lines = problem.source.split("\n")
    for node in reversed(ast.parse(problem.source).body):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(one, ast.Name) and one.id == "CASES" for one in targets):
            del lines[node.lineno - 1 : node.end_lineno]
    return "\n".join(lines)


def find_example(root: Path, problem: str) -> Example:
    """Returns the plain solution of another problem, of the root or else of the harness's own.

    It avoids a problem whose name begins like this one's, which may be a variant of it.

    Raises:
        UsageError: There is none.
    """
    for folder in dict.fromkeys((root, bundled_root())):
        for other in problem_paths(folder):
            path = solution_paths(folder, other).get(_EXAMPLE)
            if path is None or other.startswith(problem) or problem.startswith(other):
                continue
            name = f"{other}/{_EXAMPLE}"
            try:
                text = read_solution(path, name).source
            except SolutionError:
                continue
            return Example(name, text.split("\n", 4)[4] if parse_stamp(text) is not None else text)
    raise UsageError(f"no solution {_EXAMPLE} of another problem than {problem} in {root / 'solutions'} for an example")


def _settings(constants: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in constants.items()) or "as written"
