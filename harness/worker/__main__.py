"""Starts a zygote: ``python -m harness.worker DESCRIPTOR``. The judge starts it, never a person."""

import socket
import sys

from harness.worker.zygote import import_all, serve

if __name__ == "__main__":
    import_all()
    serve(socket.socket(fileno=int(sys.argv[1])))
