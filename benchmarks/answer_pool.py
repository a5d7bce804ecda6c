"""Judges a pool of answers to four bundled problems, from which ``benchmarks.strategies`` replays searches.

    python -m benchmarks.answer_pool pool.json --device cpu       # statuses, with every access checked
    python -m benchmarks.answer_pool pool.json --device cuda:0    # times of those that passed

The answers are made of the kernels here. Right ones are settings of the templates, naive and tuned; they may leave
products to torch. Wrong ones are mutants with one small change of a structure's first setting
(``benchmarks.mutants``), and ones that do not build. The first command judges all of them on the emulator, as
``generate`` does before a GPU. The second one judges those that passed at full size, with one trial, and adds the
speedup over eager. Each result is in the file before the next one is judged, and a command that is repeated judges what
is missing. ``--minutes`` ends it early.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.common import positive, program, say
from benchmarks.mutants import changes
from harness.entries import Entry
from harness.errors import TemplateError, UsageError
from harness.evaluator import Evaluator
from harness.records.record import EvaluationRecord, Status
from harness.rendering.render_templates import find_template, render_text
from harness.rendering.values import Value
from harness.rewards import certain_speedup
from harness.system.files import write_whole

REPOSITORY = Path(__file__).resolve().parents[1]
#: Mutants and answers that do not build, of each structure.
MUTANTS, BROKEN = 4, 2
#: Answers whose builds begin before their turn; they are judged after the end of ``--minutes``, too.
AHEAD = 6
#: Names whose misspelling a compiler refuses.
MISSPELT = ("blockIdx", "threadIdx", "data_ptr", "numel", "gridDim", "blockDim")


@dataclass(frozen=True)
class Structure:
    """A way to write the kernels of a problem.

    Attributes:
        problem, name: The problem, and a name for the structure.
        template: The template that renders it.
        fixed: Parameters that make the structure.
        varied: Parameters that edits change, with their values in order.
    """

    problem: str
    name: str
    template: str
    fixed: Mapping[str, Value]
    varied: Mapping[str, tuple[Value, ...]]

    def settings(self) -> Iterator[dict[str, Value]]:
        """Yields the settings that the template accepts."""
        declaration = find_template(REPOSITORY, self.template)
        for values in itertools.product(*self.varied.values()):
            setting = dict(zip(self.varied, values, strict=True))
            try:
                declaration.resolve({**self.fixed, **setting})
            except TemplateError:
                continue
            yield setting

    def source(self, setting: Mapping[str, Value]) -> str:
        """Returns the text of a solution."""
        declaration = find_template(REPOSITORY, self.template)
        differing = {
            name: value
            for name, value in {**self.fixed, **setting}.items()
            if value != declaration.parameters[name].default
        }
        return render_text(REPOSITORY, declaration, differing)


GROUP_NORM, GEMM, LOWEST, TRANSPOSED = (
    *("group_norm", "gemm_bias_add_hardtanh_mish_group_norm"),
    *("gemm_group_norm_min_bias_add", "conv_transpose2d_gelu_group_norm"),
)
_ROWS: dict[str, tuple[Value, ...]] = {"threads": (64, 256, 512), "rows_per_block": (2, 16)}
_TILES: dict[str, tuple[Value, ...]] = {"block_k": (8, 16), "thread_m": (4, 8), "partial_depth": (256, 1024)}
_WALKS: dict[str, tuple[Value, ...]] = {"threads": (64, 256, 1024), "vector_width": (1, 4)}
STRUCTURES = (
    Structure(GROUP_NORM, "plain", "group_norm_plain", {}, {"threads": (32, 64, 128, 256)}),
    Structure(GROUP_NORM, "fused", "group_norm", {"fusion": "fused"}, _WALKS),
    Structure(GROUP_NORM, "two_kernels", "group_norm", {"fusion": "two_kernels"}, _WALKS),
    Structure(GROUP_NORM, "streamed", "group_norm", {"fusion": "streamed"}, {"threads": (128, 256), "unroll": (1, 2)}),
    Structure(GEMM, "plain", f"{GEMM}_plain", {}, {"warps": (1, 4, 8, 16)}),
    Structure(GEMM, "tiled", GEMM, {"gemm": "tiled"}, _TILES),
    Structure(GEMM, "aten", GEMM, {"gemm": "aten"}, _ROWS),
    Structure(GEMM, "split", GEMM, {"gemm": "split"}, {"stages": (3, 7), "cluster_n": (1, 2)}),
    Structure(LOWEST, "plain", f"{LOWEST}_plain", {}, {"warps": (1, 4, 8, 16)}),
    Structure(LOWEST, "tiled", LOWEST, {"gemm": "tiled"}, _TILES),
    Structure(LOWEST, "aten", LOWEST, {"gemm": "aten"}, {"backward": ("dense", "sparse"), "rows_per_block": (2, 8)}),
    Structure(LOWEST, "split", LOWEST, {"gemm": "split"}, {"stages": (3, 7), "minimum": ("fused", "separate")}),
    Structure(TRANSPOSED, "plain", f"{TRANSPOSED}_plain", {}, {"threads": (32, 64, 128, 256)}),
    Structure(TRANSPOSED, "aten", TRANSPOSED, {"convolution": "aten"}, _WALKS),
    Structure(
        TRANSPOSED,
        "one_kernel",
        TRANSPOSED,
        {"convolution": "aten", "statistics": "one_kernel"},
        {"threads": (256, 1024), "vector_width": (1, 4)},
    ),
    Structure(TRANSPOSED, "tensor", TRANSPOSED, {"convolution": "tensor"}, {"threads": (256, 512), "unroll": (1, 2)}),
)


@dataclass(frozen=True)
class Member:
    """An answer in the pool, with its verdict.

    Attributes:
        problem, structure: Where it belongs.
        setting: Its setting of the structure's varied parameters.
        defect: What is wrong with it, in words; empty for a right one.
        lines: Lines of its text.
        status: The emulator's verdict; None if it was not judged.
        full: The GPU's verdict at full size; None if it was not judged there.
        speedup: The lower end of the speedup's interval there; None if it was not timed.
    """

    problem: str
    structure: str
    setting: Mapping[str, Value]
    defect: str = ""
    lines: int = 0
    status: str | None = None
    full: str | None = None
    speedup: float | None = None
    source: str = field(default="", repr=False, compare=False)

    @property
    def key(self) -> str:
        """What tells it from the others."""
        return json.dumps([self.problem, self.structure, dict(self.setting), self.defect], sort_keys=True)


def members() -> list[Member]:
    """Returns the pool without verdicts, the most telling ones of each problem first."""
    ranked: list[tuple[int, int, Member]] = []
    for number, one in enumerate(STRUCTURES):
        settings = list(one.settings())
        sources = [one.source(setting) for setting in settings]
        made = [
            Member(one.problem, one.name, setting, lines=source.count("\n"), source=source)
            for setting, source in zip(settings, sources, strict=True)
        ]
        base = made[0]
        defects = [
            replace(base, defect=words, source=text) for words, text in (*_mutants(base.source), *_broken(base.source))
        ]
        ranked += [(rank, number, member) for rank, member in enumerate((*made, *defects))]
    return [member for _, _, member in sorted(ranked, key=lambda entry: entry[:2])]


def _mutants(source: str) -> Iterator[tuple[str, str]]:
    """Yields mutants with one small change, drawn by the text alone."""
    possible = changes(source)
    for change in random.Random(len(source)).sample(possible, min(MUTANTS, len(possible))):
        before, after = change.lines(source)
        yield f"{change.operator}: {before} -> {after}", change.applied(source)


def _broken(source: str) -> Iterator[tuple[str, str]]:
    """Yields answers that do not build, for names that a compiler does not know."""
    known = [name for name in MISSPELT if name in source]
    for name in random.Random(len(source)).sample(known, min(BROKEN, len(known))):
        yield f"{name} is misspelt", source.replace(name, f"{name}s", 1)


def read_pool(path: Path) -> list[Member]:
    """Reads the members of a pool, without their sources.

    Raises:
        UsageError: It cannot be read.
    """
    try:
        return [Member(**one) for one in json.loads(path.read_text(encoding="utf-8"))["members"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UsageError(f"{path} is no pool that benchmarks.answer_pool wrote: {error}") from None


def _written(member: Member) -> dict[str, Any]:
    fields = asdict(member)
    del fields["source"]
    return fields


def judged(member: Member, records: tuple[EvaluationRecord, ...], *, on_cpu: bool) -> Member:
    """Returns a member with its verdict."""
    worst = next((one for one in records if one.status is not Status.PASSED), records[0])
    if on_cpu:
        return replace(member, status=str(worst.status))
    return replace(member, full=str(worst.status), speedup=certain_speedup(records[0]))


def work() -> int:
    """Judges what is missing; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pool", type=Path, help="the pool's file, which is written")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--home", help="as of evaluate")
    parser.add_argument("--minutes", type=positive, help="judge nothing more after so many")
    options = parser.parse_args()
    content: dict[str, Any] = {"commands": {}, "environments": {}, "members": []}
    pool = {one.key: one for one in members()}
    if options.pool.exists():
        for known in read_pool(options.pool):
            if known.key in pool:
                verdict = {"status": known.status, "full": known.full, "speedup": known.speedup}
                pool[known.key] = replace(pool[known.key], **verdict)
        content = json.loads(options.pool.read_text(encoding="utf-8"))
    on_cpu = options.device == "cpu"
    wanted = [
        one
        for one in pool.values()
        if (one.status is None if on_cpu else one.full is None and one.status == "PASSED" and not one.defect)
    ]
    if all(one.status is None for one in pool.values()) and not on_cpu:
        raise UsageError(f"{options.pool} has no verdicts of the emulator: judge it with --device cpu before")
    if not wanted:
        say("nothing is missing")
        return 0
    end = time.monotonic() + 60 * (options.minutes or 1e6)
    entries = (
        Entry(one.source, one.problem, tag=one.key, name=one.structure, trials=None if on_cpu else 1)
        for one in itertools.takewhile(lambda _: time.monotonic() < end, wanted)
    )
    with Evaluator(options.device, options.home, check=on_cpu) as evaluator:
        for number, answer in enumerate(evaluator.stream(entries, AHEAD), start=1):
            one = pool[answer.entry.tag]
            if not answer.records:
                say(f"{number} of {len(wanted)}: no verdict: {answer.error}")
                continue
            pool[one.key] = found = judged(one, answer.records, on_cpu=on_cpu)
            record = answer.records[0]
            content["environments"][options.device] = dict(record.environment)
            content["commands"][options.device] = " ".join(["python -m benchmarks.answer_pool", *sys.argv[1:]])
            content["members"] = [_written(each) for each in pool.values()]
            write_whole(options.pool, (json.dumps(content, indent=1) + "\n").encode())
            words = found.status if on_cpu else f"{found.full}, {found.speedup}x"
            say(f"{number} of {len(wanted)}: {one.problem} {one.structure} {dict(one.setting)} {one.defect}: {words}")
    return 0


if __name__ == "__main__":
    sys.exit(program(work))
