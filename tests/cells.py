"""A shell of IPython's with cujit loaded, as the kernel of a notebook has one."""

from __future__ import annotations

import atexit
import builtins
import functools
import sys
import tempfile
from types import ModuleType
from typing import Any


@functools.cache
def _shell() -> Any:
    from IPython.core.displaypub import CapturingDisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    home = tempfile.TemporaryDirectory(prefix="cujit-ipython-")
    atexit.register(home.cleanup)
    shell = InteractiveShell(config=config, ipython_dir=home.name, user_module=ModuleType("of_the_cells"))
    shell.display_pub = CapturingDisplayPublisher(parent=shell)
    return shell


class Cells:
    """Runs cells in a new session, and has what they displayed."""

    def __init__(self) -> None:
        self.shell = _shell()
        self.shell.reset()
        self.shell.extension_manager.load_extension("cujit")

    def close(self) -> None:
        """Take cujit out again, and what IPython leaves in the process."""
        self.shell.extension_manager.unload_extension("cujit")
        self.shell.reset()
        self.shell.display_pub.outputs.clear()
        for name in ("ps1", "ps2", "ps3", "last_exc", "last_type", "last_value", "last_traceback"):
            vars(sys).pop(name, None)
        for name in ("__IPYTHON__", "display"):
            vars(builtins).pop(name, None)

    @property
    def names(self) -> dict[str, Any]:
        """The namespace of the cells."""
        names: dict[str, Any] = self.shell.user_ns
        return names

    def run(self, cell: str) -> Any:
        """Run a cell that succeeds, and give the value at its end."""
        done = self.shell.run_cell(cell, store_history=True)
        done.raise_error()
        return done.result

    def failure(self, cell: str) -> BaseException:
        """Run a cell that fails, and give its error."""
        done = self.shell.run_cell(cell, store_history=True)
        error = done.error_before_exec or done.error_in_exec
        assert error is not None
        return error  # type: ignore[no-any-return]

    def displayed(self) -> list[dict[str, str]]:
        """Give what was displayed since the last time, by MIME type."""
        found = [output["data"] for output in self.shell.display_pub.outputs]
        self.shell.display_pub.outputs.clear()
        return found

    def shown(self, value: object) -> dict[str, str]:
        """Give what a notebook keeps of a value at the end of a cell, by MIME type."""
        data, _ = self.shell.display_formatter.format(value)
        return dict(data)
