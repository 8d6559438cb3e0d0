"""From what a user said to a Request, and from a Request to the back end for its language."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import MappingProxyType

from cujit.arch import Arch, ArchKind
from cujit.artifact import Artifact, Kind
from cujit.artifact.reading import path_of
from cujit.compiler.inputs.modules import ENDINGS, file_of
from cujit.compiler.inputs.source import Source
from cujit.compiler.options.table import is_utf8
from cujit.compiler.options.values import Options
from cujit.compiler.request import Request
from cujit.errors import OptionError, spell
from cujit.toolchain.toolset import Compilers, Toolchain

__all__ = ["as_source", "check_request", "compile_request", "make_request"]

_LANGUAGES = ("cuda", "nvvm")
_ARCH_KIND = MappingProxyType({Kind.PTX: ArchKind.VIRTUAL, Kind.CUBIN: ArchKind.REAL, Kind.LTOIR: ArchKind.LTO})
_KIND = MappingProxyType({arch_kind: kind for kind, arch_kind in _ARCH_KIND.items()})


def check_request(request: Request) -> None:
    """Refuse, before any library is opened, what no compiler could take.

    Raises:
        OptionError: there is no back end for the language, it does not take an option, or an include directory is none.
    """
    if request.source.language not in _LANGUAGES:
        raise OptionError(
            f"no compiler for the language {spell(request.source.language)}",
            help=f"there is one for {', '.join(_LANGUAGES)}",
        )
    request.arguments()
    request.assembler_arguments()
    if request.source.language == "cuda":
        _check_directories(request)


def _check_directories(request: Request) -> None:
    """Refuse what NVRTC would pass over in silence, and then not find a header in.

    Raises:
        OptionError: an include directory is none.
    """
    said = request.options.get("include") or ()
    assert isinstance(said, tuple)
    for directory in (*request.source.include, *map(str, said)):
        if not os.path.isdir(directory):
            what = "no directory" if os.path.exists(directory) else "not there"
            raise OptionError(f"include: {directory} is {what}", help="a header itself is given by pre_include=[…]")


def compile_request(request: Request, toolchain: Toolchain) -> Artifact:
    """Compile with the back end for the source's language.

    Raises:
        OptionError: as of ``check_request``.
        CujitError: whatever the back end says; see ``compile_cuda`` and ``compile_nvvm``.
    """
    check_request(request)
    if request.source.language == "nvvm":
        from cujit.compiler.backends.nvvm import compile_nvvm

        return compile_nvvm(request, toolchain)
    from cujit.compiler.backends.nvrtc import compile_cuda

    return compile_cuda(request, toolchain)


def make_request(
    source: object,
    to: Kind | str | None,
    arch: Arch | str | None,
    names: Sequence[str] | str,
    options: Options,
    compilers: Compilers,
) -> Request:
    """Bring every argument of ``compile`` into its one form and fill in what was not said.

    Without ``to``, the architecture tells: ``sm_…`` makes a cubin, ``lto_…`` LTO-IR, anything else PTX.
    Without ``arch``, it is the lowest that the compiler has, which is the most portable for PTX.

    Raises:
        OptionError: ``to`` or a name is of the wrong kind.
        ArchError: the architecture is malformed or unknown.
    """
    unit = as_source(source)
    parsed = None if arch is None else Arch.parse(arch)
    kind = _kind(to, parsed)
    if parsed is None:
        parsed = Arch(ArchKind.VIRTUAL, compilers.compiler(unit.language).arches[0])
    parsed = Arch(_ARCH_KIND[kind], parsed.number, parsed.suffix)
    if options.get("dlto") and kind is not Kind.LTOIR:
        raise OptionError(f"dlto makes LTO-IR, not {kind.value}", help="to='ltoir'")
    return Request(unit, kind, parsed, options, _names(names))


def _kind(to: Kind | str | None, arch: Arch | None) -> Kind:
    if to is None:
        return _KIND[arch.kind] if arch else Kind.PTX
    word = to.value if isinstance(to, Kind) else to
    for kind in _ARCH_KIND:
        if isinstance(word, str) and word.lower() == kind.value:
            return kind
    raise OptionError(
        f"a compile makes ptx, cubin or ltoir, not {spell(word)}",
        help="cujit.build makes fatbins" if word == Kind.FATBIN.value else None,
    )


def as_source(given: object) -> Source:
    """Take a Source, CUDA C++ as text or file, or LLVM IR as a file or an Artifact.

    Raises:
        FormatError: it is neither CUDA C++ nor LLVM IR.
        OptionError: it is none of these, or names a file that is not there.
        FileError: a file cannot be read.
    """
    if isinstance(given, Source):
        return given
    if isinstance(given, Artifact):
        return Source.nvvm(given)
    path = file_of(given, ENDINGS)
    if path is not None and path_of(path).lower().endswith(ENDINGS):
        return Source.nvvm(path)
    return Source.cuda(given)  # type: ignore[arg-type]


def _names(names: object) -> tuple[str, ...]:
    listed = (names,) if isinstance(names, str) else names
    try:
        texts = tuple(dict.fromkeys(listed))  # type: ignore[call-overload]
    except TypeError:
        raise OptionError(f"names is {spell(names)}; it takes a list of str") from None
    for name in texts:
        if not isinstance(name, str) or not name.strip() or any(c in name for c in "\0\n\r") or not is_utf8(name):
            raise OptionError(f"{spell(name)} is no name expression", help="names=['axpy<float>', 'ns::scale']")
    return texts
