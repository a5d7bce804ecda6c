"""Writes a new template for any problem: its model in torch, with one stage in CUDA."""

from __future__ import annotations

import re
from pathlib import Path

from harness.errors import UsageError
from harness.project.excerpt import Excerpt, model_excerpt
from harness.project.paths import bundled_root
from harness.project.problems import Problem
from harness.project.solutions import find_problem, problem_paths, solution_paths
from harness.rendering.declarations import checked_name, read_declaration
from harness.rendering.render_jinja import ENTRY_FILE
from harness.rendering.render_templates import PARAMS_FILE, template_names
from harness.skeletons.writing import filled, new_name, write_new

COMMON = "common"
#: Files of templates/common that the skeleton includes.
_COMMON_FILES = ("launch_status.h", "launch.cuh", "binding.h", "build.py")
_OWN_IMPORTS = (
    "import hashlib",
    "import torch",
    "import torch.nn as nn",
    "from torch.autograd.function import once_differentiable",
    "from torch.utils.cpp_extension import load_inline",
)
_JINJA_OPENING = re.compile(r"\{[{%#]")


def problem_of(root: Path, name: str) -> Problem:
    """Returns the problem of a new template, which must lie in the same root.

    Raises:
        UsageError: ``root/problems`` has no problem of that name.
        ProblemError: The file is not a valid problem.
    """
    if name not in problem_paths(root):
        bundled = problem_paths(bundled_root()).get(name)
        if bundled is not None:
            raise UsageError(
                f"no problem {name!r} in {root / 'problems'}; the harness has one with this name: copy "
                f"{bundled} there first"
            )
    problem = find_problem(root, name)
    if problem.path.resolve().parent != (root / "problems").resolve():
        raise UsageError(f"problem {name} is outside {root / 'problems'}: copy it there first, or name its --root")
    return problem


def new_template(root: Path, name: str, problem: Problem) -> list[Path]:
    """Writes ``root/templates/<name>/``, whose rendered solution passes without an edit.

    The template includes the shared pieces from ``root/templates/common`` if all of them are there.
    Otherwise the function copies them into the template's own folder.

    Returns:
        The paths of the files.

    Raises:
        UsageError: The name is not valid for a template or is taken, or a file cannot be written.
        TemplateError: Another template's declaration is wrong, or the problem's name is not valid
            in a declaration.
    """
    new_name(name, "template")
    checked_name(problem.name, "problem")
    folder = root / "templates" / name
    if folder.exists():
        raise UsageError(f"{folder} already exists; choose another name, or remove it")
    shares = all((root / "templates" / COMMON / file).is_file() for file in _COMMON_FILES)
    common = COMMON if shares else name
    default = "" if _has_default(root, name, problem.name) else "default = true\n"
    texts = {
        ENTRY_FILE: _solution(name, problem, common),
        "launchers.h": filled("launchers.h", common=common),
        "stage.cu.j2": filled("stage.cu.j2"),
        "binding.cpp": filled("binding.cpp"),
    }
    if not shares:
        texts |= {file: (bundled_root() / "templates" / COMMON / file).read_text("utf-8") for file in _COMMON_FILES}
    # The declaration turns the folder into a template, so it is written last.
    texts[PARAMS_FILE] = filled(PARAMS_FILE, template=name, problem=problem.name, default=default)
    return write_new(folder, texts)


def _has_default(root: Path, name: str, problem: str) -> bool:
    """Returns whether a template of the problem already has its default variant.

    Raises:
        UsageError: The problem already has a solution with the new template's name.
        TemplateError: A declaration is wrong.
    """
    taken = solution_paths(root, problem)
    found = False
    for other in template_names(root):
        declaration = read_declaration(root / "templates" / other / PARAMS_FILE)
        if declaration.problem == problem:
            found |= any(variant.default for variant in declaration.variants.values())
            taken |= dict.fromkeys(declaration.variants, declaration.path)
    if name in taken:
        raise UsageError(
            f"problem {problem!r} already has a solution {name!r} ({taken[name]}), which rendering would "
            "replace; choose another name for the template"
        )
    return found


def _solution(name: str, problem: Problem, common: str) -> str:
    excerpt = model_excerpt(problem)
    return filled(
        ENTRY_FILE,
        template=name,
        problem=problem.name,
        common=common,
        stem=name if name[0].isalpha() else f"op_{name}",
        # KernelBench's evaluator puts lines in front of a solution, so it stands only where the model needs it.
        imports=_literal("\n".join([*excerpt.future.splitlines(keepends=True), *_imports(excerpt)])),
        model=_literal(excerpt.text),
        signature=_literal(excerpt.signature),
        call=excerpt.call,
    )


def _imports(excerpt: Excerpt) -> list[str]:
    """Returns the imports of the skeleton and of the model, each once.

    Those of the standard library come first, as in other Python files.
    """
    own, more = list(_OWN_IMPORTS), [line for line in excerpt.imports if line not in _OWN_IMPORTS]
    return [own[0], *(line for line in more if not _is_torch(line)), "", *own[1:], *filter(_is_torch, more)]


def _is_torch(line: str) -> bool:
    return re.match(r"(import|from) torch\b", line) is not None


def _literal(text: str) -> str:
    """Escapes Python code so that Jinja2 writes it unchanged, with any ``{{`` or ``{#``."""
    return _JINJA_OPENING.sub(lambda match: f'{{{{ "{match[0]}" }}}}', text)
