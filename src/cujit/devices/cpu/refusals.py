"""What the CPU device does not take over, collected so that all of it is reported at once."""

from __future__ import annotations

__all__ = ["Refusal", "Refusals"]

Refusal = tuple[int, str, str]
"""Line, text and reason of something that the CPU device does not execute."""


class Refusals:
    """What could not be taken over, collected so that all of it is reported at once."""

    def __init__(self) -> None:
        self.items: list[Refusal] = []

    def add(self, line: int, text: str, why: str) -> None:
        """Note one construct."""
        if (line, text, why) not in self.items:
            self.items.append((line, text, why))
