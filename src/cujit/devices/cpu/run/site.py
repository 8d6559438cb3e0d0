"""Facts about a launch that are known when it begins, for error messages."""

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
    """Facts about a launch that are known before it begins: the kernel, the shape of its block, and the text of its
    lines.

    ``text_of`` returns the text of a line of the PTX. ``source_of`` returns the line of CUDA source for a line of the
    PTX. Both return "" if the text is unknown. ``explain`` may return details of a fault, and ``story_of`` may return
    its story. ``line_of`` returns the line of an address in the kernel's machine code, or 0 if it is unknown.
    ``pointers`` are the numbers and parameter-buffer offsets of the eight-byte parameters. ``dynamic`` is whether the
    kernel has an ``extern __shared__`` array.
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
        """Return the place of a line of the PTX: its source line if known, otherwise its number."""
        source = self.source_of(line).partition(",")[0]
        return source.rpartition("/")[2] if source else f"PTX line {line}"

    def words_of(self, line: int) -> str:
        """Describe a line of the PTX: its number, its text, and the line of source that it comes from."""
        source = self.source_of(line)
        return f"PTX line {line}: {self.text_of(line).strip()}" + (f" ({source})" if source else "")
