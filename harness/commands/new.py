"""``new``: writes problems and templates to start from."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

import click
from click.core import ParameterSource

from harness.errors import EXIT_PASSED
from harness.project.excerpt import hidden_constants
from harness.project.paths import own_root, refuse_installed, shown
from harness.project.settings import SettingsGroup, option
from harness.skeletons.problem import new_problem
from harness.skeletons.template import new_template, problem_of


@click.group("new", cls=SettingsGroup)
def command() -> None:
    """Start a problem or a template from a skeleton that passes.

    \b
    Examples:
      python -m harness new problem my_op
      python -m harness new template my_op --problem my_op
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines


@command.command("problem")
@click.argument("name")
@option("root")
@click.pass_context
def problem_command(context: click.Context, name: str, root: str | None) -> int:
    """Write problems/NAME.py: a small model with the cases full, cpu and odd.

    \b
    Examples:
      python -m harness new problem my_op
      python -m harness new problem my_op --root kernels
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    folder = own_root(root)
    refuse_installed(folder)
    _tell([new_problem(folder, name)])
    _tell_next(context, root, [f"validate {name}", f"new template {name} --problem {name}"])
    return EXIT_PASSED


@command.command("template")
@click.argument("name")
@click.option("--problem", required=True, help="The name of the problem that the template solves.")
@option("root")
@click.pass_context
def template_command(context: click.Context, name: str, problem: str, root: str | None) -> int:
    """Write templates/NAME: the problem's own model with one stage of it in CUDA.

    The template has forward and backward, and its solution passes unchanged. Replace torch's
    operators by kernels one by one, and evaluate after each.

    \b
    Examples:
      python -m harness new template my_op --problem my_op
      python -m harness new template group_norm_welford --problem group_norm
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    folder = own_root(root)
    refuse_installed(folder)
    solved = problem_of(folder, problem)
    _tell(new_template(folder, name, solved))
    hidden = hidden_constants(solved)
    if hidden:
        print(
            f"note: Model of {shown(solved.path)} reads {', '.join(hidden)}, which its cases replace. A "
            "solution cannot see these values: pass them to the constructor through get_init_inputs()"
        )
    _tell_next(context, root, [f"render {name}", f"evaluate {solved.name}/{name}"])
    return EXIT_PASSED


def _tell(paths: Iterable[Path]) -> None:
    for path in paths:
        print(f"wrote {shown(path)}")


def _tell_next(context: click.Context, root: str | None, commands: list[str]) -> None:
    """Prints the commands to run next, with --root if the user gave it."""
    by_hand = root is not None and context.get_parameter_source("root") is ParameterSource.COMMANDLINE
    tail = f" --root {shlex.quote(root)}" if root is not None and by_hand else ""
    for word, line in zip(("next:", "then:"), commands, strict=False):
        print(f"{word} python -m harness {line}{tail}")
