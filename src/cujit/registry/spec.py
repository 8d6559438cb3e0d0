"""Results of builders for the registry, and descriptions of builders without calling them."""

from __future__ import annotations

import enum
import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CellType, CodeType, FunctionType, MethodType

from cujit.artifact import Artifact
from cujit.errors import OptionError, spell
from cujit.forks import cached_property
from cujit.program import Options, Source
from cujit.values import replace
from cujit.values.hashing import sha256

_PTX_TEXT = re.compile(r"^\s*\.version\s+\d", re.MULTILINE)
_EXAMPLE = "cujit.ModuleSpec(text, names=['axpy<float>']), cujit.ModuleSpec(artifact), or (text, names)"


class ModuleSpec:
    """Input for the registry: a source with template instances, or an image with kernel names.

    A ModuleSpec is immutable. Two ModuleSpecs are equal if all their parts are equal.

    Args:
        source: CUDA C++ (a Source, text, or the path of a ``.cu`` file), LLVM IR (``Source.nvvm``), or an image: an
            Artifact or the bytes of an image.
        names: template instances to build. For an image: the kernels that it must contain, or a dict from your names to
            lowered names.
        headers: in-memory headers by name, as for ``jit``.
        options: compiler options, as for ``jit``.
        name: name of a source string in messages.

    Raises:
        OptionError: a part has a wrong type, or an image is combined with an argument for sources.
        FormatError: the text or the bytes have an invalid format.
        FileError: a file can't be read.

    Example::

        built = cujit.ModuleSpec(CODE, names=["axpy<float>"], options={"use_fast_math": True})
        kernel = cujit.module("example axpy fast", built, device=device)["axpy<float>"]
    """

    source: Source | Artifact
    names: tuple[str, ...]
    options: Options

    def __init__(
        self,
        source: Source | Artifact | str | bytes | bytearray | memoryview | os.PathLike[str],
        names: Sequence[str] | Mapping[str, str] | str = (),
        headers: Mapping[str, str] | None = None,
        options: Mapping[str, object] | Options | None = None,
        *,
        name: str | None = None,
    ) -> None:
        taken = _source(source, headers, name)
        chosen = Options.of(options, {})
        if isinstance(taken, Artifact):
            if chosen or chosen.extra:
                raise OptionError(
                    "an image is already compiled, so it doesn't accept options", help=_EXAMPLE, code="option-rejected"
                )
            if isinstance(names, Mapping):
                taken = replace(taken, names={**taken.names, **_texts(names)})
        elif isinstance(names, Mapping):
            raise OptionError(
                "the names of a source must be a list: the compiler determines the lowered names", help=_EXAMPLE
            )
        for field, value in (("source", taken), ("names", _names(names)), ("options", chosen)):
            object.__setattr__(self, field, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a ModuleSpec is immutable; to change {name}, create another ModuleSpec")

    @cached_property
    def digest(self) -> str:
        """SHA-256 in hex over everything in it."""
        return sha256(repr(self._parts()).encode("utf-8", "surrogatepass")).hexdigest()

    def with_options(self, options: Options) -> ModuleSpec:
        """Return the same with more options. Its own options win. An image accepts no options and is returned
        unchanged.
        """
        if isinstance(self.source, Artifact) or not (options or options.extra):
            return self
        joined = Options.of(options, {**self.options, "extra": (*options.extra, *self.options.extra)})
        return ModuleSpec(self.source, self.names, options=joined)

    def difference(self, other: ModuleSpec) -> str:
        """Return a one-line description of the first difference, or an empty string if the specs are equal."""
        if self.digest == other.digest:
            return ""
        mine, theirs = self._parts(), other._parts()
        label = next((a for (a, x), (b, y) in zip(mine, theirs, strict=False) if (a, x) != (b, y)), "kind")
        ours, its = dict(mine).get(label), dict(theirs).get(label)
        if label == "text":
            return _first_line(str(ours), str(its))
        if label in ("names", "options", "name", "language", "arch"):
            return f"its {label}: {_short(ours)} and {_short(its)}"
        return f"its {label}"

    def _parts(self) -> list[tuple[str, object]]:
        source = self.source
        parts = [("names", self.names), ("options", (sorted(self.options.items()), self.options.extra))]
        if isinstance(source, Artifact):
            image = sha256(source.data).hexdigest()
            known = [("names of the image", sorted(source.names.items())), ("image", image)]
            return [("kind", source.kind.value), ("arch", str(source.arch)), *parts, *known]
        return [("kind", "source"), *((name, getattr(source, name)) for name in source.__match_args__), *parts]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModuleSpec) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[object, ...]:
        # A mapping proxy goes neither into a pickle nor into a deep copy.
        values = {name: dict(v) if isinstance(v, Mapping) else v for name, v in self.options.items()}
        return ModuleSpec, (self.source, self.names, None, {**values, "extra": self.options.extra})

    def __repr__(self) -> str:
        names = f" names={list(self.names)}" if self.names else ""
        return f"<ModuleSpec {self.source!r}{names}>"


Builder = Callable[[], object]


def built_of(given: object) -> ModuleSpec:
    """Convert the result of a builder to a ModuleSpec.

    The result is a ModuleSpec, the arguments of a ModuleSpec as a tuple, or only a source or an image.

    Raises:
        OptionError: the value has a different type.
        FormatError: the text or the bytes have an invalid format.
        FileError: a file can't be read.
    """
    if isinstance(given, ModuleSpec):
        return given
    arguments = given if isinstance(given, tuple) else (given,)
    if not 1 <= len(arguments) <= 4:
        raise OptionError(f"the builder returned a tuple of {len(arguments)} values", help=_EXAMPLE)
    return ModuleSpec(*arguments)


