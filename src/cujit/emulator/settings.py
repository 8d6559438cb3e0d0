"""Settings of the emulated device, which child processes inherit through the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from cujit.arch.multiprocessor import LIMITS
from cujit.devices.cpu.observe.watching import Checks
from cujit.devices.options import check_timeout
from cujit.errors import OptionError, spell
from cujit.values import dataclass, replace

VARIABLE = "CUJIT_EMULATE"
"""Variable of the environment: the settings as JSON, for the processes that `cujit emulate` starts."""

_SMALLEST, _LARGEST = (7, 5), divmod(max(LIMITS), 10)


@dataclass(frozen=True)
class EmulatorSettings:
    """What to emulate.

    Args:
        cc: The compute capability that the device answers, ``(9, 0)``.
        check: Checks that kernels run under, as ``cujit.cpu(check=…)`` takes them; None for none.
        threads: Cores that run blocks; None for all that the process may use.
        timeout_s: Seconds after which a launch is ended; None for never.
        errors_now: Whether a launch answers its own fault, instead of a later call.
        log: Path of a file that every call is written to; "-" is standard error, "" nothing.
        needs: Path of a file that each process adds to at its end: what was asked for and refused.

    Raises:
        OptionError: there is no such compute capability.
        LaunchError: ``timeout_s`` is not a positive number.
    """

    cc: tuple[int, int] = (9, 0)
    check: str | None = None
    threads: int | None = None
    timeout_s: float | None = None
    errors_now: bool = False
    log: str = ""
    needs: str = ""

    def __post_init__(self) -> None:
        if not _SMALLEST <= tuple(self.cc) <= _LARGEST:
            raise OptionError(
                f"the emulator doesn't support compute capability {spell(self.cc)}",
                help=f"choose a compute capability from {_SMALLEST[0]}.{_SMALLEST[1]} to {_LARGEST[0]}.{_LARGEST[1]}",
                code="option-unknown",
            )
        if self.timeout_s is not None:
            check_timeout(self.timeout_s)

    @classmethod
    def of(cls, *, cc: str | tuple[int, int] = (9, 0), check: str | None = None, **more: Any) -> EmulatorSettings:
        """Create settings from user input. ``cc`` may be a text, and ``check`` is validated immediately.

        Raises:
            OptionError: the compute capability, the check, or a setting is unknown.
            LaunchError: ``timeout_s`` is not a positive number.
        """
        Checks.of(check)
        if unknown := more.keys() - cls.__dataclass_fields__.keys():
            raise OptionError(f"unknown emulator settings: {', '.join(sorted(unknown))}", code="option-unknown")
        return cls(cc=parse_cc(cc) if isinstance(cc, str) else cc, check=check, **more)

    @classmethod
    def parse(cls, words: str) -> EmulatorSettings:
        """Parse settings such as ``cc=8.0 check=memory,race threads=2 timeout_s=10 errors_now=1``.

        Raises:
            OptionError: a word is invalid, or ``of`` raises it.
            LaunchError: as in ``of``.
        """
        kinds: dict[str, Callable[[str], Any]] = {
            "threads": int,
            "timeout_s": float,
            "errors_now": lambda on: on != "0",
        }
        values: dict[str, Any] = {}
        for word in words.split():
            name, _, value = word.partition("=")
            try:
                values[name] = kinds.get(name, str)(value)
            except ValueError:
                raise OptionError(
                    f"{spell(word)} is not a valid emulator setting",
                    help="write a setting as NAME=VALUE, such as threads=2",
                    code="option-unknown",
                ) from None
        return cls.of(**values)

    def inside(self, outer: EmulatorSettings) -> EmulatorSettings:
        """Return the settings for use within an outer emulation. ``log`` and ``needs`` default to the
        outer settings.
        """
        return replace(self, log=self.log or outer.log, needs=self.needs or outer.needs)

    def text(self) -> str:
        """Write them for the environment."""
        return json.dumps({name: value for name, value in vars(self).items() if value not in (None, False, "")})

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> EmulatorSettings:
        """Read the settings from the environment, or return the default settings if the variable is not set.

        Raises:
            OptionError: the variable contains invalid settings.
        """
        text = environment.get(VARIABLE, "")
        try:
            words = json.loads(text) if text else {}
            words["cc"] = tuple(words.get("cc", (9, 0)))
            return replace(cls(), **words)
        except (ValueError, TypeError, AttributeError) as e:
            raise OptionError(
                f"{VARIABLE} is set to {spell(text)}: {e}", help="run the program with `cujit emulate`, which sets it"
            ) from e


def parse_cc(text: str) -> tuple[int, int]:
    """Read a compute capability: ``9.0``.

    Raises:
        OptionError: the value is invalid.
    """
    major, dot, minor = text.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise OptionError(
            f"{spell(text)} is not a valid compute capability", help="write a compute capability such as 9.0"
        )
    return int(major), int(minor)
