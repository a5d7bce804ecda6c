"""Starts a zygote: ``python -m harness.worker DESCRIPTOR``. The judge starts it, never a person.

A zygote is a process that has imported torch. On each request it forks a worker and hands it to the
judge within milliseconds. The zygote runs no code of a candidate. A worker confines itself before
it runs any.
"""

import os
import socket
import sys

from harness.system.interrupts import reset_inherited
from harness.system.processes import hide_memory
from harness.worker.zygote import ZygoteServer, import_all


def main(ours: socket.socket) -> None:
    """Runs a zygote on this end of the judge's socket pair, and a worker in each forked process."""
    reset_inherited()
    hide_memory()  # a worker makes its own memory readable again
    import_all()
    worker = ZygoteServer(ours).serve()
    if worker is not None:
        code = worker.run()
        sys.stdout.flush()
        # os._exit ignores whatever threads and exit handlers the candidate left behind.
        os._exit(code)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
