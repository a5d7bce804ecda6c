"""``python -m harness.worker DESCRIPTOR``: started by the judge, never by a person.

A zygote: it has imported torch, and whenever it is asked it forks a worker off and hands it over to the judge, within
milliseconds. It runs nothing of a candidate's; a worker confines itself before it does.
"""

import os
import socket
import sys

from harness.system.interrupts import reset_inherited
from harness.system.processes import hide_memory
from harness.worker.zygote import ZygoteServer, import_all


def main(ours: socket.socket) -> None:
    """Be a zygote on this end of the judge's socket pair, and a worker in each process that is forked of it."""
    reset_inherited()
    hide_memory()  # a worker shows its own again
    import_all()
    worker = ZygoteServer(ours).serve()
    if worker is not None:
        code = worker.run()
        sys.stdout.flush()
        os._exit(code)  # whatever threads or handlers the candidate left behind have no say


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
