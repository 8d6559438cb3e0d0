"""Find the Python interpreter that can run a worker process."""

from __future__ import annotations

import os
import re
import sys

from cujit.errors import UnsupportedError

_VARIABLE = "CUJIT_PYTHON"
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*[a-z]*")
"""How an interpreter's file is named; another name is a program that embeds Python."""


def interpreter() -> str:
    """Return the path of a Python interpreter that is not this program itself.

    In a frozen program (PyInstaller, Nuitka) or a program that embeds Python, ``sys.executable`` is the program, which
    must not start again. The interpreter is then the one that ``CUJIT_PYTHON`` names, or the one of
    ``sys.base_prefix``.

    Raises:
        UnsupportedError: there is no interpreter.
    """
    named = os.environ.get(_VARIABLE)
    if named:
        return named
    if not is_frozen():
        version = "python{}.{}".format(*sys.version_info[:2])
        base = (os.path.join(sys.base_prefix, "bin", name) for name in (version, "python3"))
        for path in (sys.executable, *base):
            if path and _PYTHON.fullmatch(os.path.basename(path)) and os.access(path, os.X_OK):
                return path
    raise UnsupportedError(
        "this operation requires a separate Python process, but this program has no Python interpreter to start",
        help=f"set {_VARIABLE} to the path of a Python interpreter that has cujit installed",
    )


def is_frozen() -> bool:
    """Whether the program is one file or folder with Python in it.

    Source: PyInstaller manual, "Run-time Information"; Nuitka user manual, "Detecting Nuitka at run time".
    """
    import __main__  # when it is asked: a child of multiprocessing gets another

    return hasattr(sys, "frozen") or hasattr(sys, "_MEIPASS") or "__compiled__" in vars(__main__)
