"""Renders a template's text with strict Jinja2: all used names are declared, all declared ones used.

Each error names a file and, where Jinja2 knows it, a line.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jinja2
from jinja2 import meta, nodes

from harness.errors import TemplateError, suggestion
from harness.rendering.parameters import Declaration
from harness.rendering.values import Value, cpp_literal

ENTRY_FILE = "solution.py.j2"

# Exceptions that an expression in a template can raise besides Jinja's own, once all names are
# known.
_EXPRESSION_ERRORS = (TypeError, ValueError, ArithmeticError, LookupError)


@dataclass(frozen=True)
class _Use:
    """The place where a name occurs."""

    file: str
    line: int


class Renderer:
    """Renders one template many times; it reads the template's files once.

    Args:
        templates: Folder with all templates; includes are relative to it.
        declaration: Declaration of the template.

    Raises:
        TemplateError: A file is missing or malformed, a name is undeclared, or a parameter is unused.
            The message gives the file and the line.
    """

    def __init__(self, templates: Path, declaration: Declaration):
        self._templates = templates
        self._entry = f"{declaration.template}/{ENTRY_FILE}"
        self._environment = _environment(templates)
        _check_names(_uses(self._environment, self._entry), declaration)

    def body(self, settings: Mapping[str, Value]) -> str:
        """Returns the rendered text, with a value for every declared parameter.

        Raises:
            TemplateError: An expression fails, or a file has changed and is now malformed. The
                message gives the file and the line.
        """
        environment, entry = self._environment, self._entry
        try:
            return environment.get_template(entry).render(dict(settings))
        except jinja2.TemplateSyntaxError as error:
            raise _syntax_error(error, entry) from None
        except jinja2.TemplateNotFound as error:
            raise _missing_file(environment, error, entry) from None
        except (jinja2.TemplateError, *_EXPRESSION_ERRORS) as error:
            where = _template_line(error, self._templates, entry)
            raise TemplateError(f"templates/{where}: {error}") from None


def render_body(templates: Path, declaration: Declaration, settings: Mapping[str, Value]) -> str:
    """Renders a template's entry file once; see ``Renderer``."""
    return Renderer(templates, declaration).body(settings)


def _environment(templates: Path) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.clear()
    environment.globals["range"] = range
    environment.filters["cpp"] = cpp_literal
    return environment


def _uses(environment: jinja2.Environment, entry: str) -> dict[str, _Use]:
    """Returns the first use of each name that the entry file or an include takes from its context.

    Files that the entry file includes may also use what it sets by ``{% set %}`` outside any block.
    """
    uses: dict[str, _Use] = {}
    waiting = [(entry, entry)]
    seen = set()
    set_by_entry: set[str] = set()
    while waiting:
        file, includer = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        tree = _parsed(environment, file, includer)
        lines = {node.name: node.lineno for node in reversed(list(tree.find_all(nodes.Name)))}
        for name in _names(tree, file) - set_by_entry:
            uses.setdefault(name, _Use(file, lines.get(name, 1)))
        if file == entry:
            set_by_entry = {
                node.target.name
                for node in tree.body
                if isinstance(node, nodes.Assign) and isinstance(node.target, nodes.Name)
            }
        for included in meta.find_referenced_templates(tree):
            if included is None:
                raise TemplateError(
                    f"templates/{file}: an include computes its file name; "
                    "write the names out under {% if %}, so that unused parameters can be found."
                )
            waiting.append((included, file))
    return uses


def _names(tree: nodes.Template, file: str) -> set[str]:
    try:
        return meta.find_undeclared_variables(tree)
    except jinja2.TemplateSyntaxError as error:  # an unknown filter or test
        raise TemplateError(f"templates/{file}, line {error.lineno}: {error.message}") from None


def _parsed(environment: jinja2.Environment, file: str, includer: str) -> nodes.Template:
    assert environment.loader is not None
    try:
        source, _, _ = environment.loader.get_source(environment, file)
        return environment.parse(source, name=file)
    except jinja2.TemplateSyntaxError as error:
        raise _syntax_error(error, file) from None
    except jinja2.TemplateNotFound as error:
        raise _missing_file(environment, error, includer) from None
    except UnicodeDecodeError as error:
        raise TemplateError(f"templates/{file} is not UTF-8 text: {error}") from None


def _check_names(uses: Mapping[str, _Use], declaration: Declaration) -> None:
    for name, use in sorted(uses.items()):
        if name not in declaration.parameters and name != "range":
            raise TemplateError(
                f"templates/{use.file}, line {use.line}: template {declaration.template!r} has no parameter "
                f"{name!r}; declare it in {declaration.path.name}.{suggestion(name, declaration.parameters)}"
            )
    for name in declaration.parameters:
        if name not in uses:
            raise TemplateError(
                f"{declaration.path}: parameter {name!r} is declared but no file of template "
                f"{declaration.template!r} uses it; use it or remove it."
            )


def _syntax_error(error: jinja2.TemplateSyntaxError, file: str) -> TemplateError:
    return TemplateError(f"templates/{error.name or file}, line {error.lineno}: {error.message}")


def _missing_file(environment: jinja2.Environment, error: jinja2.TemplateNotFound, includer: str) -> TemplateError:
    name = str(error.name or "")
    return TemplateError(
        f"templates/{includer} names templates/{name}, which does not "
        f"exist.{suggestion(name, environment.list_templates())}"
    )


def _template_line(error: BaseException, templates: Path, entry: str) -> str:
    """Returns the innermost template file and line in a traceback that Jinja has rewritten."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(templates):
            return f"{path.relative_to(templates).as_posix()}, line {frame.lineno}"
    return entry
