"""Settings of the cache from the environment."""

from __future__ import annotations

import enum
import functools
import os
from collections.abc import Mapping, Sequence

from cujit.errors import OptionError, spell
from cujit.values import dataclass, later
from cujit.values.typed import TYPE_CHECKING
from cujit.workers.environment import absolute, cache_directory

if TYPE_CHECKING:
    import pathlib
    import re
    from pathlib import Path
else:
    pathlib = later("pathlib")  # start-up: a hit works with text
    re = later("re")  # start-up: few calls need it

DEFAULT_CAP_BYTES = 2 << 30
_MEMORY_BYTES = 64 << 20
DEFAULT_REMOTE_WAIT_S = 0.15
"""How long a process waits in vain for a shared cache, in all."""

VARIABLES = (
    "CUJIT_CACHE",
    "CUJIT_CACHE_BYTES",
    "CUJIT_CACHE_DIR",
    "CUJIT_CACHE_ROOTS",
    "CUJIT_REMOTE",
    "CUJIT_REMOTE_WAIT_S",
    "CUJIT_TRUST",
    "HOME",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
)
"""Every variable of the environment that the settings are made of."""


def values_of(names: tuple[str, ...], environment: Mapping[str, str]) -> tuple[str | bytes | None, ...]:
    """Return variables of an environment for comparison: as ``os.environ`` stores them, otherwise as it returns them.

    To say that one is not set takes ``os.environ`` half a microsecond, and a hit of the cache asks for twenty.
    """
    kept = getattr(environment, "_data", None)
    if type(kept) is not dict:
        return tuple(map(environment.get, names))
    return tuple(map(kept.get, _kept_names(names)))


