"""Keys of compiles without paths, made from a common part, name expressions, and a source."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

from cujit.cache.key import SCHEMA, Key, Part, key_of_digest, key_of_text, text_of
from cujit.compiler.includes.location import says_where
from cujit.compiler.inputs.source import Source
from cujit.compiler.request import Request
from cujit.values.hashing import sha256
from cujit.values.native import LOADED


def has_includes(text: str) -> bool:
    """Return whether a text could read a header, or a scan must examine it. Without one of these
    words, it could not.
    """
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


UNSURE = (
    "include", "import", "__DATE__", "__TIME", "embed", "##", "%:%:", "??", "\\\n", "\\\r",
    "ASSERT", "assert", "source_location", "COMP_DEPR", "FILE", "DEBUG",
    "__tile_global__",
)  # fmt: skip
"""Words of texts that native code makes no key of: texts that could read a header (``has_includes``), texts that may
hold a path (``says_where``), and tile kernels."""


# What joins lines, or hides a directive in one or shows one outside; what a scan looks for in code; and the pieces that
# ``##`` could make such words of (directives._PASTED, whose begins are longer than ``__ha`` here).
_TELLING = (
    "/*", "\\\n", "\\\r", 'R"', "%:", "??", "##", "import", "module", "embed", "__CUDACC", "__has", "as_include",
    "IME__", "ATE__", "AMP__", "__DA", "__TI",
)  # fmt: skip


def outline_of(text: str) -> str | None:
    """Return the directives of a text, which alone determine its headers, or None if other lines may too.

    A header's macro that tests for headers also counts in code (``Manifest.askers``).
    """
    if any(word in text for word in _TELLING) or _has_word(text, "__ha"):
        return None
    return "\n".join([line for line in text.split("\n") if line.lstrip(" \t\f\v\r").startswith("#")])


def _has_word(text: str, word: str) -> bool:
    """Return whether a text contains a word that is not part of a longer word."""
    at = text.find(word)
    while at >= 0:
        after = text[at + len(word) : at + len(word) + 1]
        if not (after.isalnum() or after == "_"):
            return True
        at = text.find(word, at + 1)
    return False


def is_plain(source: Source) -> bool:
    """Return whether a source's key contains no path and no in-memory header, judging by its text and place."""
    is_alone = not (source.headers or source.include or source.path or source.modules)
    return is_alone and not says_where(source.text)


class KeyFrame:
    """Key parts that sources with one name and equal options have in common.

    ``before`` ends before the name expressions, and ``middle`` is between them and the source. ``after`` follows the
    source. The parts of its headers and ``last`` follow.
    """

    def __init__(
        self, kind: str, before: Iterable[Part], middle: Iterable[Part], after: Iterable[Part], last: Iterable[Part]
    ) -> None:
        self._kind = kind
        self._parts = tuple(before), tuple(middle), tuple(after), tuple(last)
        self._texts = [text_of(parts) for parts in self._parts]
        self._count = sum(map(len, self._parts)) + 1
        self._headers: tuple[tuple[Part, ...] | None, tuple[str, tuple[bytes, ...]]] = None, ("", ())
        """The headers of the newest key, and what they give: sources of one library have the same."""

    @classmethod
    def of(
        cls, kind: str, builds: Iterable[Part], request: Request, after: Iterable[Part], last: Iterable[Part]
    ) -> KeyFrame:
        """Create the frame from the parts of a request without the name expressions and the source."""
        parts = [part for part in request.parts() if part.label != "source"]
        names = [part.label == "name expression" for part in parts]
        at = names.index(True) if any(names) else len(parts) - len(request.arguments())
        middle = [part for part in parts[at:] if part.label != "name expression"]
        return cls(kind, [*builds, *parts[:at]], middle, after, last)

    def key(self, names: tuple[str, ...], source: str, headers: tuple[Part, ...]) -> Key:
        """Make the key of a source with its sorted names, for which the frame is, with the parts of its headers."""
        data = source.encode("utf-8", "surrogatepass")
        digest, size = sha256(data).hexdigest(), len(data)
        before, middle, after, last = self._texts
        named = "".join([f"15 {len(name)} None:name expression{name}" for name in names])
        text = f"{before}{named}{middle}6 64 {size}:source{digest}{after}{self._listed(headers)[0]}{last}"
        parts = functools.partial(self._all_parts, names, source, headers)
        return key_of_text(self._kind, self._count + len(names) + len(headers), text, parts)

    def native_key(self, names: tuple[str, ...], source: str, headers: tuple[Part, ...], is_known: bool) -> Key | None:
        """Make the key by native code; None leaves it to ``key``.

        Unless ``is_known``, it does so only for a source that needs no look at more than its text.
        """
        native, pieces = LOADED.get("key"), self._listed(headers)[1]
        digest = native and native(pieces, self._count + len(headers), names, source, is_known)
        return (
            key_of_digest(self._kind, digest, functools.partial(self._all_parts, names, source, headers))
            if digest
            else None
        )

    def _listed(self, headers: tuple[Part, ...]) -> tuple[str, tuple[bytes, ...]]:
        """Return the text of headers, and the pieces that native code makes keys with them of."""
        known = self._headers
        if known[0] is headers:
            return known[1]
        listed, (before, middle, after, last) = text_of(headers), self._texts
        head = f"cujit {SCHEMA} ", f" {len(self._kind)}:{self._kind}{before}", middle, f"{after}{listed}{last}"
        made = listed, tuple([piece.encode("utf-8", "surrogatepass") for piece in head])
        self._headers = headers, made
        return made

    def _all_parts(self, names: tuple[str, ...], source: str, headers: tuple[Part, ...]) -> Iterator[Part]:
        before, middle, after, last = self._parts
        yield from before
        for name in names:
            yield Part.text("name expression", name)
        yield from middle
        yield Part.content("source", source)
        yield from (*after, *headers, *last)
