"""Constructs that the CPU device doesn't support, collected so that one error reports all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from cujit.devices.backend import BackendKernel
from cujit.devices.shapes import Resources
from cujit.errors import UnsupportedError
from cujit.errors.hints import Hint
from cujit.signature import Signature

Refusal = tuple[int, str, str]
"""Line, text and reason of something that the CPU device does not take."""

UNLINKED = "which this module declares and does not define"
"""Why a name of another module is refused, behind the name."""


class Refusals:
    """Refused constructs. ``items`` are not executed on the CPU device. ``mistakes`` are invalid for
    every assembler.
    """

    def __init__(self) -> None:
        self._items: dict[Refusal, None] = {}  # in order, each once
        self._mistakes: dict[tuple[int, str, str, str], None] = {}

    @property
    def items(self) -> list[Refusal]:
        """The constructs that the CPU device doesn't execute."""
        return list(self._items)

    @property
    def mistakes(self) -> list[tuple[int, str, str, str]]:
        """The invalid constructs, each as line, construct, reason, and hint."""
        return list(self._mistakes)

    def add(self, line: int, text: str, why: str) -> None:
        """Note one construct that is right and not executed."""
        self._items[line, text, why] = None

    def mistake(self, line: int, text: str, why: str, help: str = "") -> None:
        """Record an invalid construct, with a hint."""
        self._mistakes[line, text, why, help] = None


class RefusedKernel(BackendKernel):
    """A kernel that contains unsupported constructs. A lookup finds it, and its use raises an error
    with the reasons.
    """

    def __init__(self, name: str, signature: Signature, items: Sequence[Refusal]) -> None:
        self.name = name
        self.signature = signature
        self.items = tuple(items)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise unsupported(self.items, f"kernel {self.title}")

    @property
    def resources(self) -> Resources:
        """Raise ``UnsupportedError``, as the methods do."""
        self._refuse()

    launch = together = active_blocks = best_block = _refuse


def unsupported(items: Sequence[Refusal], what: str = "this PTX") -> UnsupportedError:
    """Make the error that names every one of ``items``."""
    items = sorted(items)
    lines = "\n".join(f"  line {line}: {text}: {why}" for line, text, why in items)
    stand = f"{len(items)} constructs stand" if len(items) > 1 else "one construct stands"
    help_ = "run it on a GPU; `cujit inspect --needs` lists what a PTX file needs, and what of it runs here"
    if all(UNLINKED in why for _, _, why in items):
        help_ = Hint(
            "link it with the module that defines it: cujit.link([…], to='ptx')",
            shell="link it with the module that defines it: cujit link FILE FILE --to ptx -o x.ptx",
        )
    return UnsupportedError(
        f"the CPU device can't execute {what} yet; {stand} in the way:\n{lines}", items=items, help=help_
    )