@functools.lru_cache(maxsize=8)
def _kept_names(names: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(map(os.fsencode, names))


_SIZE = r"(?ai)\s*(\d{1,18}(?:\.\d{1,9})?)\s*(?:([KMGT])(i?)B?|B)?\s*"  # compiled when it is first used: start-up
_POWER = {"K": 1, "M": 2, "G": 3, "T": 4}
_OFF = ("0", "off", "no", "false")
_ON = ("", "1", "on", "yes", "true")


def parse_bytes(text: str) -> int:
    """Read a size in bytes: ``4GiB`` and ``1.5MiB`` count in 1024, ``4GB`` in 1000; a bare number counts bytes.

    Raises:
        OptionError: it is no size.
    """
    match = re.fullmatch(_SIZE, text)
    if match is None:
        raise OptionError(
            f"{spell(text)} is not a valid size in bytes", help="write a size such as 2GiB, 500MB or 1048576"
        )
    number, unit, binary = match.groups()
    scale = (1024 if binary else 1000) ** _POWER[unit.upper()] if unit else 1
    return round(float(number) * scale) if "." in number else int(number) * scale


class Compiling(enum.IntEnum):
    """Policy for work that no cache contains. Of two policies, the stricter one applies."""

    AUTO = 0
    """It is compiled."""
    WARN = 1
    """It is compiled, and a ``CompileWarning`` says what was not found."""
    NEVER = 2
    """It is an error. The driver may compile PTX that was found, and LLVM may for the CPU device."""
    NEVER_JIT = 3
    """It is an error, and the driver compiles no PTX either."""

    @classmethod
    def of(cls, text: object, name: str = "compile") -> Compiling:
        """Read ``auto``, ``warn``, ``never``, or ``never-jit``. ``name`` identifies the setting in errors.

        Raises:
            OptionError: the value is invalid.
        """
        if isinstance(text, str) and text in _COMPILING:
            return _COMPILING[text]
        raise OptionError(
            f"{name} is {spell(text)}, expected {', '.join(_COMPILING)}", help=f"{name}=never", code="environment-value"
        )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Compiling:
        """Read ``CUJIT_COMPILE``, ``auto`` if it is not set.

        Raises:
            OptionError: it has a value that it cannot have.
        """
        return cls.of(environment.get("CUJIT_COMPILE") or "auto", "CUJIT_COMPILE")

    @property
    def is_forbidden(self) -> bool:
        """Whether NVIDIA's compilers and linkers must not be called."""
        return self >= Compiling.NEVER

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")


_COMPILING = {str(mode): mode for mode in Compiling}


class DirectoryName(str):
    """The absolute path of a directory as text, because importing ``pathlib`` takes 4 ms."""

    __slots__ = ()


@dataclass(frozen=True)
class CacheSettings:
    """Where the cache is, and how large it may be.

    ``root`` is written, and None where the user has no home; ``read_only`` are searched before it, in order.
    ``runtime_dir`` is $XDG_RUNTIME_DIR or None. ``cap_bytes`` bounds ``root``. Nothing is cached unless ``is_on``.
    ``remote`` is the URL of a shared cache or None, ``trust`` the file of keys that it is believed by,
    ``remote_wait_s`` how long a process waits in vain for it. ``memory_bytes`` is how much a process remembers,
    ``trusted_gid`` a group that shares ``root``.
    """

    root: Path | DirectoryName | None = None
    runtime_dir: Path | DirectoryName | None = None
    read_only: Sequence[Path | DirectoryName] = ()
    cap_bytes: int = DEFAULT_CAP_BYTES
    is_on: bool = True
    remote: str | None = None
    trust: Path | DirectoryName | None = None
    remote_wait_s: float = DEFAULT_REMOTE_WAIT_S
    memory_bytes: int = _MEMORY_BYTES
    trusted_gid: int | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> CacheSettings:
        """Read ``CUJIT_CACHE`` (0 is off), what begins with ``CUJIT_CACHE_`` or ``CUJIT_REMOTE``, and XDG's variables.

        Without ``CUJIT_CACHE_DIR`` the root is ``$XDG_CACHE_HOME/cujit``. ``CUJIT_CACHE_ROOTS`` are directories with
        ``os.pathsep`` between them; ``CUJIT_CACHE_BYTES`` is a size such as ``4GiB``. ``CUJIT_TRUST`` is a file.

        Source: XDG Base Directory Specification 0.8: a relative path in its variables is ignored, the default of
        ``XDG_CACHE_HOME`` is ``~/.cache``.

        Raises:
            OptionError: a variable has a value that it cannot have.
        """
        listed = environment.get("CUJIT_CACHE_ROOTS", "").split(os.pathsep)
        return cls(
            DirectoryName(directory) if (directory := cache_directory(environment)) else None,
            DirectoryName(runtime) if (runtime := absolute(environment.get("XDG_RUNTIME_DIR"))) else None,
            tuple(_expanded(path) for path in listed if path),
            _cap_bytes(environment.get("CUJIT_CACHE_BYTES")),
            _is_on(environment.get("CUJIT_CACHE", "")),
            environment.get("CUJIT_REMOTE") or None,
            _expanded(environment["CUJIT_TRUST"]) if environment.get("CUJIT_TRUST") else None,
            _wait_s(environment.get("CUJIT_REMOTE_WAIT_S")),
        )


def _is_on(text: str) -> bool:
    word = text.strip().lower()
    if word not in _OFF + _ON:
        raise OptionError(
            f"CUJIT_CACHE is {spell(text)}, expected 0 or 1",
            help="set CUJIT_CACHE_DIR to choose the directory",
            code="environment-value",
        )
    return word not in _OFF


def _cap_bytes(text: str | None) -> int:
    if not text:
        return DEFAULT_CAP_BYTES
    try:
        return parse_bytes(text)
    except OptionError as e:
        raise OptionError(f"CUJIT_CACHE_BYTES: {e.message}", help=e.help, code="environment-value") from None


def _wait_s(text: str | None) -> float:
    if not text:
        return DEFAULT_REMOTE_WAIT_S
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,6})?", text):
        raise OptionError(
            f"CUJIT_REMOTE_WAIT_S is {spell(text)}, expected seconds, such as 0.5", code="environment-value"
        )
    return float(text)


def _expanded(path: str) -> DirectoryName:
    return DirectoryName(os.path.abspath(os.path.expanduser(path)))


def require_size(name: str, size: object) -> None:
    """Check that a value is a valid number of bytes for a cache.

    Raises:
        OptionError: the value is invalid.
    """
    if type(size) is not int:
        raise OptionError(f"{name} is {spell(size)}, expected a number of bytes", help=f"{name}=2 << 30")
    if size < 0:
        raise OptionError(f"the size of a cache must be at least 0 bytes, not {size}")


def directory_of(path: Path | DirectoryName) -> DirectoryName:
    """Return the absolute path of a directory that a caller named.

    Raises:
        OptionError: it is no Path that a directory can have.
    """
    if type(path) is DirectoryName:
        return path
    if not isinstance(path, pathlib.Path) or "\0" in str(path):
        raise OptionError(f"{spell(path)} is not a directory", help="pathlib.Path('…')")
    return DirectoryName(os.path.abspath(path))
