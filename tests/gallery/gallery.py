"""Runs an example of each status and writes the page of them: ``python -m tests.gallery.gallery > docs/gallery.md``.

The examples are in ``examples/``. Everything runs on the CPU.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.records.record import Status

EXAMPLES = Path(__file__).resolve().parent / "examples"
REPOSITORY = Path(__file__).resolve().parents[2]
#: Runs the harness in a folder with an environment, and returns what it prints on both streams.
Run = Callable[[list[str], Path, dict[str, str]], str]
#: Lines that depend on the machine; the page has ``...`` in their place.
LEFT_OUT = ("not confined by", "full log: ", "nvcc ")
HEAD = """\
# Gallery of verdicts

See what each status looks like: a short solution that gets it, the command, and what the command
prints. `python -m tests.gallery.gallery > docs/gallery.md` runs the examples on the CPU and writes
this page. `...` stands for lines that depend on the machine. [Read a verdict](read-a-verdict.md)
says what to do about each status.

All solutions are for this problem, `square.py`:
"""
UNSHOWN = {
    Status.INTERPRETED: """\
The package `triton` runs a Triton kernel on the CPU in its interpreter. The tests of this page do
not install it, so no example is run. With `triton` a right kernel gets this status on the CPU: the
interpreter found no fault, and only a GPU can judge it. Without `triton` the status is
`UNSUPPORTED`. See [Kernels in Triton](score-answers.md#kernels-in-triton)."""
}


@dataclass(frozen=True)
class Example:
    """A solution that gets a status.

    Attributes:
        status: The status that it must get.
        words: What is special about it, as the page says.
        options: Further options of the command.
        environment: Variables that the command sets; ``$PWD`` is the folder of the examples.
        is_from_compiler: Whether the message is a compiler's, which differs from compiler to compiler.
    """

    status: Status
    words: str
    options: str = ""
    environment: str = ""
    is_from_compiler: bool = False

    @property
    def file(self) -> str:
        return f"{self.status.lower()}.py"

    @property
    def arguments(self) -> str:
        return f"evaluate {self.file} --problem square.py --device cpu {self.options}".strip()

    @property
    def command(self) -> str:
        return f"{self.environment} python -m harness {self.arguments}".strip()


SHOWN = (
    Example(Status.PASSED, "One kernel computes the output and the gradient."),
    Example(Status.WRONG_OUTPUT, "The message says where the output is wrong, and by how much."),
    Example(Status.WRONG_GRADIENT, "The output is right, and the backward has a wrong formula."),
    Example(Status.NO_GRADIENT, "The kernel is called outside a `torch.autograd.Function`."),
    Example(Status.BUILD_ERROR, "The kernel calls a function that does not exist.", is_from_compiler=True),
    Example(Status.LOAD_ERROR, "The file does not define `ModelNew`."),
    Example(Status.RUNTIME_ERROR, "A block has 2048 threads; CUDA allows 1024."),
    Example(Status.OUT_OF_MEMORY, "The allocation is larger than the machine's memory."),
    Example(Status.TIMEOUT, "The forward never ends.", options="--timeout 5"),
    Example(Status.CRASHED, "The forward ends its process."),
    Example(Status.CHEATED, "The forward changes its input."),
    Example(Status.UNSAFE, "The last block writes past the end, because `if (i < n)` is missing."),
    Example(Status.UNSUPPORTED, "The emulator has not all of CUB. On a GPU this kernel is judged."),
    Example(
        Status.HARNESS_ERROR,
        "The machine is at fault: the script `compiler` refuses whatever a candidate builds.",
        environment="CXX=$PWD/compiler",
    ),
)


@contextmanager
def examples_folder() -> Iterator[Path]:
    """Copies the examples to a folder that candidates may read."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        folder = Path(made) / "examples"
        shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("__pycache__"))
        yield folder


def output(example: Example, folder: Path, run: Run) -> str:
    """Runs an example and returns what the command prints, without what depends on the machine."""
    variables = dict(one.split("=", 1) for one in shlex.split(example.environment))
    environment = {name: value.replace("$PWD", str(folder)) for name, value in variables.items()}
    printed = run(shlex.split(example.arguments), folder, environment).rstrip().splitlines()
    lines = ["..." if line.startswith(LEFT_OUT) else line.rstrip() for line in printed]
    return "\n".join(lines)


def section(example: Example, printed: str) -> str:
    """Returns an example's section of the page."""
    files = [example.file, *(["compiler"] if "compiler" in example.environment else [])]
    texts = "".join(
        f"```{'python' if name.endswith('.py') else 'sh'}\n{(EXAMPLES / name).read_text()}```\n\n" for name in files
    )
    shown = "\n".join(f"    {line}".rstrip() for line in (f"$ {example.command}", *printed.splitlines()))
    return f"## {example.status}\n\n{example.words}\n\n{texts}{shown}\n"


def page(run: Run) -> str:
    """Runs all examples and returns the page."""
    parts = [HEAD, f"```python\n{(EXAMPLES / 'square.py').read_text()}```\n"]
    shown = {example.status: example for example in SHOWN}
    with examples_folder() as folder:
        for status in Status:
            if status in shown:
                parts.append(section(shown[status], output(shown[status], folder, run)))
            else:
                parts.append(f"## {status}\n\n{UNSHOWN[status]}\n")
    return "\n".join(parts)


def steady(text: str, example: Example) -> list[str]:
    """Returns the words of a section that every run prints.

    Numbers and names of records differ. So does which tensor or cotangent is the worst. The
    words of a compiler are left out.
    """
    for pattern, instead in (
        (r"show [0-9a-f]{12}", "show RECORD"),
        (r"\((output|gradient of x)\)", "(TENSOR)"),
        (r"'\w+' cotangent", "COTANGENT"),
        (r"-?\b\d[\d.]*(e[+-]\d+)?\b", "#"),
        (r"[ \t]+", " "),
    ):
        text = re.sub(pattern, instead, text)
    lines = [line for line in text.splitlines() if line.strip() not in ("", "...")]
    if example.is_from_compiler:
        start = next(number for number, line in enumerate(lines) if f": {example.status}" in line)
        end = next(number for number, line in enumerate(lines) if "next: " in line)
        lines = lines[: start + 1] + lines[end:]
    return lines


def _run(arguments: list[str], folder: Path, environment: dict[str, str]) -> str:
    command = [sys.executable, "-m", "harness", *arguments, "--fresh"]
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY), **environment}
    ran = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    return ran.stdout + ran.stderr


if __name__ == "__main__":
    print(page(_run), end="")
