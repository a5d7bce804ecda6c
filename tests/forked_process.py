"""A process that was forked of a server, with what evaluators ask of ``subprocess.Popen``."""

from __future__ import annotations

import signal

from harness.judge.process.zygote import AdoptedProcess


class ForkedProcess(AdoptedProcess):
    """A process that was forked as this process's child."""

    def terminate(self) -> None:
        """End it as SIGTERM does."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it as SIGKILL does."""
        self.send_signal(signal.SIGKILL)
