"""The worker's side: it writes a greeting to its own descriptor, and does its work.

Output at Python's start or from a library goes to standard output, so that it isn't mistaken for an answer.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

from cujit.version import __version__

GREETING = f"cujit {__version__} works here\n".encode()
"""The first bytes that a worker writes."""

BEGIN = "import sys; sys.path[:] = sys.argv[4:] or sys.path; from cujit.workers.child import begin; begin()"
"""What a worker's interpreter runs: descriptor, entry, arguments in JSON, then the directories of modules."""


def begin() -> None:
    """Greet, and call the entry with the descriptor for answers and the arguments."""
    module, _, function = sys.argv[2].partition(":")
    answers = int(sys.argv[1])
    os.set_inheritable(answers, False)
    os.write(answers, GREETING)
    getattr(importlib.import_module(module), function)(answers, *json.loads(sys.argv[3]))
