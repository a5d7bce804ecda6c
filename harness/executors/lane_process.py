"""``python -m harness.executors.lane_process DESCRIPTOR``: a lane in a process of its own, started by a driver."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from multiprocessing.connection import Connection

from harness import interrupts
from harness.errors import EXIT_INTERRUPTED, HarnessError
from harness.executors.lane import Lane
from harness.executors.link import Failure, Finished, Opened, Opening, Words
from harness.executors.session import opened
from harness.processes import die_with_parent


def serve(link: Connection) -> None:
    """Judge what comes, until the driver closes its end."""
    opening: Opening = link.recv()
    die_with_parent(opening.driver, signal.SIGTERM)
    with opened(opening.device, opening.home, True, opening.is_timed) as session:
        lane = Lane(session)
        capability = session.builders.builds_for
        link.send(Opened(session.environment, capability))
        while True:
            try:
                work = link.recv()
            except EOFError:
                return
            for outcome in lane.judge(work, lambda words: link.send(Words(words))):
                link.send(outcome)
            link.send(Finished())


def main() -> int:
    """Serve on the descriptor that the command line names; the exit code."""
    interrupts.install()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the driver's, who ends its lanes
    with Connection(int(sys.argv[1])) as link:
        try:
            serve(link)
        except HarnessError as error:
            link.send(Failure(error))
            return error.exit_code
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        except BrokenPipeError:  # the driver has ended
            return 0
    return 0


if __name__ == "__main__":
    code = main()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)  # whatever a problem's code has left running in this process has no say
