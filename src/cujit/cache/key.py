"""Keys: what went into a piece of work, part by part, and one digest over it."""

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
    """One input of a piece of work, under a label such as ``arch``, ``option`` or ``include cuda_fp16.h``.

    ``value`` is the input itself, or, where it is long, the SHA-256 of its bytes in hex; then ``size`` is the number
    of those bytes. ``size`` is None where the value is there in full. Labels may repeat; order counts.
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
        """Keep a long input whose SHA-256 (64 digits of lower-case hex) is known already; ``size`` is in bytes.

        Raises:
            OptionError: that is no such digest, or no size.
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
    """The name of a piece of work: a SHA-256 in hex over its kind and its parts. Equal if the digest is.

    ``kind`` is the kind of work (``nvrtc``, ``nvvm``, ``link``, ``bundle``). ``make_key`` is the only way to one.
    """

    digest: str
    kind: str = field(compare=False)
    parts: tuple[Part, ...] = field(compare=False, repr=False)

    def values(self, label: str) -> tuple[str, ...]:
        """List the values of the parts with this label, in order; empty if there is none."""
        return tuple(part.value for part in self.parts if part.label == label)

    @property
    def name(self) -> str:
        """What people call the work: the value of its part ``name``, or nothing."""
        return next(iter(self.values("name")), "")

    def __getattr__(self, name: str) -> Any:
        """Make the parts of a key that was made of texts, when somebody asks for them."""
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
    """Make the key of work from the text of its parts, as ``make_key`` does; ``parts`` gives them to who asks."""
    whole = f"cujit {SCHEMA} {count} {len(kind)}:{kind}{text}"
    return key_of_digest(kind, sha256(_encoded(whole)).hexdigest(), parts)


def key_of_digest(kind: str, digest: str, parts: Callable[[], Iterable[Part]]) -> Key:
    """Make the key of work from its digest; ``parts`` gives the parts, which have that digest, to who asks."""
    key = object.__new__(Key)
    key.__dict__.update(digest=digest, kind=kind, _later=parts)
    return key


def make_key(kind: str, parts: Iterable[Part]) -> Key:
    """Make the key of work of this kind from everything that goes into it.

    The digest is SHA-256 over one text: the schema number, the kind, and per part its size, its label and its value,
    each with its length in characters before it, so that no two different lists of parts give the same text. A part
    named ``name`` says what people call the work (``Key.name``): after a miss, the nearest entry is sought by it.
    """
    ordered = tuple(parts)
    return key_of_text(kind, len(ordered), text_of(ordered), lambda: ordered)


def _encoded(text: str) -> bytes:
    # surrogatepass: a path that is no UTF-8 comes as lone surrogates, and two such paths have two keys.
    return text.encode("utf-8", "surrogatepass")


class KeyDifference(NamedTuple):
    """One input that is not the same in two keys; ``before`` or ``after`` is None where only one has it."""

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
    """Return the parts that differ, in the order of ``after`` and then of ``before``. Empty if the parts are the same.

    Parts that only changed their order within a label are listed as changed, one by one.
    """
    labels = dict.fromkeys(part.label for part in (*after, *before))
    old, new = (group_by((part.label, part) for part in parts) for parts in (before, after))
    return tuple(
        KeyDifference(label, *pair) for label in labels for pair in _changed(old.get(label, []), new.get(label, []))
    )


def _changed(before: list[Part], after: list[Part]) -> list[tuple[Part | None, Part | None]]:
    """Pair what is left of two lists under one label when what they share is taken away."""
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
