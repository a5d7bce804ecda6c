"""Starts workers of one kind and hands them out."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from types import MappingProxyType

from harness.errors import HarnessError
from harness.judge.process.worker_handle import WorkerHandle
from harness.judge.process.zygote import Zygote
from harness.system.interrupts import shielded
from harness.system.memory import available_memory


class Workers:
    """Starts workers of one kind, quickly once a zygote has imported torch.

    Args:
        device: ``cpu`` or ``cuda:N``.
        libraries: The emulator's runtime libraries, by name.
        memory_bytes: Memory that a candidate may allocate; None for no limit.
        confined: Whether to confine the workers.
        environment: Variables that they get beside those of every worker.
        zygote: The process from which they are forked, and which its maker closes. By default the
            workers have their own.
        builds_for: The compute capability of the GPU for which they only build. None if they run
            what they build.

    Attributes:
        can_build: Whether a worker is known to have built something.
    """

    def __init__(
        self,
        device: str,
        libraries: dict[str, str],
        *,
        memory_bytes: int | None,
        confined: bool = True,
        environment: Mapping[str, str] = MappingProxyType({}),
        zygote: Zygote | None = None,
        builds_for: tuple[int, int] | None = None,
    ):
        self.device = device
        self._environment = environment
        self._confined = confined
        self._libraries = libraries
        self._memory_bytes = memory_bytes
        self._zygote = zygote or Zygote()
        self.builds_for = builds_for
        self.can_build = False
        self._owns_zygote = zygote is None
        self._lock = threading.Lock()
        self._open: list[WorkerHandle] = []
        self._next: WorkerHandle | None = None

    @classmethod
    def that_build(
        cls, device: str, libraries: dict[str, str], capability: tuple[int, int] | None, zygote: Zygote | None = None
    ) -> Workers:
        """Return workers that only build, and see no GPU.

        Args:
            device: The device to build for: ``cpu`` or ``cuda:N``.
            libraries: The emulator's runtime libraries, by name.
            capability: The GPU's compute capability; None for the CPU.
            zygote: The process from which they are forked. By default they have their own.
        """
        hidden = {"CUDA_VISIBLE_DEVICES": ""}
        memory = available_memory() // 2
        return cls(device, libraries, memory_bytes=memory, environment=hidden, zygote=zygote, builds_for=capability)

    def are_ready(self) -> bool:
        """Return whether ``take`` will not wait."""
        return self._zygote.is_ready()

    def take(self) -> WorkerHandle:
        """Hand out a fresh worker, which the caller closes; it may still be starting.

        Raises:
            HarnessError: No worker can be started.
        """
        self._zygote.wait()  # This takes seconds, in which an interrupt may come.
        with shielded(), self._lock:
            worker, self._next = self._next, None
            if worker is not None and worker.has_ended:
                worker.close()
            return self._start() if worker is None or worker.is_closed else worker

    def start_next(self) -> None:
        """Start the worker for the next ``take``, unless there is one; ``take`` reports a failure."""
        if self.are_ready():
            with contextlib.suppress(HarnessError), shielded(), self._lock:
                if self._next is None:
                    self._next = self._start()

    def settle_next(self) -> None:
        """Wait until the worker from ``start_next`` is idle; end it if it fails to start."""
        if self._next is not None:
            try:
                self._next.start()
            except HarnessError:
                self._next.close()

    def _start(self) -> WorkerHandle:
        self._open = [worker for worker in self._open if not worker.is_closed]
        worker = WorkerHandle(
            self.device,
            self._libraries,
            memory_bytes=self._memory_bytes,
            confined=self._confined,
            environment=self._environment,
            zygote=self._zygote,
            builds_for=self.builds_for,
        )
        self._open.append(worker)
        return worker

    def close(self) -> None:
        """End the workers that their takers did not close."""
        for worker in self._open:
            worker.close()
        self._open, self._next = [], None
        if self._owns_zygote:
            self._zygote.close()
