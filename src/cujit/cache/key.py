"""Keys: all inputs of a piece of work as parts, and one digest over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest

from cujit.errors import OptionError, spell
from cujit.values import NamedTuple, dataclass, field, group_by
from cujit.values.hashing import sha256
from cujit.values.typed import Any

SCHEMA = 1
"""The number of the rule below; another rule, another number, and no old entry is found again."""

_HEX = frozenset("0123456789abcdef")
_DIGEST_CHARS = 64


def is_digest(text: object) -> bool:
    """Whether something is a SHA-256 in hex, as keys are."""
    return isinstance(text, str) and len(text) == _DIGEST_CHARS and _HEX.issuperset(text)


@dataclass(frozen=True)
class Part:
    """One input of a piece of work, with a label such as ``arch``, ``option``, or ``include cuda_fp16.h``.

    ``value`` is the input itself, and ``size`` is None. For a long input, ``value`` is the SHA-256 of its bytes in hex,
    and ``size`` is the number of bytes. Labels may repeat, and their order counts.
    """

    label: str
    value: str
    size: int | None = None

    @classmethod
    def text(cls, label: str, value: str) -> Part:
        """Keep a short input in full, so that people can read it: a name, an arch, an option."""
        return cls(label, value)

    @classmethod
    def content(cls, label: str, value: bytes | str) -> Part:
        """Keep a long input (a source, a header, an image) as its digest and its size."""
        data = _encoded(value) if isinstance(value, str) else value
        return cls(label, sha256(data).hexdigest(), len(data))

    @classmethod
    def digest(cls, label: str, sha256: str, size: int) -> Part:
        """Return the part of a long input whose SHA-256 (64 lower-case hex digits) is known. ``size`` is in bytes.

        Raises:
            OptionError: the digest or the size is invalid.
        """
        if not is_digest(sha256) or size < 0:
            raise OptionError(
                f"the key part {spell(label)} has the digest {spell(sha256)} and is {size} bytes long",
                help="use Part.content",
            )
        return cls(label, sha256, size)

    def __str__(self) -> str:
        shown = self.value if self.size is None else f"{self.value[:12]}… ({self.size} bytes)"
        return f"{self.label}: {shown}"


@dataclass(frozen=True)
class Key:
    """Identity of a piece of work: a SHA-256 in hex over its kind and its parts. Keys with equal digests are equal.

    ``kind`` is the kind of work (``nvrtc``, ``nvvm``, ``link``, ``bundle``). Use ``make_key`` to create a key.
    """

    digest: str
    kind: str = field(compare=False)
    parts: tuple[Part, ...] = field(compare=False, repr=False)

    def values(self, label: str) -> tuple[str, ...]:
        """Return the values of the parts with this label, in order."""
        return tuple(part.value for part in self.parts if part.label == label)

    @property
    def name(self) -> str:
        """Name of the work for users: the value of its part ``name``, or an empty string."""
        return next(iter(self.values("name")), "")

    def __getattr__(self, name: str) -> Any:
        """Create the parts of a key that was made from text, on first access."""
        later = self.__dict__.get("_later") if name == "parts" else None
        if later is None:
            raise AttributeError(name)
        object.__setattr__(self, "parts", tuple(later()))
        return self.parts

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.digest, self.kind, self.parts)

    def __str__(self) -> str:
        return self.digest


def text_of(parts: Iterable[Part]) -> str:
    """Write parts as they go into a digest (``make_key``)."""
    return "".join([f"{len(p.label)} {len(p.value)} {p.size}:{p.label}{p.value}" for p in parts])


def key_of_text(kind: str, count: int, text: str, parts: Callable[[], Iterable[Part]]) -> Key:
    """Create a key from the text of its parts, as ``make_key`` does. ``parts`` returns the parts on demand."""
    whole = f"cujit {SCHEMA} {count} {len(kind)}:{kind}{text}"
    return key_of_digest(kind, sha256(_encoded(whole)).hexdigest(), parts)


def key_of_digest(kind: str, digest: str, parts: Callable[[], Iterable[Part]]) -> Key:
    """Create a key from its digest. ``parts`` returns the parts with this digest on demand."""
    key = object.__new__(Key)
    key.__dict__.update(digest=digest, kind=kind, _later=parts)
    return key


def make_key(kind: str, parts: Iterable[Part]) -> Key:
    """Create the key for work of this kind from all its inputs.

    The digest is the SHA-256 of one text: the schema number, the kind, and the size, label, and value of each part. The
    length in characters precedes each of these, so that different lists of parts never give the same text. A part named
    ``name`` is the name for users (``Key.name``), which helps to find the most similar entry after a miss.
    """
    ordered = tuple(parts)
    return key_of_text(kind, len(ordered), text_of(ordered), lambda: ordered)


def _encoded(text: str) -> bytes:
    # surrogatepass: a path that is no UTF-8 comes as lone surrogates, and two such paths have two keys.
    return text.encode("utf-8", "surrogatepass")


class KeyDifference(NamedTuple):
    """An input that differs between two keys. ``before`` or ``after`` is None if only one key has the input."""

    label: str
    before: Part | None
    after: Part | None

    def __str__(self) -> str:
        if self.before is None:
            return f"new {self.after}"
        if self.after is None:
            return f"gone {self.before}"
        before, after = (str(part).removeprefix(f"{self.label}: ") for part in (self.before, self.after))
        return f"{self.label}: {before} -> {after}"


def differences(before: Sequence[Part], after: Sequence[Part]) -> tuple[KeyDifference, ...]:
    """Return the parts that differ, in the order of ``after`` and then of ``before``.

    If only the order within a label changed, the parts are listed as changed individually.
    """
    labels = dict.fromkeys(part.label for part in (*after, *before))
    old, new = (group_by((part.label, part) for part in parts) for parts in (before, after))
    return tuple(
        KeyDifference(label, *pair) for label in labels for pair in _changed(old.get(label, []), new.get(label, []))
    )


def _changed(before: list[Part], after: list[Part]) -> list[tuple[Part | None, Part | None]]:
    """Pair the remaining parts of two lists with the same label after their common parts are removed."""
    old, new = _without(before, after), _without(after, before)
    if not old and not new and before != after:
        return [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    return list(zip_longest(old, new))


def _without(these: list[Part], those: list[Part]) -> list[Part]:
    rest = Counter(those)
    left = []
    for part in these:
        if rest[part]:
            rest[part] -= 1
        else:
            left.append(part)
    return left
