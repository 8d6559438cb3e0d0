"""The key of a compile without paths: what such compiles have in common, with its names and its source."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from cujit.cache.key import Key, Part, key_of_text, text_of
from cujit.compiler.includes.where import says_where
from cujit.compiler.inputs.source import Source
from cujit.compiler.request import Request


def has_includes(text: str) -> bool:
    """Tell whether a text could read a header, or a scan has to look at it; without one of these words it could not."""
    return (
        "include" in text
        or "import" in text
        or "__DATE__" in text
        or "__TIME" in text
        or "embed" in text
        or "##" in text
        or "%:%:" in text
        or "??" in text
        or "\\\n" in text
        or "\\\r" in text
    )


def is_plain(source: Source) -> bool:
    """Tell whether no path and no header in memory is in the key of a source, as far as its text and its place tell."""
    is_alone = not (source.headers or source.include or source.path or source.modules)
    return is_alone and not says_where(source.text)


class KeyFrame:
    """The parts of a key that sources of one name, with the same options, have in common.

    ``before`` ends where the name expressions begin, ``middle`` lies between these and the source. ``after`` follows
    the source, then come the parts of its headers, and ``last``.
    """

    def __init__(
        self, before: Iterable[Part], middle: Iterable[Part], after: Iterable[Part], last: Iterable[Part]
    ) -> None:
        self._parts = tuple(before), tuple(middle), tuple(after), tuple(last)
        self._texts = [text_of(parts) for parts in self._parts]
        self._count = sum(map(len, self._parts)) + 1

    @classmethod
    def of(cls, builds: Iterable[Part], request: Request, after: Iterable[Part], last: Iterable[Part]) -> KeyFrame:
        """Make the frame of a request, of whose parts the name expressions and the source are left out."""
        parts = [part for part in request.parts() if part.label != "source"]
        names = [part.label == "name expression" for part in parts]
        at = names.index(True) if any(names) else len(parts) - len(request.arguments())
        middle = [part for part in parts[at:] if part.label != "name expression"]
        return cls([*builds, *parts[:at]], middle, after, last)

    def key(self, kind: str, request: Request, headers: tuple[Part, ...]) -> Key:
        """Make the key of a request, for which the frame is, with the parts of its headers."""
        data = request.source.text.encode("utf-8", "surrogatepass")
        digest, names, size = hashlib.sha256(data).hexdigest(), request.names, len(data)
        before, middle, after, last = self._texts
        named = "".join([f"15 {len(name)} None:name expression{name}" for name in names])
        text = f"{before}{named}{middle}6 64 {size}:source{digest}{after}{text_of(headers)}{last}"

        def parts() -> Iterator[Part]:
            before, middle, after, last = self._parts
            yield from before
            for name in names:
                yield Part.text("name expression", name)
            yield from middle
            yield Part.digest("source", digest, size)
            yield from (*after, *headers, *last)

        return key_of_text(kind, self._count + len(names) + len(headers), text, parts)
