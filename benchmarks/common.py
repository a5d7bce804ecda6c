"""What the scripts have in common that show whether times can be believed: a GPU, a budget, figures, tables."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from harness.device import devices
from harness.errors import EXIT_INTERRUPTED, EXIT_USAGE, DeviceError, HarnessError, UsageError
from harness.executors.session import Session, opened
from harness.judge.process.time_limits import Limits
from harness.project.paths import harness_home
from harness.project.problems import Problem
from harness.project.solutions import Candidate, read_solution
from harness.records.json_values import plain
from harness.system import interrupts
from harness.system.text import one_line, printable

#: A candidate's clock also runs while its series are repeated.
LIMITS = Limits(1800.0, 600.0)
SPIN_CYCLES, SPINS = 20_000_000, 15


class Budget:
    """Seconds that may be spent; what is under way is finished.

    Args:
        seconds: How many; None for no bound.
    """

    def __init__(self, seconds: float | None):
        self._end = math.inf if seconds is None else time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Seconds left, 0 where there are none."""
        return max(0.0, self._end - time.monotonic())

    @property
    def is_spent(self) -> bool:
        """Whether nothing more is to be begun."""
        return self.left_s <= 0

    def part(self, share: float) -> Budget:
        """A budget of a share of what is left."""
        return Budget(None if math.isinf(self._end) else self.left_s * share)


def parser(docstring: str | None) -> argparse.ArgumentParser:
    """A parser with the options that all these scripts have."""
    made = argparse.ArgumentParser(description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--device", default="cuda:0")
    made.add_argument("--root", help="folder with problems/ and solutions/ (default: as the harness's)")
    made.add_argument("--home", help="HARNESS_HOME, whose build cache is used; no record is stored")
    made.add_argument("--budget-s", type=positive, help="begin nothing more after so many seconds")
    made.add_argument("--json", type=Path, metavar="FILE", help="write everything there, after each result")
    return made


def positive(text: str) -> float:
    """A positive number out of an argument."""
    value = float(text)
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def share(text: str) -> float:
    """A positive number up to 1 out of an argument."""
    value = positive(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text} is more than 1, which is all")
    return value


def count(text: str) -> int:
    """A whole number, at least 1, out of an argument."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def program(work: Callable[[], int]) -> int:
    """Run a script; its exit code, 2 where it was called wrongly or there is no GPU."""
    interrupts.install()
    try:
        return work()
    except DeviceError as error:
        return _failed(str(error), EXIT_USAGE)
    except HarnessError as error:
        return _failed(str(error), error.exit_code)
    except OSError as error:
        return _failed(str(error), EXIT_USAGE)
    except KeyboardInterrupt as error:
        return _failed(f"interrupted {error}".rstrip(), getattr(error, "exit_code", EXIT_INTERRUPTED))


def _failed(message: str, code: int) -> int:
    print(f"error: {printable(message)}", file=sys.stderr)
    return code


def gpu(name: str) -> torch.device:
    """The GPU of this name.

    Raises:
        UsageError: It is none.
        DeviceError: There is none of this number.
    """
    if devices.guess(name) == "cpu" or not torch.cuda.is_available():
        found = "" if torch.cuda.is_available() else ", and torch finds none here"
        raise UsageError(f"--device {name}: speed is measured on a GPU{found}")
    return devices.choose(name)


@contextlib.contextmanager
def session_on_gpu(options: argparse.Namespace) -> Iterator[Session]:
    """A session on the GPU that the options name.

    Raises:
        UsageError: They name none.
        DeviceError: There is none of this number.
    """
    with opened(str(gpu(options.device)), harness_home(options.home)) as session:
        yield session


def say(words: str) -> None:
    """A line of progress, at once."""
    print(one_line(words), file=sys.stderr, flush=True)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; it ends with a newline."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(_cell(value) for value in line)} |\n" for line in lines)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    return one_line(str(value)).replace("|", "\\|")


def save(path: Path | None, content: dict[str, Any]) -> None:
    """Write what is known by now, with the command that found it, as JSON; nothing where no file was asked for."""
    if path is not None:
        found = {"command": sys.argv, "torch": torch.__version__, "cuda": torch.version.cuda, **content}
        path.write_text(json.dumps(plain(found), indent=2) + "\n", encoding="utf-8")


def written(problem: Problem, path: Path, text: str) -> Candidate:
    """A candidate out of a text, written to a file."""
    path.write_text(text, encoding="utf-8")
    return Candidate(problem, read_solution(path, path.stem))


def milliseconds(call: Callable[[], object]) -> float:
    """One call between two CUDA events, the device synchronised before and after."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def cycles_per_ms() -> float:
    """Cycles of ``torch.cuda._sleep`` in a millisecond, by events, once the clock has risen."""
    times = [milliseconds(lambda: torch.cuda._sleep(SPIN_CYCLES)) for _ in range(SPINS)]
    return SPIN_CYCLES / statistics.median(times[SPINS // 2 :])
