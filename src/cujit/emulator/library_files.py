"""The stand-in library as a file, and the folders that the emulator keeps: written once, named by their content.

A process that starts others by ``cujit emulate`` needs this alone: no entry point is imported for it.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from cujit.artifact.writing import write_file
from cujit.cache.filesystem import UntrustedFileError, is_remote, read_trusted
from cujit.cache.process import default_cache
from cujit.cache.trust import Trust
from cujit.emulator.cleanup import note_use, remove_unused
from cujit.emulator.functions import exports
from cujit.emulator.machine import boot_code, machine
from cujit.emulator.shared_library import write_library
from cujit.emulator.structures import BootText
from cujit.errors import CujitError

SONAME = "libcuda.so.1"
_MOST_BYTES = 1 << 22


def folder() -> Path:
    """Make the folder of the libraries if it is not there, and prove that it holds what it should.

    Raises:
        CujitError: it could not be written, or others could have written to it.
        MissingError: llvmlite is not installed.
        UnsupportedError: the emulator is not written for this processor.
    """
    data = library_of(SONAME, list(exports()), "start")
    return keep({SONAME: data, "libcuda.so": data})


def library_of(soname: str, names: list[str], module: str, others: str = "", node: str = "") -> bytes:
    """Write a library whose table ``attach`` of a module of the emulator fills in; ``others`` is a text for it, and
    ``node`` the version of its functions.

    Raises:
        MissingError: llvmlite is not installed.
        UnsupportedError: the emulator is not written for this processor.
    """
    return write_library(soname, names, boot_code(), _texts(module, others), machine(), node)


def keep(files: Mapping[str, bytes]) -> Path:
    """Make a folder with these files, executable, if it is not there, and prove that it holds what it should.

    Raises:
        CujitError: it could not be written, or others could have written to it.
    """
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(b"%s %d " % (name.encode(), len(data)) + data)
    root = root_folder() / digest.hexdigest()[:32]
    trust, is_new = Trust.of_process(), not root.exists()
    try:
        root.mkdir(parents=True, exist_ok=True, mode=trust.directory_mode)
        trust.check_root(root)
        note_use(root)
        for name, data in files.items():
            _publish(root / name, data, trust)
        if is_new and not is_remote(root.parent):  # where nobody can tell what other machines use
            remove_unused(root.parent)
    except OSError as e:
        raise CujitError(
            f"can't store the emulator's libraries in {root}: {e}",
            help="set CUJIT_CACHE_DIR to a directory that you can write to",
        ) from e
    return root


def _publish(path: Path, data: bytes, trust: Trust) -> None:
    """Ensure that a file contains exactly these bytes, whichever other process writes it now."""
    try:
        if read_trusted(path, trust, _MOST_BYTES)[0] == data:
            return
    except (UntrustedFileError, OSError):
        pass
    write_file(path, data, mode=0o755, links="replace")


_PARTS_LISTS = re.compile(r"[\s:;$]")
"""What the loader's lists of paths are parted by, or read otherwise. Source: ld.so(8), LD_PRELOAD, LD_LIBRARY_PATH."""


def root_folder() -> Path:
    """Return the folder of everything that the emulator keeps. It is in cujit's cache, or under /tmp if that cannot
    hold it.
    """
    store = default_cache().store
    kept = None if store is None else store.root / "emulator"
    if kept is not None and not _PARTS_LISTS.search(str(kept)) and _can_be_written(kept):
        return kept
    return Path(f"/tmp/cujit-{os.getuid()}/emulator")


def _can_be_written(path: Path) -> bool:
    try:
        path.mkdir(parents=True, exist_ok=True, mode=Trust.of_process().directory_mode)
    except OSError:
        return False
    return os.access(path, os.W_OK | os.X_OK)


_STARTING = "starting.py"


def _statement(module: str) -> str:
    """Write what fills in a library's table in a Python that may know nothing of cujit.

    It runs among the names of the program, and so leaves none; the folders of modules may be many, and are in a file.
    """
    package = str(Path(__file__).parent.parent.parent)
    lines = (
        "import sys",
        f"sys.path += [p for p in {[package, *filter(None, sys.path)]!a} if p not in sys.path]",
        f"from cujit.emulator.{module} import attach",
        "attach(table)",
    )
    path = keep({_STARTING: "\n".join(lines).encode()}) / _STARTING
    text = f"(lambda f: (f.read(), f.close()))(b.open({str(path)!a}, encoding='utf-8'))[0]"
    run = f"b.exec({text}, {{'table': t}})"
    return f"(lambda b, t: {run})(__import__('builtins'), 0x{0:016x})"


def _texts(module: str, others: str) -> list[str]:
    """List what the boot code has to know, in the order of ``BootText``."""
    texts = {
        BootText.RUNS: "Py_IsInitialized",
        BootText.ENSURE: "PyGILState_Ensure",
        BootText.RELEASE: "PyGILState_Release",
        BootText.RUN: "PyRun_SimpleString",
        BootText.START: "Py_InitializeEx",
        BootText.SAVE: "PyEval_SaveThread",
        BootText.YIELD: "sched_yield",
        BootText.PYTHON: _libpython(),
        BootText.STATEMENT: _statement(module),
        BootText.WRITE: "write",
        BootText.WORDS: _WITHOUT_PYTHON,
        BootText.OTHERS: others,
    }
    return [texts[text] for text in BootText]


_SHARED = f"libpython{sysconfig.get_config_var('LDVERSION') or sysconfig.get_python_version()}.so.1.0"
_WITHOUT_PYTHON = (
    f"cujit emulate: this program is not Python's, and needs {_SHARED}, which the Python of cujit has not: "
    f"{sys.base_prefix} is linked without it. Install it, or cujit into a Python that has it.\n"
)


def _libpython() -> str:
    """Find the shared library of this Python, where it was to be or where it was moved; "" where it has none."""
    directories = [sysconfig.get_config_var(name) for name in ("LIBDIR", "LIBPL")]
    for where in filter(None, [*directories, f"{sys.base_prefix}/lib"]):
        if Path(where, _SHARED).exists():
            return str(Path(where, _SHARED))
    return ""
