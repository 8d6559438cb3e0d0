"""Source: a translation unit, as a frozen value; of LLVM IR and Tile IR with its modules."""

from __future__ import annotations

import functools
import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cujit.artifact import Artifact, ImageKind, kind_of, magic
from cujit.artifact.reading import BOM, path_of, read_file, shown_path, without_bom
from cujit.compiler.options.values import Options
from cujit.errors import MEMORY, FormatError, OptionError, spell
from cujit.errors.hints import Hint
from cujit.values import NamedTuple, dataclass, later
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import re
else:
    re = later("re")  # start-up: few calls need it

SMALL_CHARS = 1 << 16
KEPT = 256
"""Of texts of at most so many characters, so many are kept with what is worked out of them, for the next time."""

_CUDA_ENDINGS = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".h", ".hpp", ".inl")
_MODULE_ENDINGS = (".ll", ".bc")
"""How the name of a file of LLVM IR ends, where a string could be text as well."""
_TILE_ENDINGS = (".tileir", ".tileirbc")
"""How the name of a file of Tile IR ends; cuda-tile writes the second."""

_INCLUDED = r'(?m)^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]'  # as above
_QUOTED = r'(?m)^([ \t]*#[ \t]*include[ \t]*)"([^"\n]+)"'  # compiled when it is first used: start-up


class NvvmModule(NamedTuple):
    """A module of LLVM IR (text or bitcode) or Tile IR: its name in logs, and its bytes."""

    name: str
    data: bytes

    @property
    def text(self) -> str | None:
        """The text, or None for bitcode or bytecode."""
        if self.data[:4] in magic.BITCODE or self.data.startswith(magic.TILEIR):
            return None
        return self.data.decode("utf-8", "replace")

    def line(self, number: int) -> str:
        """Return one line of the text, counted from 1. ``""`` past the end, and for bitcode."""
        lines = (self.text or "").splitlines()
        return lines[number - 1] if 0 < number <= len(lines) else ""


