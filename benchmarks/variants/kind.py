"""A kind of candidate: a text that replaces some of the functions of a problem's rewrite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path

import jinja2

GROUP_NORM = "group_norm"
HARDTANH = "gemm_bias_add_hardtanh_mish_group_norm"
MIN = "gemm_group_norm_min_bias_add"
CONV = "conv_transpose2d_gelu_group_norm"
GEMMS = (HARDTANH, MIN)
PROBLEMS = (GROUP_NORM, HARDTANH, MIN, CONV)


@dataclass(frozen=True)
class Kind:
    """A kind of candidate.

    Attributes:
        name: Its name, also the file's stem.
        words: What is special about it.
        text: What is appended to the rewrite, functions of the same names as the rewrite's own first of all.
        autograd: Whether PyTorch differentiates it; else it has a backward of its own.
        device: ``cuda`` where it runs on a GPU only, else empty.
        but: Cases in which it is no such candidate.
        precision: The class of what it rounds, None where that is not what it is about.
    """

    name: str
    words: str
    text: str = ""
    autograd: bool = False
    device: str = ""
    but: frozenset[str] = frozenset()
    precision: str | None = None


def left_out(kinds: Iterable[Kind], cases: Mapping[str, Set[str]]) -> tuple[Kind, ...]:
    """The kinds of a problem, some of them without some of its cases.

    Args:
        kinds: The kinds.
        cases: By kind, cases in which it is no such candidate, beside those that it leaves out itself.
    """
    return tuple(replace(kind, but=kind.but | cases.get(kind.name, frozenset())) for kind in kinds)


def source(problem: str, kind: Kind) -> str:
    """The file of a candidate.

    Args:
        problem: Name of one of ``PROBLEMS``.
        kind: One of its kinds.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    template = environment.get_template(f"{problem}.py.j2")
    title = f"{problem}, {kind.name}: {kind.words}."
    return template.render(title=title, autograd=kind.autograd, text=kind.text.strip("\n")).rstrip("\n") + "\n"


def write(problem: str, kinds: Iterable[Kind], folder: Path) -> dict[str, Path]:
    """Write the files of some kinds; their paths by the kinds' names."""
    paths = {kind.name: folder / f"{kind.name}.py" for kind in kinds}
    for kind in kinds:
        paths[kind.name].write_text(source(problem, kind), encoding="utf-8")
    return paths
