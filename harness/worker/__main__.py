"""``python -m harness.worker DESCRIPTOR SETTINGS``: started by the judge, never by a person."""

import json
import os
import sys

from harness.worker.limits import adopt_orphans, die_with_parent

if __name__ == "__main__":
    die_with_parent(json.loads(sys.argv[2])["parent"])  # before torch is imported, which takes seconds
    adopt_orphans()
    from harness.worker.main import main

    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # whatever threads or handlers the candidate left behind have no say