@dataclass(frozen=True, repr=False)
class Source:
    """Source code to compile: CUDA C++ (text, name, in-memory headers, include directories, and macros), LLVM IR, or
    CUDA Tile IR.

    To create a Source, call ``Source.cuda``, ``Source.nvvm``, or ``Source.tile``. LLVM IR consists of one or more
    ``modules``. If there is a single text module, ``text`` is its text. Tile IR is a single module, and ``kernels``
    contains the known pairs of name expressions and lowered names. ``libdevice`` adds NVIDIA's math functions. ``path``
    is the path of the source file, or "". For a file, cujit also searches for quoted includes in the directory of the
    file. For a string, it searches only ``headers`` and the include directories.

    Example::

        source = cujit.Source.cuda(CODE, name="axpy.cu")
        print(source.name, source.text)
    """

    text: str
    name: str = "source.cu"
    headers: tuple[tuple[str, str], ...] = ()
    include: tuple[str, ...] = ()
    define: tuple[tuple[str, str | None], ...] = ()
    path: str = ""
    language: str = "cuda"
    modules: tuple[NvvmModule, ...] = ()
    libdevice: bool = False
    kernels: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, given: object) -> Source:
        """Return the Source of a Source, CUDA C++ as text or a file, or LLVM IR or Tile IR as a file or an Artifact.

        Raises:
            FormatError: the input is neither CUDA C++, LLVM IR, nor Tile IR.
            OptionError: the value has another type, or names a missing file.
            FileError: a file can't be read.
        """
        if isinstance(given, Source):
            return given
        if isinstance(given, Artifact):
            return cls.tile(given) if given.kind is ImageKind.TILEIR else cls.nvvm(given)
        if type(given) is str and "\n" in given and len(given) <= SMALL_CHARS:
            return _same(given)
        path = _file_of(given, _MODULE_ENDINGS)
        if path is not None and path_of(path).lower().endswith(_MODULE_ENDINGS):
            return cls.nvvm(path)
        tile = _file_of(given, _TILE_ENDINGS)
        if tile is not None and path_of(tile).lower().endswith(_TILE_ENDINGS):
            return cls.tile(tile)
        return cls.cuda(given)  # type: ignore[arg-type]

    @classmethod
    def cuda(
        cls,
        text_or_path: str | os.PathLike[str],
        *,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        include: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
        define: Mapping[str, object] | None = None,
    ) -> Source:
        r"""Create a Source from CUDA C++ in a string or a file.

        Args:
            text_or_path: the path of a file or the source code itself. A ``pathlib.Path``, or a one-line string that
                ends in ``.cu``, ``.cuh``, or ``.cpp``, is a path. Any other string is source code.
            name: name of the source in messages and in the cache.
            headers: in-memory headers by the name that ``#include`` uses. cujit searches these headers before any
                files.
            include: one or more include directories. Relative paths are relative to the current working directory.
            define: macro names with their values. None defines a macro without a value.

        Raises:
            FormatError: the source or a header contains a NUL byte, or a file is not UTF-8.
            OptionError: ``headers``, ``include``, or ``define`` are of the wrong type.
            FileError: the file can't be read.

        Example::

            source = cujit.Source.cuda('#include "n.h"\n__global__ void k(int *p) { *p = N * TWO; }',
                                       headers={"n.h": "#define N 21"}, define={"TWO": 2})
            k = cujit.jit(source, device=device)["k"]
        """
        is_bare = not (name or headers or include or define)
        alone = bare(text_or_path) if is_bare and type(text_or_path) is str else None
        return cls._cuda(text_or_path, name, headers, include, define) if alone is None else alone

    @classmethod
    def _cuda(
        cls,
        text_or_path: str | os.PathLike[str],
        name: str | None,
        headers: Mapping[str, str] | None,
        include: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        define: Mapping[str, object] | None,
    ) -> Source:
        path = _file_of(text_or_path, _CUDA_ENDINGS)
        text = _read_text(path) if path else text_or_path
        if not isinstance(text, str):
            raise OptionError(f"a source must be a str or a path, not {type(text).__name__}")
        shown = name or (shown_path(path_of(path)) if path else "source.cu")
        known = _headers(headers)
        for what, content in ((shown, text), *known.items()):
            _check_text(what, content)
        if isinstance(include, Iterable) and not isinstance(include, str):
            include = list(include)
        options = Options.of({"include": include, "define": define}, {})
        directories, macros = options.get("include") or (), options.get("define") or {}
        assert isinstance(directories, tuple)
        assert isinstance(macros, Mapping)
        return cls(
            without_bom(text),
            shown,
            tuple((header, without_bom(content)) for header, content in known.items()),
            tuple(os.path.abspath(str(d)) for d in directories),
            tuple(macros.items()),
            os.path.abspath(path_of(path)) if path else "",
        )

    @classmethod
    def nvvm(cls, *modules: object, name: str | None = None, libdevice: bool = False) -> Source:
        r"""Create a Source from one or more modules of NVVM IR, NVIDIA's dialect of LLVM IR, that form one program.

        For architectures up to compute_90, libNVVM accepts LLVM 7 IR with typed pointers. For compute_100 and later, it
        also accepts opaque pointers.

        Args:
            modules: one or more modules. Each module is text, bytes of text or bitcode, an Artifact, or a file path. A
                file path is a ``pathlib.Path``, or a one-line string that ends in ``.ll`` or ``.bc``.
            name: name of the source in messages and in the cache.
            libdevice: whether to link libdevice, NVIDIA's math library (``__nv_sinf``).

        Raises:
            FormatError: a module is not LLVM IR.
            OptionError: there are no modules, or a module has a wrong type.
            FileError: a file can't be read.

        Example::

            source = cujit.Source.nvvm("define void @f() {\n  ret void\n}\n", name="f.ll")
        """
        if len(modules) == 1 and isinstance(modules[0], list | tuple):
            modules = tuple(modules[0])
        if name is not None:
            _check_text(name, "")
        if not isinstance(libdevice, bool):
            raise OptionError(f"libdevice is {spell(libdevice)}, expected bool")
        read = _modules(modules, name)
        shown = name or " + ".join(module.name for module in read)
        text = (read[0].text or "") if len(read) == 1 else ""
        return cls(text, shown, language="nvvm", modules=read, libdevice=libdevice)

    @classmethod
    def tile(cls, image: object, *, name: str | None = None) -> Source:
        r"""Create a Source from CUDA Tile IR, as generated by ``compile(…, to="tileir")`` or cuTile Python.

        ``tileiras`` compiles the Tile IR to a cubin, or to PTX, which the CPU device can run. An Artifact also provides
        the names of its kernels.

        Args:
            image: Tile IR as an Artifact, as bytes, or as the path of a file.
            name: name of the source in messages and in the cache.

        Raises:
            FormatError: the image is not Tile IR.
            OptionError: ``name`` is not a valid name.
            FileError: the file can't be read.

        Example::

            image = cujit.compile("#include <cuda_tile.h>\n__tile_global__ void k(int *p) {}", to="tileir")
            source = cujit.Source.tile(image, name="k.tileir")
        """
        from cujit.formats.tileir import read_tileir  # start-up: for Tile IR alone

        if isinstance(image, Artifact):
            artifact = image
        elif isinstance(image, str | os.PathLike):
            artifact = Artifact.open(image)
        else:
            artifact = Artifact.of(image)  # type: ignore[arg-type]
        shown = name if name is not None else artifact.name or "source.tileir"
        _check_text(shown, "")
        if artifact.kind is not ImageKind.TILEIR:
            raise FormatError(
                f"{shown} is {artifact.kind.value}, not Tile IR",
                help=Hint("compile CUDA Tile C++ with to='tileir'", shell="compile CUDA Tile C++ with --to tileir"),
            )
        try:
            read_tileir(artifact.data)
        except FormatError as e:
            raise FormatError(f"{shown}: {e.message}") from None
        kernels = tuple((one, lowered) for one, lowered in artifact.names.items() if one != lowered)
        return cls("", shown, language="tile", modules=(NvvmModule(shown, artifact.data),), kernels=kernels)

    @property
    def program_name(self) -> str:
        """The program name for the compiler: the file's path, or a name in a directory that doesn't exist."""
        return self.path or f"{MEMORY}/{self.name.lstrip('/')}"

    def compiler_headers(self) -> list[tuple[str, str]]:
        """Return the in-memory headers in the form that the compiler accepts.

        A quoted include within one is written as an angled one: NVRTC would look for it in the working
        directory. One that names a neighbour (``"c.h"`` in ``a/b.h`` for ``a/c.h``) is given its whole name.
        """
        known = dict(self.headers)

        def angled(directory: str, match: re.Match[str]) -> str:
            neighbour = posixpath.normpath(posixpath.join(directory, match[2]))
            return f"{match[1]}<{neighbour if neighbour in known else match[2]}>"

        headers = [
            (name, re.sub(_QUOTED, functools.partial(angled, posixpath.dirname(name)), text))
            for name, text in self.headers
        ]
        return [*headers, *self._respelled(known)]

    def _respelled(self, known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield headers for other spellings of known names, such as ``./w.h``. NVRTC compares names
        letter by letter.
        """
        texts = (self.text, *known.values()) if known else ()
        spelled = dict.fromkeys(name for text in texts for name in re.findall(_INCLUDED, text))
        for name in spelled:
            plain = posixpath.normpath(name)
            if name not in known and plain in known:
                yield name, f"#include <{plain}>\n"

    def line(self, number: int) -> str:
        """Return one line of the text, counted from 1. ``""`` past the end."""
        lines = self.text.splitlines()
        return lines[number - 1] if 0 < number <= len(lines) else ""

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        if self.modules:
            what = "Tile IR" if self.language == "tile" else "LLVM IR"
            return f"<Source {self.name}: {sum(len(m.data) for m in self.modules)} bytes of {what}>"
        return f"<Source {self.name}: {len(self.text)} characters of {self.language}>"


def is_bare(source: Source) -> bool:
    """Return whether a source consists of text only: no name, headers, include directories, macros, or file."""
    return len(vars(source)) == 1


def bare(text: str) -> Source | None:
    """Return a source for text that is not a file, without a name and headers, or None if more checks are required."""
    if "\0" in text or not text.isascii() or text.lower().endswith(_CUDA_ENDINGS):
        return None
    source = object.__new__(Source)
    source.__dict__["text"] = text  # the rest is as the class has it
    return source


@functools.lru_cache(KEPT)
def _same(text: str) -> Source:
    return Source.cuda(text)


def _headers(given: Mapping[str, str] | None) -> Mapping[str, str]:
    if given is None or isinstance(given, Mapping):
        return given or {}
    raise OptionError(
        f"headers is {type(given).__name__} {spell(given)}, expected a dict that maps names to texts",
        help="write headers={'scale.h': '…'}; for directories, use include=[…]",
    )


def _read_text(path: str | os.PathLike[str]) -> str:
    data = read_file(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        text = data.decode("utf-8-sig", "surrogateescape")
        if not re.search(_ESCAPED, re.sub(_COMMENT, _without_comment, text, flags=re.DOTALL)):
            return re.sub(_ESCAPED, "?", text)  # nvcc takes them, too
        raise FormatError(
            f"{shown_path(path_of(path))} is not UTF-8", offset=e.start, help="save the file as UTF-8"
        ) from None


_ESCAPED = "[\udc80-\udcff]"
"""Bytes that are not UTF-8, as Python decodes them."""
_COMMENT = (
    r"//(?:[^\n\\]|\\.)*|/\*.*?(?:\*/|\Z)"
    r"|R\"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)\"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)+'"
)


def _without_comment(match: re.Match[str]) -> str:
    return " " if match[0].startswith("/") else match[0]


def _check_text(name: str, text: object) -> None:
    if not isinstance(name, str) or not name or "\0" in name or "\n" in name or "\r" in name:
        raise OptionError(f"{spell(name)} is not a valid name for a source or a header")
    if not isinstance(text, str):
        raise OptionError(f"the header {name} is {type(text).__name__}, expected str")
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise FormatError(f"{name}:{line}: the text contains a NUL byte, and the compiler would stop reading there")
    try:
        (name + text).encode()
    except UnicodeEncodeError as e:
        shown = ascii(name)[1:-1]
        raise FormatError(f"{shown}: the name or the text can't be encoded as UTF-8: {e.reason}") from None


def _modules(given: Sequence[object], name: str | None) -> tuple[NvvmModule, ...]:
    """Return modules. A single module is called ``name``, and several modules without files are numbered.

    Raises:
        FormatError: a module is not LLVM IR.
        OptionError: there are no modules, or one has the wrong type.
        FileError: a file can't be read.
    """
    if not given:
        raise OptionError(
            "expected at least one LLVM IR module", help="write Source.nvvm(text); bytes of bitcode or a path work too"
        )
    alone = len(given) == 1
    modules = [
        _read(item, (name if alone else None) or f"module{'' if alone else number}.ll", alone and name is not None)
        for number, item in enumerate(given, start=1)
    ]
    return tuple(modules)


def _read(given: object, name: str, is_named: bool) -> NvvmModule:
    if isinstance(given, Artifact):
        return _module(given.data, name if is_named or not given.name else given.name)
    path = _file_of(given, _MODULE_ENDINGS)
    if path is not None:
        return _module(read_file(path).removeprefix(BOM), name if is_named else shown_path(path_of(path)))
    if isinstance(given, str):
        return _module(without_bom(given).encode("utf-8", "surrogatepass"), name)
    if isinstance(given, bytes | bytearray | memoryview):
        return _module(bytes(given).removeprefix(BOM), name)
    raise OptionError(f"an LLVM IR module must be str, bytes or a path, not {type(given).__name__}")


def _file_of(given: object, endings: tuple[str, ...]) -> str | os.PathLike[str] | None:
    """Return ``given`` if it is a file: a path, or a one-line string with a source extension. Otherwise return None.

    A line that begins like a comment or a directive is text, even with such an extension. The name of a missing file is
    also returned, so that reading it raises the error.
    """
    if isinstance(given, os.PathLike):
        return given
    if not isinstance(given, str) or "\n" in given or "\r" in given or "\0" in given:
        return None
    if not given.lower().endswith(endings):
        return None
    return given if os.path.exists(given) or not given.lstrip().startswith(("//", "/*", "#", ";")) else None


def _module(data: bytes, name: str) -> NvvmModule:
    if any(c in name for c in "\0\n\r"):
        raise OptionError(f"{spell(name)} is not a valid name for a module")
    try:
        kind = kind_of(data)
    except FormatError as e:
        raise FormatError(f"{name} is not LLVM IR: {e.message}", help=_HELP) from None
    if kind is not ImageKind.NVVMIR:
        raise FormatError(
            f"{name} is {kind.value}, not LLVM IR",
            help=Hint(
                "to link images of device code, call cujit.link", shell="to link images of device code, run cujit link"
            ),
        )
    module = NvvmModule(name, data)
    if module.text is None:
        return module
    module = NvvmModule(name, data.rstrip(b"\0"))
    if b"\0" in module.data:
        line = module.data.count(b"\n", 0, module.data.index(b"\0")) + 1
        raise FormatError(f"{name}:{line}: the text contains a NUL byte, and the compiler would stop reading there")
    return module


_HELP = 'a module begins with its target triple and data layout: target triple = "nvptx64-nvidia-cuda"'