_TAKEN_AS_THEY_ARE = (Source, Artifact, bytes, bytearray, memoryview)


def _source(given: object, headers: Mapping[str, str] | None, name: str | None) -> Source | Artifact:
    if isinstance(given, _TAKEN_AS_THEY_ARE):
        if headers is not None or (name is not None and isinstance(given, Source | Artifact)):
            raise OptionError(
                f"headers and name apply to text, but this is {type(given).__name__}",
                help="pass them to cujit.Source.cuda",
                code="option-conflict",
            )
        return given if isinstance(given, Source | Artifact) else Artifact.of(given, name=name or "")
    if isinstance(given, str) and "__global__" not in given and _PTX_TEXT.search(given):
        raise OptionError(
            "the text is PTX, but a builder must return CUDA C++ if it returns text", help="cujit.Artifact.of(text)"
        )
    if not isinstance(given, str | os.PathLike):
        raise OptionError(
            f"expected a source or an image, not {type(given).__name__} {spell(given)}"[:200], help=_EXAMPLE
        )
    return Source.cuda(given, name=name, headers=headers)


def _names(given: Iterable[str] | str) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else ("",)
    if not all(isinstance(name, str) and name.strip() for name in names):
        raise OptionError(f"kernel names must be a list of str, not {spell(given)}"[:200], help=_EXAMPLE)
    return names


def _texts(names: Mapping[str, str]) -> Mapping[str, str]:
    if not all(isinstance(lowered, str) for lowered in names.values()):
        raise OptionError(
            f"the names of an image must map names to lowered names, not {spell(names)}"[:200], help=_EXAMPLE
        )
    return names


def _first_line(ours: str, its: str) -> str:
    mine, theirs = ours.splitlines(), its.splitlines()
    for number, (a, b) in enumerate(zip(mine, theirs, strict=False), start=1):
        if a != b:
            same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            at = max(same - 20, 0)
            return f"line {number} of its text: {_short(a[at:])} and {_short(b[at:])}"
    return f"its length: {len(mine)} lines and {len(theirs)}, {len(ours)} characters and {len(its)}"


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}…"


# -- builders -----------------------------------------------------------------------------------------------

Description = tuple[object, ...]
"""The description of a callable: equal for two of which no difference can be seen."""

_PLAIN = (bool, int, str, bytes, type(None))
_CALLABLES = (FunctionType, functools.partial, MethodType)
_WRITTEN = (*_PLAIN, float, complex)
_DEEPEST = 3
_MOST_ITEMS = 16


def described(builder: Callable[..., object]) -> Description:
    """Describe a callable without calling it: its code, and the plain values that it uses.

    The values are the variables that its closure captured, its defaults, and the arguments of a ``functools.partial``.
    Plain values are numbers, text, bytes, enum members, types, functions, and short tuples of these. Other objects are
    described only by their type, because they may change. Callables with equal descriptions may therefore differ.
    """
    return _callable(builder, _DEEPEST)


def _callable(value: object, depth: int) -> Description:
    if isinstance(value, functools.partial):
        return "partial", _plain(value.func, depth), _plain(value.args, depth), _keywords(value.keywords, depth)
    if isinstance(value, MethodType):
        return "method", _callable(value.__func__, depth), _plain(value.__self__, depth)
    if not isinstance(value, FunctionType):
        wrapped = getattr(value, "__wrapped__", None)
        if isinstance(wrapped, FunctionType):
            return "wrapped", _callable(wrapped, depth)
        kind = value if isinstance(value, type) else type(value)
        return "object", kind.__module__, kind.__qualname__, getattr(value, "__qualname__", "")
    captured = tuple(_captured(cell, depth) for cell in value.__closure__ or ())
    brought = _plain(value.__defaults__, depth), _keywords(value.__kwdefaults__, depth)
    return "function", value.__module__, value.__qualname__, value.__code__, captured, *brought


def _captured(cell: CellType, depth: int) -> Description:
    try:
        return _plain(cell.cell_contents, depth)
    except ValueError:  # not bound yet
        return ("unbound",)


def _keywords(given: Mapping[str, object] | None, depth: int) -> Description:
    return tuple((name, _plain(value, depth)) for name, value in (given or {}).items())


def _plain(value: object, depth: int) -> Description:
    kind = type(value)
    if kind in _PLAIN:
        return kind.__name__, value
    if kind is float or kind is complex:
        return kind.__name__, repr(value)  # NaN is equal to itself, and -0.0 is not 0.0
    if isinstance(value, enum.Enum):
        return "enum", kind.__module__, kind.__qualname__, value.name
    if isinstance(value, type):
        return "type", value.__module__, value.__qualname__
    if depth and kind is tuple:
        assert isinstance(value, tuple)
        return "tuple", len(value), *(_plain(item, depth - 1) for item in value[:_MOST_ITEMS])
    if depth and isinstance(value, _CALLABLES):
        return _callable(value, depth - 1)
    return "other", kind.__module__, kind.__qualname__


def code_text(description: object) -> str:
    """Write a description down, the same in every process of one release of Python."""
    if isinstance(description, _WRITTEN):
        return f"{type(description).__name__} {description!r}"
    if isinstance(description, tuple):
        return f"({', '.join(map(code_text, description))})"
    if isinstance(description, CodeType):
        return _text_of_code(description)
    if isinstance(description, frozenset):
        return f"set({', '.join(sorted(map(code_text, description)))})"
    return type(description).__name__


@functools.lru_cache(256)
def _text_of_code(code: CodeType) -> str:
    """Return code as text. Builders of one library often share their code, and differ only in captured values."""
    own = code.co_name, code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars
    return f"code({own!r}, {', '.join(map(code_text, code.co_consts))})"
