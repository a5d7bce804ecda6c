"""``python -m harness.worker DESCRIPTOR SETTINGS``: started by the judge, never by a person."""

import os
import sys

from harness.worker.main import main

if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # whatever threads or handlers the candidate left behind have no say
