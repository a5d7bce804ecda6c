"""Judges the attempts of a run, and its winner at the gate."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.device.devices import guess
from harness.errors import DeviceError, UsageError
from harness.evaluator import Evaluator
from harness.generation.attempts import Attempt, Gate
from harness.generation.duel import Duel, fought
from harness.generation.mistakes import MOST_RECORDS, mistakes_in
from harness.generation.prompts import Prompts
from harness.project.paths import PYTHON_OPTIONS
from harness.project.problems import Problem
from harness.records.record import EvaluationRecord, Status
from harness.records.rules import NO_OWN_KERNEL
from harness.records.store import Store
from harness.rewards import MASKED
from harness.system.text import one_line

#: What the emulator says for reasons that a GPU need not share.
_LEFT_TO_THE_GPU = MASKED | {Status.PASSED, Status.TIMEOUT}
_EMULATOR = (
    "A CUDA emulator on the CPU judges the results, and measures no speed. Its device has compute capability 9.0, "
    "132 multiprocessors, 48 KB of static shared memory a block and 227 KB of dynamic shared memory.",
    "It runs wgmma, tensor maps, clusters and CUB's algorithms of warps and blocks; it refuses cuBLAS, cuDNN, Thrust, "
    "CUTLASS, textures and Triton.",
)
_PROPERTIES = """
import json, sys, torch
one = torch.cuda.get_device_properties(torch.device(sys.argv[1]))
print(json.dumps([one.name, one.major, one.minor, one.multi_processor_count, one.total_memory, one.L2_cache_size]))
"""
_LIMIT_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Court:
    """The problem, device and cases on which a run judges its attempts.

    Attributes:
        problem: The problem.
        device: The device, as ``--device`` takes it.
        home: ``HARNESS_HOME``.
        root: Folder with ``problems`` and ``solutions``.
        cases: Names of the cases that feedback speaks of; empty for the device's default case.
        timeout_s: Seconds that a candidate may run on a case; None for the default.
        forward_only: Whether outputs alone are judged.
    """

    problem: Problem
    device: str
    home: Path
    root: Path
    cases: tuple[str, ...] = ()
    timeout_s: float | None = None
    forward_only: bool = False

    @property
    def on_cpu(self) -> bool:
        """True if the emulator judges.

        Raises:
            UsageError: The device is not a single one.
        """
        if re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device) is None:
            raise UsageError(f"--device {self.device!r}: a search takes one device: auto, cpu, cuda or cuda:N")
        return guess(self.device) == "cpu"

    @property
    def constants(self) -> Mapping[str, Mapping[str, object]]:
        """The constants of the cases that feedback speaks of, by name."""
        return {name: self.problem.case(name) for name in self.cases}

    def prompts(self) -> Prompts:
        """Returns the prompts of a run.

        Raises:
            UsageError: The device is not a single one, or there is no example or folder of prompts.
            DeviceError: The GPU cannot be asked.
            StoreError: The store, whose failed records tell the mistakes of earlier answers, cannot be read.
        """
        with Store(self.home) as store:
            mistakes = mistakes_in(store.newest_failed(MOST_RECORDS), forward_only=self.forward_only)
        return Prompts(
            self.root,
            self.problem,
            self.facts(),
            self.constants,
            forward_only=self.forward_only,
            mistakes=mistakes,
        )

    def facts(self) -> Sequence[str]:
        """Returns what a kernel's author must know about the device, in sentences.

        Raises:
            UsageError: The device is not a single one.
            DeviceError: The GPU cannot be asked.
        """
        if self.on_cpu:
            return _EMULATOR
        command = [sys.executable, *PYTHON_OPTIONS, "-c", _PROPERTIES, guess(self.device)]
        try:  # in a process that ends: one that holds the GPU would disturb the timing
            ran = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=True)
            name, major, minor, processors, memory, cache = json.loads(ran.stdout)
        except subprocess.CalledProcessError as error:
            why = one_line(str(error.stderr).strip().rpartition("\n")[2])
            raise DeviceError(
                f"--device {self.device}: torch cannot use this GPU: {why}; or use --device cpu"
            ) from None
        except (OSError, subprocess.TimeoutExpired, ValueError) as error:
            raise DeviceError(f"--device {self.device}: torch cannot read its properties: {error}") from None
        size = f"{memory / 2**30:.0f} GiB of memory and {cache / 2**20:.0f} MiB of L2 cache"
        return [f"{name}, compute capability {major}.{minor}, {processors} multiprocessors, {size}."]

    @contextlib.contextmanager
    def judge(self) -> Iterator[Judge]:
        """Opens the judge of the search, and closes it at the end of the block."""
        with contextlib.ExitStack() as stack:
            emulator = stack.enter_context(self._evaluator("cpu", check=True))
            judge = emulator if self.on_cpu else stack.enter_context(self._evaluator(self.device))
            yield Judge(self, judge, None if self.on_cpu else emulator)

    def gate(self, attempt: Attempt) -> Gate:
        """Judges a winner on every case that fits the device, with new seeds.

        It must also pass the further draws that the problem declares, which change no verdict
        elsewhere.
        """
        with self._evaluator(self.device, fresh=True) as evaluator:
            answer = evaluator.evaluate(attempt.source, self.problem.path, every_case=True)
        gate = self._decided(answer.records)
        return dataclasses.replace(gate, device_s=sum(record.run_s for record in answer.records))

    def duel(self, first: Attempt, second: Attempt) -> Duel:
        """Times two attempts by turns, on the cases that feedback speaks of."""
        problem, cases = self.problem.path, self.cases
        with self._evaluator(self.device, fresh=True, trials=1) as evaluator:
            return fought(
                first.source,
                second.source,
                lambda source: evaluator.evaluate(source, problem, cases=cases).records,
            )

    def _decided(self, records: Sequence[EvaluationRecord]) -> Gate:
        """Returns what the records of every case mean."""
        names = tuple(record.record for record in records)
        undecided = False
        for record in records:
            if record.status in MASKED:
                undecided = True
            elif record.status is not Status.PASSED:
                first = record.message.partition("\n")[0]
                return Gate(False, f"case {record.case}: {record.verdict}: {first}", names)
            for draw, result in record.further_draws.items():
                if result.startswith("failed"):
                    return Gate(False, f"case {record.case}, draw {draw}: {result}", names)
        return Gate(None, "a case could not be judged", names) if undecided else Gate(True, "", names)

    def _evaluator(
        self, device: str, *, check: bool = False, fresh: bool = False, trials: int | None = None
    ) -> Evaluator:
        return Evaluator(
            device,
            self.home,
            root=self.root,
            timeout_s=self.timeout_s,
            forward_only=self.forward_only,
            refuse=[NO_OWN_KERNEL],
            check=check,
            fresh=fresh,
            trials=trials,
        )


class Judge:
    """Judges attempts: first on the emulator with every access checked, then on the GPU if there is one."""

    def __init__(self, court: Court, judge: Evaluator, emulator: Evaluator | None):
        self._court = court
        self._judge = judge
        self._emulator = emulator

    def records(self, source: str) -> tuple[EvaluationRecord, ...]:
        """Judges a source and returns its records: those of the first stage that refuses it.

        Raises:
            HarnessError: The problem does not run, or the device is lost.
        """
        problem = self._court.problem.path
        if self._emulator is not None:
            try:
                found = self._emulator.evaluate(source, problem).records
            except UsageError:  # no case is small enough
                self._emulator, found = None, ()
            if any(record.status not in _LEFT_TO_THE_GPU for record in found):
                return found
        return self._judge.evaluate(source, problem, cases=self._court.cases).records
