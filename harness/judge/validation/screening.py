"""Runs the fitness checks of a problem's cases once for each case, and keeps the results.

The results depend on the problem's text, the case, the kind of device and the software
(``records.identity.fitness_key``), and on no candidate. Lanes and programs that share a ``HARNESS_HOME`` share
them.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import torch

from harness.errors import ProblemError, StoreError
from harness.judge.process.worker_handle import WorkerHandle
from harness.judge.validation.validation import unfit_reasons
from harness.project.problems import Problem, fault_of
from harness.records.identity import fitness_key
from harness.records.record import EvaluationRecord
from harness.records.store import Store
from harness.system.text import words_of
from harness.wire.cuda_memory import DeviceMemoryError

logger = logging.getLogger(__name__)
Reasons = tuple[str, ...]
LOCK_NAME = "fitness.lock"
#: Seconds that a process waits for another one that checks the same case, and between two attempts.
TURN_LIMIT_S, TURN_PAUSE_S = 120.0, 0.05


class Screen:
    """Says why cases cannot tell a right answer from a wrong one.

    Args:
        known: Results so far, by ``fitness_key``. New results are added.
        home: ``HARNESS_HOME``, whose store keeps the results; None to keep them nowhere.
        device: The device on which checks run.
        progress: Called with a description before they run.
    """

    def __init__(
        self,
        known: dict[str, Reasons | None],
        home: Path | None,
        device: torch.device,
        progress: Callable[[str], None],
    ):
        self._known = known
        self._home = home
        self._device = device
        self._progress = progress

    def reasons(self, problem: Problem, record: EvaluationRecord) -> Reasons | None:
        """Return why a record's case is unfit; empty if it is fit, None if checks could not finish.

        Args:
            problem: The record's problem.
            record: The record, which has the case, its constants and the machine.
        """
        key = fitness_key(record)
        if key in self._known:
            return self._known[key]
        with _turn(self._home, key):
            found = self._kept(key)
            if found is None:
                self._progress("checking that the problem tells right from wrong")
                found = self._checked(problem, record)
                self._keep(key, found)
        self._known[key] = found
        return found

    def _checked(self, problem: Problem, record: EvaluationRecord) -> Reasons | None:
        """Run the checks; neither a problem that fails nor a lack of memory ends an evaluation."""
        try:
            return unfit_reasons(problem, record.case, record.constants, self._device)
        except Exception as error:
            is_expected = isinstance(error, ProblemError | torch.OutOfMemoryError | DeviceMemoryError)
            if not is_expected and fault_of(problem, error) is None:
                raise
            logger.warning("the fitness checks of %s, case %s, failed: %s", problem.name, record.case, words_of(error))
            return None
        finally:
            # The checks may fill the device, and the next candidate's worker needs room.
            torch.cuda.empty_cache()

    def _kept(self, key: str) -> Reasons | None:
        if self._home is None:
            return None
        with contextlib.suppress(StoreError), Store(self._home, writable=True) as store:
            return store.fitness(key)
        return None

    def _keep(self, key: str, found: Reasons | None) -> None:
        """Keep a result if the store can be written; otherwise the next process checks again."""
        if self._home is not None and found is not None:
            with contextlib.suppress(StoreError), Store(self._home, writable=True) as store:
                store.keep_fitness(key, found)


@contextlib.contextmanager
def _turn(home: Path | None, key: str) -> Iterator[None]:
    """Let one process at a time check a case.

    A process waits no longer than ``TURN_LIMIT_S``, and not at all if nothing can be locked. Then
    several processes check the same case. The system releases the lock when its holder ends,
    however that is.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            if home is not None:
                file = stack.enter_context((home / LOCK_NAME).open("ab"))
                patience = time.monotonic() + TURN_LIMIT_S
                # Others do this work, so it counts on no clock of this case.
                with WorkerHandle.waited:
                    while not _has_locked(file, int(key[:15], 16)) and time.monotonic() < patience:
                        time.sleep(TURN_PAUSE_S)
        yield


def _has_locked(file: IO[bytes], place: int) -> bool:
    """Lock one byte of a file, even beyond its end; return False if another process has it.

    Raises:
        OSError: The file system has no locks.
    """
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
    except (BlockingIOError, PermissionError):  # POSIX allows either error.
        return False
    return True
