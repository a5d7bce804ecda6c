"""Says in a few words what an attempt tried: the answer's own idea, and the techniques of its source."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.answers.parts import final_part
from harness.errors import AnswerError
from harness.generation.attempts import Attempt
from harness.system.text import shortened
from harness.timing.scores import floor_share

#: The most characters of an idea in a prompt.
MAX_IDEA_CHARACTERS = 600
#: A technique, and what a source that uses it has.
_TECHNIQUES = {
    "tensor cores": r"\bwmma::|\bmma\.sync|\bwgmma|\btl\.dot\b",
    "bulk copies": r"\bcp\.async\.bulk|\bcuTensorMapEncode",
    "asynchronous copies": r"\bcp\.async\.c[ag]\b|\bmemcpy_async\b|\b__pipeline_",
    "thread-block clusters": r"__cluster_dims__|\bthis_cluster\b",
    "shared memory": r"__shared__",
    "vector loads": r"\b(?:float|int|uint|double)[24]\b|\b(?:half|bfloat16|nv_bfloat16)2\b",
    "warp shuffles": r"\b__shfl_|\b__reduce_",
    "atomics": r"\batomic[A-Z]\w+\(|\btl\.atomic_",
    "cooperative launch": r"\bcudaLaunchCooperativeKernel|\bthis_grid\(",
    "cuBLAS": r"\bcublas\w+\(",
    "products by torch": r"\b(?:torch|at|F)(?:::|\.)(?:mm|bmm|matmul|addmm|baddbmm|linear|conv\w*)\(",
    "CUDA graphs": r"\bCUDAGraph\b|\bcudaGraph\w+\(",
    "Triton": r"@triton\.jit",
}


@dataclass(frozen=True)
class Idea:
    """An attempt's idea, its techniques and its result.

    Attributes:
        words: The answer's prose before its first code, shortened; or empty.
        techniques: Names of the techniques that its source uses, separated by commas; or empty.
        result: The attempt's result in words, with the share of the speed of light if that is known.
    """

    words: str
    techniques: str
    result: str


def idea_of(attempt: Attempt, answer: str) -> Idea:
    """Returns what an attempt tried.

    Args:
        attempt: The attempt.
        answer: Its raw answer.
    """
    return Idea(_words(answer), ", ".join(techniques_of(attempt.source)), _result(attempt))


def techniques_of(source: str) -> tuple[str, ...]:
    """Returns the names of the techniques that a source uses."""
    return tuple(name for name, pattern in _TECHNIQUES.items() if re.search(pattern, source))


def _words(answer: str) -> str:
    try:
        part = final_part(answer.splitlines())
    except AnswerError:
        return ""
    if not part.pieces:
        return ""
    lines = part.text.splitlines()[: max(0, part.pieces[0].opening - part.first)]
    return shortened("\n".join(lines).strip(), MAX_IDEA_CHARACTERS)


def _result(attempt: Attempt) -> str:
    shares = [
        share.low
        for record in attempt.records[:1]
        for direction in record.floor
        if attempt.has_passed and (share := floor_share(record, direction)) is not None
    ]
    return attempt.result + (f", {min(shares):.0%} of the speed of light" if shares else "")
