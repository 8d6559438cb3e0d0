"""Stories of errors: the actions of two threads in order, and the missing step between them, as text
and as a picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cujit.values import NamedTuple, dataclass, later

if TYPE_CHECKING:
    import html
else:
    html = later("html")  # start-up: for a picture

_WIDTH = 36
"""Characters of a column of the text."""
_INDENT = "  "
_COLUMN, _ROW, _TOP, _MARGIN, _LETTER = 330, 64, 46, 10, 7.3
"""Sizes of the picture, in pixels; ``_LETTER`` is as wide as a letter of 13 pixels."""


class StoryStep(NamedTuple):
    """One action of an actor: the number of the actor (0 or 1), the action, and the place in the source."""

    actor: int
    action: str
    place: str


@dataclass(frozen=True)
class Story:
    """Two actors, usually threads, with their actions in order, and the ``missing`` step.

    ``after`` is the number of actions before the missing step.

    Example::

        steps = (StoryStep(0, "writes 4 bytes", "k.cu:5"), StoryStep(1, "reads 4 bytes", "k.cu:6"))
        print(Story(("thread 0", "thread 32"), steps, "missing: __syncthreads()", 1))
    """

    actors: tuple[str, str]
    steps: tuple[StoryStep, ...]
    missing: str
    after: int

    def __str__(self) -> str:
        rows = [self._columns(0, self.actors[0], self.actors[1])]
        rows.append(self._columns(0, *("-" * len(actor[:_WIDTH]) for actor in self.actors)))
        for number, step in enumerate((*self.steps, None)):
            if number == self.after:
                rows.append(f"{_INDENT}{f' {self.missing} ':.^{2 * _WIDTH}}")
            if step is not None:
                rows += [self._columns(step.actor, text) for text in (step.action, f"  {step.place}") if text.strip()]
        return "\n".join(row.rstrip() for row in rows)

    @staticmethod
    def _columns(first: int, *texts: str) -> str:
        return _INDENT + " " * (first * _WIDTH) + "".join(f"{text:{_WIDTH}}" for text in texts)

    def to_json(self) -> dict[str, Any]:
        """Return the story as plain values."""
        return {**vars(self), "actors": list(self.actors), "steps": [list(step) for step in self.steps]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Story:
        """Create a story from the output of ``to_json``.

        Raises:
            ValueError: the data isn't a story.
        """
        first, second = map(str, data["actors"])
        steps = tuple(StoryStep(int(actor), str(action), str(place)) for actor, action, place in data["steps"])
        if any(step.actor not in (0, 1) for step in steps):
            raise ValueError("a story has two actors, 0 and 1")
        return cls((first, second), steps, str(data["missing"]), int(data["after"]))

    def svg(self) -> str:
        """Return the story as an SVG picture: a line with actions for each actor, and the missing step across both
        lines.
        """
        height = _TOP + _ROW * (len(self.steps) + 1)
        label = html.escape(f"{self.actors[0]} and {self.actors[1]}: {self.missing}", quote=True)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * _COLUMN} {height}" width="{2 * _COLUMN}" '
            f'height="{height}" font-size="13" font-family="sans-serif" fill="currentColor" role="img" '
            f'aria-label="{label}">'
        ]
        for actor, name in enumerate(self.actors):
            left = actor * _COLUMN
            parts.append(_text(left + _COLUMN // 2, 22, name, 'font-weight="bold"'))
            parts.append(f'<path d="M{left + 5} 14V{height - 8}" stroke="currentColor" opacity=".35"/>')
        rows: list[Callable[[int], str]] = [self._drawn(step) for step in self.steps]
        rows.insert(self.after, self._gap)
        parts += [row(_TOP + _ROW * number) for number, row in enumerate(rows)]
        return "".join((*parts, "</svg>"))

    @staticmethod
    def _drawn(step: StoryStep) -> Callable[[int], str]:
        left, middle = step.actor * _COLUMN + _MARGIN, step.actor * _COLUMN + _COLUMN // 2
        box = f'width="{_COLUMN - 2 * _MARGIN}" height="{_ROW - 12}" rx="6" fill="#8882" stroke="currentColor"'
        faint = 'opacity=".75"'
        return lambda y: (
            f'<rect x="{left}" y="{y}" {box}/>{_text(middle, y + 21, step.action)}'
            f"{_text(middle, y + 41, step.place, faint)}"
        )

    def _gap(self, y: int) -> str:
        dashes = f'<path d="M{_MARGIN} {y + 30}H{2 * _COLUMN - _MARGIN}" stroke="#d33" stroke-dasharray="6 5"/>'
        return dashes + _text(_COLUMN, y + 22, self.missing, 'font-weight="bold"', 2 * _COLUMN)


def _text(x: int, y: int, words: str, more: str = "", width: int = _COLUMN) -> str:
    most = int((width - 2 * _MARGIN) / _LETTER)
    shown = html.escape(words if len(words) <= most else f"{words[: most - 1]}…")
    return f'<text x="{x}" y="{y}" text-anchor="middle" {more}>{shown}</text>'
