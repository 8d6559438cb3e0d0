"""Options of a compile or a link, checked against the table.

Unspecified options are not passed to a tool. ``extra`` passes arguments unchanged that the table lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from cujit.arch.support import Version, dotted
from cujit.compiler.options.spelling import Rejects, Spelling
from cujit.compiler.options.table import OPTIONS, Tool, Value, accept_texts
from cujit.errors import OptionError, alike, spell
from cujit.errors.hints import Hint
from cujit.values import later
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import inspect

    from typing_extensions import Unpack

    from cujit.compiler.options import nvcc, written
    from cujit.compiler.options.keywords import OptionKeywords
    from cujit.errors import other_apis
else:
    # Start-up: for options on a command line, and for mistakes.
    inspect = later("inspect")
    nvcc, written = later("cujit.compiler.options.nvcc"), later("cujit.compiler.options.written")
    other_apis = later("cujit.errors.other_apis")

__all__ = ["OPTIONS", "Options", "Tool", "Value", "newer_than"]


class Options(Mapping[str, Value]):
    """Validated, immutable compiler options. ``extra`` contains arguments that cujit passes to the compiler unchanged.

    Args:
        extra: arguments that cujit passes to the tool unchanged.
        keywords: options by name (docs/options.md).

    Example::

        options = cujit.Options(std="c++17", use_fast_math=True, extra=["--device-int128"])
        image = cujit.compile(CODE, names=["axpy<float>"], options=options)
    """

    __slots__ = ("_values", "extra")

    def __init__(self, *, extra: Sequence[str] = (), **keywords: Unpack[OptionKeywords]) -> None:
        """Check every option. An option with the value None counts as unspecified.

        Raises:
            OptionError: an option is unknown, or its value has the wrong type or is out of bounds.
        """
        texts = accept_texts(extra) if extra else ()
        if texts is None:
            raise OptionError(f"extra is {spell(extra)}, expected a list of non-blank str")
        self.extra: tuple[str, ...] = texts
        given: Mapping[str, object] = keywords
        _require_known(given)
        self._values: dict[str, Value] = {
            row.name: row.accept(given[row.name]) for row in OPTIONS.values() if given.get(row.name) is not None
        }

    @classmethod
    def of(
        cls,
        options: Mapping[str, object] | Options | None,
        more: Mapping[str, object],
        call: Callable[..., object] | None = None,
    ) -> Options:
        """Merge an ``options=`` argument with keyword options; keywords take precedence.

        Args:
            options: a mapping of options, an Options object, or None.
            more: keyword options.
            call: the function that was called. Hints suggest parameters of this function before compiler options.

        Raises:
            OptionError: an option is invalid, or ``options`` is not a mapping.

        Example::

            assert cujit.Options.of({"std": "c++17"}, {"std": "c++20"})["std"] == "c++20"
        """
        if options is None and not more:
            return _NOTHING
        _require_known(more, call)
        if isinstance(options, Options):
            if not more:
                return options
            return cls(**{**options._values, "extra": options.extra, **more})  # type: ignore[arg-type]
        if options is not None and not isinstance(options, Mapping):
            raise OptionError(
                f"options is {type(options).__name__} {spell(options)}, expected a dict such as "
                "{'lineinfo': True} or cujit.Options",
                help=_as_keywords([options] if isinstance(options, str) else accept_texts(options) or ()),
            )
        for name in options or ():
            if not isinstance(name, str):
                raise OptionError(
                    f"{spell(name)} is not an option name; names are str",
                    help=Hint("write options={'lineinfo': True}", shell="-O lineinfo"),
                )
        return cls(**{**(options or {}), **more})  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> Value:
        """Return the value that was specified for an option.

        Args:
            name: name of the option.

        Example::

            assert cujit.Options(std="c++17")["std"] == "c++17"
        """
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and (self._values, self.extra) == (other._values, other.extra)

    def __reduce__(self) -> tuple[object, ...]:
        # A mapping proxy goes neither into a pickle nor into a deep copy.
        values = {name: dict(v) if isinstance(v, Mapping) else v for name, v in self._values.items()}
        return Options.of, (values, {"extra": self.extra})

    def __hash__(self) -> int:
        return hash((tuple(self._values), self.extra))

    def __repr__(self) -> str:
        parts = [f"{name}={v!r}" for name, v in self._values.items()]
        return f"Options({', '.join(parts + [f'extra={self.extra!r}'] * bool(self.extra))})"

    def only(self, *tools: Tool, extra: bool = True) -> Options:
        """Return the options that one of ``tools`` supports, with or without the ``extra`` arguments."""
        taken = {name: v for name, v in self._values.items() if _taken(name, tools)}
        return Options.of(taken, {"extra": self.extra} if extra else {})

    def render(self, tool: Tool, others: Sequence[Tool] = ()) -> list[str]:
        """Return the arguments for ``tool`` in the order of the table, which is the canonical form.

        Options that only one of the later tools ``others`` supports are left to that tool.

        Raises:
            OptionError: neither the tool nor the others support an option.
        """
        arguments: list[str] = []
        for name, given in self._values.items():
            spelling = OPTIONS[name].spelling(tool)
            if isinstance(spelling, Rejects) and _taken(name, others):
                continue
            if isinstance(spelling, Rejects):
                raise OptionError(
                    f"{tool.value} doesn't support the option {name}: {spelling.why}", code="option-rejected"
                )
            # What use_fast_math stands for gives way to the same thing said by itself.
            names = {argument.partition("=")[0] for argument in arguments}
            rendered = spelling.render(given)
            arguments += [a for a in rendered if len(rendered) == 1 or a.partition("=")[0] not in names]
        if tool is Tool.NVJITLINK:
            _require_exact(self.extra)
        _require_value(tool, self.extra)
        return arguments + list(self.extra)


def _require_known(more: Mapping[str, object], call: Callable[..., object] | None = None) -> None:
    for name in more:
        if name not in OPTIONS and name != "extra":
            raise _unknown(name, () if call is None else [*inspect.signature(call).parameters])


def newer_than(release: Version, options: Options) -> list[str]:
    """Return the options that are newer than a release of CUDA, each with its first release."""
    known = ((name, OPTIONS[name].since) for name in options)
    return [f"{name} came with CUDA {dotted(since)}" for name, since in known if since and since > release]


_NOTHING = Options()


def read_options(words: Sequence[str], include: Sequence[str] = (), define: Sequence[str] = ()) -> Options:
    """Parse options in the notation of ``cujit compile -O`` and the explorer: ``KEY=VALUE`` or ``KEY``.

    Raises:
        OptionError: an option is unknown, or its value has the wrong type or is out of bounds.
    """
    return Options.of(written.read_values(words, include, define), {})


# Source: measured with nvJitLink 13.5, which takes any argument that begins so, and says nothing.
_BEGINNINGS = ("-lineinfo", "-lto", "-no-cache", "-nvvm-latest", "-optimize-unused-variables", "-ptx", "-r", "-time",
               "-verbose")  # fmt: skip


def _require_exact(extra: Sequence[str]) -> None:
    """Refuse arguments that nvJitLink would interpret as another option, such as ``-res-usage`` as ``-r``."""
    for argument in extra:
        taken = next((known for known in _BEGINNINGS if argument.startswith(known)), argument)
        if argument != taken:
            raise OptionError(
                f"nvJitLink has no option {argument}, but would interpret it as {taken}, because it compares "
                "only prefixes",
                help=f"write {taken} if you mean that; see docs/options.md for the options",
                code="option-unknown",
            )


# Source: measured with libNVVM 13.5 and NVRTC 13.5, which end the process without the value.
_TAKE_NEXT = ("-Xllc", "-Xlnk", "-Xlto", "-Xopt", "-olto")
_TAKE_VALUE = ("--dopt", "--ptxas-options", "-Xcudafe", "-Xptxas", "-dopt")


def _require_value(tool: Tool, extra: Sequence[str]) -> None:
    """Refuse an argument that lacks its value if the tool would end the process over it."""
    last = extra[-1] if extra else ""
    if tool is Tool.NVVM and last in _TAKE_NEXT:
        raise OptionError(
            f"no argument follows {last}, and libNVVM takes the argument after it as its value",
            help=Hint(
                f"write extra=('{last}', '-option'), or remove {last}",
                shell=f"write -O extra={last} -O extra=-option, or remove {last}",
            ),
            code="option-rejected",
        )
    for name, equals, value in (argument.partition("=") for argument in extra if tool is Tool.NVRTC):
        if name in _TAKE_VALUE and equals and not value.strip():
            raise OptionError(
                f"NVRTC's option {name} requires a value",
                help=Hint(
                    f"write extra=('{name}=VALUE',), or remove {name}",
                    shell=f"write -O extra={name}=VALUE, or remove {name}",
                ),
                code="option-rejected",
            )


def _taken(name: str, tools: Sequence[Tool]) -> bool:
    return any(isinstance(OPTIONS[name].spelling(tool), Spelling) for tool in tools)


def _as_keywords(words: Sequence[str]) -> str:
    """Return keywords that are equivalent to nvcc arguments."""
    if not words:
        return "options={'lineinfo': True} and lineinfo=True mean the same"
    line = nvcc.read_nvcc(words)
    keywords = written.read_values(line.option_words, [w[2:] for w in line.rest if w.startswith("-I")])
    extra = [word for word in line.rest if not word.startswith("-I")]
    parts = [f"arch={t!r}" for t in line.targets[:1]] + [f"{name}={v!r}" for name, v in keywords.items()]
    return f"write keywords instead: {', '.join(parts + [f'extra={extra!r}'] * (bool(extra) or not parts))}"


def _unknown(name: str, own: Sequence[str]) -> OptionError:
    """Make the error for an option that the table lacks.

    Args:
        name: as it was typed.
        own: the parameters of the call, which are likelier than an option.
    """
    sentence = other_apis.sentence_for("options", name)
    if sentence is not None:
        return OptionError(f"unknown option {spell(name)}", help=sentence, code="option-unknown")
    plain = name.strip("-").replace("-", "_")
    parameters = alike(plain, own, least=0.75)
    if parameters:
        return OptionError(
            f"unknown option {spell(name)}", help=f"did you mean {' or '.join(parameters)}?", code="option-unknown"
        )
    near = alike(plain, list(OPTIONS), least=0.5)
    for row in OPTIONS.values():
        spelled = (s.text for s in (row.nvrtc, row.nvjitlink, row.nvvm) if isinstance(s, Spelling))
        if any(plain in text.strip("-").replace("-", "_").split("=")[0].split() for text in spelled):
            near = [row.name, *(n for n in near if n != row.name)]
    also = Hint(
        "to pass an argument that isn't in the table, use extra=('--flag',)",
        shell="to pass an argument that isn't in the table, use -O extra=--flag",
    )
    return OptionError(
        f"unknown option {spell(name)}",
        help=f"did you mean {', '.join(near)}? " + also if near else also,
        code="option-unknown",
    )
