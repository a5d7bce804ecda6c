"""Runs a problem's body in a separate process and returns what it declares.

The command is ``python -m harness.project.problem_body``. Standard input holds the problem and the
names to look up. Standard output receives their values by name, or the error in words (both
pickled). The output of the body itself goes to standard error.
"""

from __future__ import annotations

import os
import pickle
import sys

from harness.errors import ProblemError
from harness.project.problems import run_body


def main() -> None:
    """Answers one request."""
    problem, names = pickle.load(sys.stdin.buffer)
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        try:
            module = run_body(problem, {})
            answer: object = {name: getattr(module, name, None) for name in names}
            text = pickle.dumps(answer)
        except ProblemError as error:
            text = pickle.dumps(str(error))
        except (pickle.PicklingError, AttributeError, TypeError, RecursionError) as error:
            text = pickle.dumps(f"{problem.path}: a declaration has a value of an unsupported type: {error}")
        answers.write(text)


if __name__ == "__main__":
    main()
