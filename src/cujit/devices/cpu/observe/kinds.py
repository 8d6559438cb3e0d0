"""The checks of ``cujit.cpu(check=…)``: which there are."""

from __future__ import annotations

from dataclasses import dataclass, fields

from cujit.devices.cpu.native.structures import checks_bits
from cujit.errors import OptionError, spell

__all__ = ["Checks"]


@dataclass(frozen=True)
class Checks:
    """Which checks are made."""

    memory: bool = False
    race: bool = False
    sync: bool = False
    init: bool = False

    @classmethod
    def of(cls, value: object) -> Checks:
        """Read what users write: a name, several with commas between, ``all``, or None for none.

        Raises:
            OptionError: it is something else.
        """
        known = [f.name for f in fields(cls)]
        allowed = f"check takes {', '.join(map(repr, known))} or 'all', and several as 'memory,race'"
        if value is None:
            return cls()
        if not isinstance(value, str):
            raise OptionError(f"check is a text, not {type(value).__name__} {spell(value)}", help=allowed)
        names = [name.strip() for name in value.split(",")]
        if names == ["all"]:
            return cls(**dict.fromkeys(known, True))
        unknown = [name for name in names if name not in known]
        if unknown:
            raise OptionError(f"no check is called {spell(unknown[0])}", help=allowed)
        return cls(**dict.fromkeys(names, True))

    def __bool__(self) -> bool:
        return self.bits != 0

    def __str__(self) -> str:
        return ",".join(name for name in checks_bits() if getattr(self, name))

    @property
    def bits(self) -> int:
        """The checks as machine code has them."""
        return sum(bit for name, bit in checks_bits().items() if getattr(self, name))

    @property
    def accesses(self) -> bool:
        """Whether any asks about accesses to memory."""
        return self.memory or self.race or self.init
