"""What is known of a launch when it begins, for the words of an error."""

from __future__ import annotations

from collections.abc import Callable

from cujit.devices.cpu.run.launch import Launch
from cujit.devices.shapes import Dim3
from cujit.errors.stories import Story
from cujit.values import dataclass


def says_nothing(_: object) -> str:
    """Return no words."""
    return ""


def tells_nothing(_: object) -> None:
    """Return no story."""


def no_line(_address: int) -> int:
    """Return that the line is not known."""
    return 0


@dataclass(frozen=True)
class FaultSite:
    """What is known of a launch beforehand: the kernel, its block's shape, and what its lines say.

    ``text_of`` gives the text of a line of the PTX, ``source_of`` the line of CUDA source that it comes from; both
    give "" where they do not know. ``explain`` may say more of a fault, and ``story_of`` tell it. ``line_of`` finds
    the line of an address in the kernel's machine code, 0 where it is not known. ``pointers`` are the parameters of
    eight bytes: number and offset in the parameter buffer. The kernel has an ``extern __shared__`` array if it is
    ``dynamic``.
    """

    kernel: str
    block: Dim3
    text_of: Callable[[int], str] = says_nothing
    source_of: Callable[[int], str] = says_nothing
    explain: Callable[[Launch], str | None] = says_nothing
    story_of: Callable[[Launch], Story | None] = tells_nothing
    line_of: Callable[[int], int] = no_line
    pointers: tuple[tuple[int, int], ...] = ()
    dynamic: bool = False

    def place_of(self, line: int) -> str:
        """Write the place of a line of the PTX: the line of source that it comes from, if that is known."""
        source = self.source_of(line).partition(",")[0]
        return source.rpartition("/")[2] if source else f"PTX line {line}"

    def words_of(self, line: int) -> str:
        """Describe a line of the PTX: its number, its text, and the line of source that it comes from."""
        source = self.source_of(line)
        return f"PTX line {line}: {self.text_of(line).strip()}" + (f" ({source})" if source else "")
