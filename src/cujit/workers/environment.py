"""The environment variables that workers receive, by full names because others may be secret, and the
cache directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

_ALL = ("HOME", "XDG_CACHE_HOME", "CUJIT_CACHE", "CUJIT_CACHE_DIR", "CUJIT_CPU_OPTIMIZE", "LANG", "LC_ALL", "LC_CTYPE")
_PROGRAMS = ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")

LAUNCH = _ALL
"""For a saved launch on the CPU device."""

GPU_LAUNCH = (
    *_ALL, *_PROGRAMS, "CUDA_CACHE_DISABLE", "CUDA_CACHE_MAXSIZE", "CUDA_CACHE_PATH", "CUDA_DEVICE_ORDER",
    "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DISABLE_PTX_JIT", "CUDA_FORCE_PTX_JIT", "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING", "CUDA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_VISIBLE_DEVICES",
)  # fmt: skip
"""For a saved launch on a GPU."""

COMPILERS_READ = (
    "CAN_FINALIZE_DEBUG", "EDG_BASE", "FINALIZER_CUBIE", "FINALIZER_USE_LEGACY_ELF_BUILDER", "LLVM_OVERRIDE_PRODUCER",
    "NVVM_IR_VER_CHK", "NV_NVVM_VERSION",
)  # fmt: skip
"""What NVIDIA's compilers could write other code for, so that it is part of keys, too.

Source: measured, the getenv calls of NVRTC 13.5; what only chooses threads, caches and logs is left out.
"""

COMPILE = (
    *GPU_LAUNCH, *COMPILERS_READ, "CONDA_PREFIX", "LD_PRELOAD", "PYTHONHOME", "PYTHONPATH", "TEMP", "TMP", "TMPDIR",
    "TZ", "VIRTUAL_ENV", "XDG_RUNTIME_DIR", "CUJIT_CACHE_BYTES", "CUJIT_CACHE_ROOTS", "CUJIT_COMPILE", "CUJIT_DUMP",
    "CUJIT_EMULATE", "CUJIT_PERF", "CUJIT_PYTHON", "CUJIT_SOURCES", "CUJIT_TUNE", "NVRTC_DISABLE_CONCURRENT_NVVM",
)  # fmt: skip
"""For whoever compiles, and finds libraries and headers where this process does."""


def kept(names: tuple[str, ...]) -> dict[str, str]:
    """Return the variables of these names that are set."""
    return {name: os.environ[name] for name in names if name in os.environ}


def cache_directory(environment: Mapping[str, str]) -> str | None:
    """Return ``CUJIT_CACHE_DIR``, otherwise ``$XDG_CACHE_HOME/cujit``, or None if the user has no home.

    Source: XDG Base Directory Specification 0.8: a relative path in its variables is ignored, the default of
    ``XDG_CACHE_HOME`` is ``~/.cache``.
    """
    if environment.get("CUJIT_CACHE_DIR"):
        return os.path.abspath(os.path.expanduser(environment["CUJIT_CACHE_DIR"]))
    home = absolute(environment.get("HOME")) or absolute(os.path.expanduser("~")) or _home()
    caches = absolute(environment.get("XDG_CACHE_HOME")) or (home and f"{home}/.cache")
    return os.path.normpath(f"{caches}/cujit") if caches else None


def _home() -> str | None:
    """Return the home directory from the system if HOME is relative or unset."""
    try:
        import pwd  # optional: not on every system

        return absolute(pwd.getpwuid(os.getuid()).pw_dir)
    except (ImportError, KeyError, AttributeError):
        return None


def absolute(path: str | None) -> str | None:
    """Return a path of a variable if it is absolute; the specification has a relative one ignored."""
    return path if path and os.path.isabs(path) else None
