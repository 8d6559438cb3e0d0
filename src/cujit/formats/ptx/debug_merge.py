"""The debug data of several modules in one: tables of files, and sections of DWARF one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cujit.formats.ptx.renaming import Renaming, labels_of, rewritten_names
from cujit.formats.ptx.syntax import Directive, Function, PtxModule, flat
from cujit.formats.ptx.tokens import NAME, Cursor
from cujit.values import dataclass


@dataclass(frozen=True)
class Labels:
    """The labels of a module: all of its functions and sections, and which of them debug data name."""

    all: frozenset[str]
    debugged: frozenset[str]

    @classmethod
    def of(cls, module: PtxModule) -> Labels:
        """Collect them."""
        inside = {label for f in module.functions for label in labels_of(f.body or ())}
        texts = [d.arguments[1] for d in _directives(module, "section")]
        cursors = [Cursor(text, "<debug data>") for text in texts]
        named = {w for c in cursors for kind, w in zip(c.kinds, c.words, strict=True) if kind == NAME}
        set_ = {w for c in cursors for w, after in zip(c.words, c.words[1:], strict=False) if after == ":"}
        return cls(frozenset(inside | set_), frozenset(named & inside | set_))


class DebugData:
    """Files and sections, filled module by module."""

    def __init__(self) -> None:
        self._files: dict[Sequence[str], int] = {}
        self._sections: dict[str, list[str]] = {}

    def files_of(self, module: PtxModule) -> dict[int, int]:
        """Return the new numbers of a module's files. A file that another module also has keeps one number."""
        numbers = {}
        for directive in _directives(module, "file"):
            number, *file = directive.arguments
            numbers[int(number)] = self._files.setdefault(tuple(file), len(self._files) + 1)
        return numbers

    def add(self, module: PtxModule, renaming: Renaming, number: int) -> list[str]:
        """Add the sections of the ``number``-th module (from 1), and return descriptions of the omitted parts.

        If other modules precede it in a section, references to the beginning of the section become references to a
        label.
        """
        own = [d.arguments for d in _directives(module, "section")]
        starts = {name: f"$debug{name.replace('.', '_')}${number}" for name, _ in own if name in self._sections}

        def new(word: str) -> str:
            return starts.get(word) or renaming.symbols.get(word) or renaming.label(word)

        bodies: dict[str, str] = {}
        for name, body in own:
            bodies[name] = bodies.get(name, "") + rewritten_names(body, new)
        used = {word for body in bodies.values() for word in Cursor(body, "<debug data>").words}
        for name, body in bodies.items():
            label = f"\n{starts[name]}:" if starts.get(name) in used else ""
            self._sections.setdefault(name, []).append(label + body)
        old = any(isinstance(item, Directive) and item.name == "@@DWARF" for item in module.items)
        return ["its @@DWARF lines are left out"] if old else []

    def files(self) -> list[Directive]:
        """The table of files."""
        return [Directive("file", (str(number), *file)) for file, number in self._files.items()]

    def sections(self) -> list[Directive]:
        """The sections."""
        return [Directive("section", (name, "".join(parts))) for name, parts in self._sections.items()]


def _directives(module: PtxModule, name: str) -> Iterable[Directive]:
    """The ``.file`` or ``.section`` directives of a module, and of its functions."""
    statements = (s for item in module.items for s in (flat(item.body) if isinstance(item, Function) else (item,)))
    return (s for s in statements if isinstance(s, Directive) and s.name == name)
