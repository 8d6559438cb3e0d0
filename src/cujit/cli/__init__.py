"""The command line: one file per verb, each a thin shell over public functions."""

import contextlib
import os
import sys

from cujit.cli.app import main
from cujit.cli.exit_codes import ExitCode
from cujit.values.imported import imported

__all__ = ["main", "process_main"]


def process_main() -> None:
    """Run the command ``cujit`` in its own process, which ends immediately without waiting for abandoned work."""
    try:
        main(prog_name="cujit")
    except SystemExit as leaving:
        stopping = imported("cujit.toolchain.stopping")
        if stopping is not None and stopping.is_work_left():
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.flush()
            os._exit(leaving.code if isinstance(leaving.code, int) else ExitCode.WRONG_INPUT)
        raise
