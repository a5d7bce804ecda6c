"""``python -m harness.worker DESCRIPTOR SETTINGS``: started by the judge, never by a person."""

import json
import os
import sys
from pathlib import Path

from harness.processes import adopt_orphans
from harness.worker.confinement import confine
from harness.worker.limits import die_with_parent

if __name__ == "__main__":
    settings = json.loads(sys.argv[2])
    die_with_parent(settings["parent"])  # before torch is imported, which takes seconds
    adopt_orphans()  # so that the judge finds them all
    readable = settings["readable"]
    confined = []
    if readable is not None:
        confined = confine(Path(settings["folder"]), readable, settings["parent"], settings["device"] != "cpu")
    die_with_parent(settings["parent"])  # changing users has cancelled it
    from harness.worker.main import main

    code = main(int(sys.argv[1]), settings, confined)
    sys.stdout.flush()
    os._exit(code)  # whatever threads or handlers the candidate left behind have no say
