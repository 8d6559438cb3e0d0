"""Request: the frozen description of one compile. Printed, and part of its key."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from types import MappingProxyType

from cujit.arch import Arch, ArchKind
from cujit.artifact import ImageKind
from cujit.artifact.reading import allow_quotes
from cujit.cache.key import Part, make_key
from cujit.compiler.inputs.source import KEPT, Source
from cujit.compiler.options.table import is_utf8
from cujit.compiler.options.values import Options, Tool
from cujit.errors import OptionError, spell
from cujit.errors.hints import Hint
from cujit.forks import cached_property
from cujit.toolchain.headers import HOST_DIRECTORY
from cujit.toolchain.toolset import Compilers
from cujit.values import dataclass, field, replace

_LANGUAGES = ("cuda", "nvvm", "tile")
_KIND = MappingProxyType(
    {ArchKind.VIRTUAL: ImageKind.PTX, ArchKind.REAL: ImageKind.CUBIN, ArchKind.LTO: ImageKind.LTOIR}
)
_ARCH_KIND = MappingProxyType({
    **{kind: arch_kind for arch_kind, kind in _KIND.items()},
    ImageKind.OPTIXIR: ArchKind.VIRTUAL, ImageKind.TILEIR: ArchKind.VIRTUAL,
})  # fmt: skip
_ARGUMENTS = MappingProxyType({ImageKind.LTOIR: ("--dlink-time-opt",), ImageKind.OPTIXIR: ("--optix-ir",)})
_UNSEEDED = ("result", "arch", "name expression")


@dataclass(frozen=True)
class Request:
    """A description of a compile: the source, kind of result, architecture, options, and template instances.

    Example::

        asked = cujit.request(CODE, names=["axpy<float>"], arch="sm_90")
        print(asked)
    """

    source: Source
    kind: ImageKind
    arch: Arch
    options: Options = field(default_factory=Options)
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # The order of names changes the image, and a set has none.
        object.__setattr__(self, "names", tuple(sorted(self.names)))

    @classmethod
    def of(
        cls,
        source: object,
        to: ImageKind | str | None,
        arch: Arch | str | None,
        names: Sequence[str] | str,
        options: Options,
        compilers: Compilers,
    ) -> Request:
        """Create a request from every argument of ``compile``, with defaults for unspecified ones.

        Without ``to``, the architecture determines the kind: ``sm_…`` a cubin, ``lto_…`` LTO-IR, otherwise PTX. Without
        ``arch``, it is the lowest architecture of the compiler, which is the most portable for PTX.

        Raises:
            OptionError: ``to`` or a name has the wrong kind.
            ArchError: the architecture is malformed or unknown.
        """
        unit = Source.of(source)
        if unit.language == "cuda" and ("host_code" in options or "dialect" in options):
            from cujit.compiler.inputs.host_code import as_for_devices  # start-up: for ordinary files

            unit, options = as_for_devices(unit, options)
        parsed = arch if arch is None or type(arch) is Arch else Arch.parse(arch)
        kind = _kind(to, parsed)
        if parsed is None:
            parsed = Arch(ArchKind.VIRTUAL, compilers.compiler(unit.language).arches[0])
        if parsed.kind is not _ARCH_KIND[kind]:
            parsed = Arch(_ARCH_KIND[kind], parsed.number, parsed.suffix)
        if options.get("dlto") and kind is not ImageKind.LTOIR:
            raise OptionError(
                f"dlto creates LTO-IR, not {kind.value}",
                help=Hint("to='ltoir'", shell="--to ltoir"),
                code="option-conflict",
            )
        made = object.__new__(cls)
        made.__dict__.update(source=unit, kind=kind, arch=parsed, options=options, names=tuple(sorted(_names(names))))
        return made

    def for_arch(self, arch: Arch) -> Request:
        """Return the same request for another architecture, with the kind that belongs to it."""
        is_same = _ARCH_KIND[self.kind] is arch.kind
        return replace(self, kind=self.kind if is_same else _KIND[arch.kind], arch=arch)

    def check(self) -> None:
        """Refuse, before any library is opened, what no compiler could take.

        Raises:
            OptionError: there is no back end for the language, it doesn't accept an option, or an include directory is
                none, which NVRTC would pass over in silence, and then not find a header in.
        """
        if self.source.language not in _LANGUAGES:
            raise OptionError(
                f"cujit can't compile the language {spell(self.source.language)}",
                help=f"supported languages: {', '.join(_LANGUAGES)}",
            )
        self._arguments  # noqa: B018 - it raises
        self.assembler_arguments()
        for directory in self.include if self.source.language == "cuda" else ():
            if not os.path.isdir(directory):
                what = "no directory" if os.path.exists(directory) else "not there"
                raise OptionError(
                    f"include: {directory} is {what}",
                    help=Hint(
                        "to include a single header, use pre_include=[…]",
                        shell="to include a single header, use -O pre_include=HEADER",
                    ),
                )
            allow_quotes(os.path.abspath(directory))

    @property
    def include(self) -> tuple[str, ...]:
        """The include directories in search order: from the source, from the options, and then the substitutes for host
        headers.
        """
        return self._include

    @cached_property
    def _include(self) -> tuple[str, ...]:
        if not (self.source.include or self.options):
            return ()
        paths = self.options.get("include") or ()
        assert isinstance(paths, tuple)
        stand_ins = [HOST_DIRECTORY] if self.options.get("host_headers") else []
        return (*self.source.include, *map(str, paths), *stand_ins)

    def arguments(self) -> list[str]:
        """Return the compiler's arguments, without the toolkit's include directories.

        Raises:
            OptionError: the compiler doesn't support one of the options.

        Example::

            assert "--gpu-architecture=sm_90" in cujit.request(CODE, arch="sm_90").arguments()
        """
        return list(self._arguments)

    @cached_property
    def _arguments(self) -> list[str]:
        """The arguments, which are required for the check, the key, and the compile."""
        if self.source.language == "nvvm":
            return self._nvvm_arguments()
        if self.source.language == "tile":
            return self._tile_arguments()
        arch = self.arch.real if self.kind is ImageKind.CUBIN else self.arch.virtual
        arguments = [f"--gpu-architecture={arch}"]
        arguments += _ARGUMENTS.get(self.kind, ())
        if self.kind is ImageKind.TILEIR:
            arguments += ["--enable-tile"] * (not self.options.get("enable_tile"))
            arguments += ["--std=c++20"] * ("std" not in self.options)  # which NVIDIA's header requires
        for name, value in self.source.define:
            arguments.append(f"--define-macro={name}" if value is None else f"--define-macro={name}={value}")
        arguments += [f"--include-path={directory}" for directory in self.source.include]
        return [*arguments, *_rendered(self.options)]

    def _nvvm_arguments(self) -> list[str]:
        if self.kind is ImageKind.OPTIXIR:
            raise OptionError("LLVM IR compiles to ptx, cubin or ltoir, not to optixir", code="option-rejected")
        arguments = [f"-arch={self.arch.virtual}"]
        if self.kind is ImageKind.LTOIR and not self.options.get("dlto"):
            arguments.append("-gen-lto")
        others = (Tool.NVJITLINK,) if self.kind is ImageKind.CUBIN else ()
        return arguments + self.options.render(Tool.NVVM, others)

    def _tile_arguments(self) -> list[str]:
        """Tile IR is assembled with lines: the cubin then contains its PTX. They change no code (measured, 13.5)."""
        if self.kind not in (ImageKind.PTX, ImageKind.CUBIN):
            raise OptionError(f"Tile IR compiles to ptx or cubin, not to {self.kind.value}", code="option-rejected")
        rendered = self.options.render(Tool.TILEIRAS)
        has_lines = "--lineinfo" in rendered or (self.kind is ImageKind.CUBIN and self.options.get("lineinfo") is False)
        return [f"--gpu-name=sm_{self.arch.number}", *rendered, *(["--lineinfo"] * (not has_lines))]

    def assembler_arguments(self) -> list[str]:
        """Return the arguments for nvJitLink, which assembles the output of libNVVM. The result is empty for CUDA C++.

        Raises:
            OptionError: neither the compiler nor the assembler supports a specified option.

        Example::

            assert cujit.request(CODE, arch="sm_90").assembler_arguments() == []
        """
        if self.source.language != "nvvm" or self.kind is not ImageKind.CUBIN:
            return []
        options = self.options.only(Tool.NVJITLINK, extra=False)
        return [f"-arch={self.arch.real}", *options.render(Tool.NVJITLINK)]

    def parts(self) -> Iterator[Part]:
        """Yield the user's part of the key. It has everything specified except include directories, whose content
        counts.

        Raises:
            OptionError: same as for ``arguments`` and ``assembler_arguments``.
        """
        source = self.source
        name = os.path.basename(source.path) if source.path else source.name
        yield Part.text("name", name)
        if source.path and os.path.basename(source.name) != name:
            yield Part.text("shown as", source.name)
        yield Part.text("result", self.kind.value)
        yield Part.text("arch", str(self.arch))
        for expression in self.names:
            yield Part.text("name expression", expression)
        for argument in self._arguments:
            if not argument.startswith("--include-path="):
                yield Part.text("argument", argument)
        for argument in self.assembler_arguments():
            yield Part.text("assembler argument", argument)
        if not source.modules:
            yield Part.content("source", source.text)
        for header, text in source.headers:
            yield Part.text("header", header)
            yield Part.content("header text", text)
        for expression, lowered in source.kernels:
            yield Part.text("kernel", f"{expression} {lowered}")
        for module in source.modules:
            yield Part.text("module", module.name)
            yield Part.content("module text", module.data)

    def seed(self) -> str:
        """Return the seed for local symbols, such as those in an unnamed namespace.

        The seed depends on all parts of the key except the names, the architecture, and the kind of result. As a
        result, different processes generate the same symbols, and all images of a source use the same names.

        Raises:
            OptionError: same as for ``arguments`` and ``assembler_arguments``.

        Example::

            assert cujit.request(CODE, arch="sm_80").seed() == cujit.request(CODE, arch="compute_90").seed()
        """
        ours = {
            "--dlink-time-opt",
            "--optix-ir",
            f"--gpu-architecture={self.arch.real}",
            f"--gpu-architecture={self.arch.virtual}",
        }
        parts = [part for part in self.parts() if part.label not in _UNSEEDED and part.value not in ours]
        return make_key("seed", parts).digest[:16]

    def __str__(self) -> str:
        lines = [f"{self.source.name} -> {self.kind.value} for {self.arch}"]
        lines += [f"  names: {', '.join(self.names)}"] * bool(self.names)
        lines.append(f"  arguments: {' '.join(self.arguments())}")
        lines += [f"  assembler: {' '.join(self.assembler_arguments())}"] * bool(self.assembler_arguments())
        lines += ["  with libdevice"] * self.source.libdevice
        lines += [f"  headers: {', '.join(name for name, _ in self.source.headers)}"] * bool(self.source.headers)
        return "\n".join(lines)


@functools.lru_cache(KEPT)
def _rendered(options: Options) -> tuple[str, ...]:
    return tuple(options.render(Tool.NVRTC))


def kind_of_target(arch: Arch) -> ImageKind:
    """Return the kind of image that is made for an architecture: a cubin for sm_90, PTX for compute_90, or LTO-IR."""
    return _KIND[arch.kind]


def _kind(to: ImageKind | str | None, arch: Arch | None) -> ImageKind:
    if to is None:
        return _KIND[arch.kind] if arch else ImageKind.PTX
    word = to.value if isinstance(to, ImageKind) else to
    for kind in _ARCH_KIND:
        if isinstance(word, str) and word.lower() == kind.value:
            return kind
    raise OptionError(
        f"cujit compiles to ptx, cubin, ltoir, optixir or tileir, not to {spell(word)}",
        help=Hint("use cujit.build to create a fatbin", shell="use cujit build to create a fatbin")
        if word == ImageKind.FATBIN.value
        else None,
    )


def _names(names: object) -> tuple[str, ...]:
    listed = (names,) if isinstance(names, str) else names
    try:
        texts = tuple(dict.fromkeys(listed))  # type: ignore[call-overload]
    except TypeError:
        raise OptionError(f"names is {spell(names)}, expected a list of str") from None
    for name in texts:
        if not isinstance(name, str) or not name.strip() or any(c in name for c in "\0\n\r") or not is_utf8(name):
            raise OptionError(
                f"{spell(name)} is not a valid name expression",
                help=Hint("names=['axpy<float>', 'ns::scale']", shell="<-n> 'axpy<float>'"),
                code="name-expression",
            )
    return texts
