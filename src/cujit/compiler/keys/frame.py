"""The key of a compile that reads no headers: what such compiles have in common, with its names and its source."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from cujit.cache.key import Key, Part, key_of_text, text_of
from cujit.compiler.includes.where import says_where
from cujit.compiler.inputs.source import Source
from cujit.compiler.request import Request

_WORDS = ("include", "import", "__DATE__", "__TIME", "embed", "##", "%:%:", "\\\n", "\\\r", "??")
"""One of these is in every text that reads a header, or that a scan has to look at."""


def has_includes(text: str) -> bool:
    """Tell whether a text could read a header; where no text has such a word, none could."""
    return any(word in text for word in _WORDS)


def is_plain(source: Source) -> bool:
    """Tell whether the key of a source depends on no file, no directory and no header in memory."""
    is_alone = not (source.headers or source.include or source.path or source.modules)
    return is_alone and not has_includes(source.text) and not says_where(source.text)


class KeyFrame:
    """The parts of a key that sources of one name, with the same options, have in common: before and behind the others.

    ``before`` ends where the name expressions begin, ``middle`` lies between these and the source.
    """

    def __init__(self, before: Iterable[Part], middle: Iterable[Part], after: Iterable[Part]) -> None:
        self._parts = tuple(before), tuple(middle), tuple(after)
        self._texts = [text_of(parts) for parts in self._parts]
        self._count = sum(map(len, self._parts)) + 1

    @classmethod
    def of(cls, builds: Iterable[Part], request: Request, after: Iterable[Part]) -> KeyFrame:
        """Make the frame of a request, of whose parts the name expressions and the source are left out."""
        parts = [part for part in request.parts() if part.label != "source"]
        names = [part.label == "name expression" for part in parts]
        at = names.index(True) if any(names) else len(parts) - len(request.arguments())
        middle = [part for part in parts[at:] if part.label != "name expression"]
        return cls([*builds, *parts[:at]], middle, after)

    def key(self, kind: str, request: Request) -> Key:
        """Make the key of a request, for which the frame is."""
        data = request.source.text.encode("utf-8", "surrogatepass")
        digest, names, size = hashlib.sha256(data).hexdigest(), request.names, len(data)
        before, middle, after = self._texts
        named = "".join([f"15 {len(name)} None:name expression{name}" for name in names])
        text = f"{before}{named}{middle}6 64 {size}:source{digest}{after}"

        def parts() -> Iterator[Part]:
            before, middle, after = self._parts
            yield from before
            for name in names:
                yield Part.text("name expression", name)
            yield from middle
            yield Part.digest("source", digest, size)
            yield from after

        return key_of_text(kind, self._count + len(names), text, parts)
