"""Machine code as object files: made once for a kind of processor, kept in the process's cache, loaded by any process.

The key of an object has all that decides what it holds: what the caller says it is made of, the processor, LLVM, and
the code of cujit that writes and compiles it. Addresses of this process are in no object: it calls by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cujit.artifact import Artifact, Kind
from cujit.cache.key import Part, make_key
from cujit.cache.process import default_cache
from cujit.devices.jit import NativeFunction, address_of_name, emit_object, load_object, processor
from cujit.devices.perf import lines_asked
from cujit.devices.placing import place
from cujit.devices.sources import code_identity, is_as_imported
from cujit.errors import CujitError, FormatError
from cujit.formats.elf import Elf, ElfSymbol, read_elf
from cujit.values import NamedTuple, replace

_SCHEMA = "1"
"""Another number where objects are used in another way, but made as before."""

_REPORT = "report this, with the PTX"
_CHANGED = "cujit's own code was changed after it was imported"


def _as_ours(symbol: str) -> str:
    return symbol if symbol.startswith("cujit_") else f"cujit_{symbol}"


class Work(NamedTuple):
    """One object to make: ``kind`` is the kind of work (``Key.kind``), ``name`` what people call it.

    ``parts`` are the rest of what it is made of. ``write`` gives its LLVM IR, as text or as bitcode; ``level``,
    ``passes`` and ``kernel`` are as of ``jit.optimise``.
    """

    kind: str
    name: str
    parts: tuple[Part, ...]
    write: Callable[[], str | bytes]
    level: int = 2
    passes: bool = True
    kernel: bool = False
    keep: bool = True
    """Whether the cache is to have it."""
    called: Callable[[str], str] = _as_ours
    """What profilers call a function of it."""


def object_of(work: Work) -> bytes:
    """Return the object file that ``work`` makes, from the cache or made now.

    Raises:
        CujitError: LLVM refuses the text, which is a fault of cujit.
        Whatever ``write`` raises.
    """

    def make() -> Artifact:
        data = emit_object(work.write(), work.level, passes=work.passes, kernel=work.kernel, unwinds=seen)
        return Artifact(Kind.OBJECT, data, name=work.name, tool=host.llvm)

    host, seen = processor(), bool(lines_asked())
    parts = (
        Part.text("LLVM", host.llvm),
        Part.text("processor", f"{host.triple} {host.name}"),
        Part.content("features", host.features),
        Part.text("name", work.name),
        *work.parts,
        *((Part.text("unwinds", "yes"),) if seen else ()),
    )
    return (keep(work.kind, parts, make) if work.keep else make()).data


def machine_code(work: Work, symbol: str, require: Callable[[str], object] | None = None) -> NativeFunction:
    """Load the object that ``work`` makes, out of the cache or made now, and find one of its functions.

    ``require`` is called with each symbol that the object needs, to make sure that it is there if it is one of ours.

    Raises:
        CujitError: LLVM refuses the text, or the object calls what there is not: faults of cujit.
        OptionError, FileError: ``CUJIT_PERF`` asks for what there is not, or cannot be written.
        Whatever ``write`` and ``require`` raise.
    """
    seen = bool(lines_asked())
    object_ = _read(object_of(work))
    missing = _missing(object_, symbol, require)
    if missing:
        # Kept by a machine of another C library, if it was kept at all.
        object_ = _read(object_of(work._replace(keep=False)))
        missing = _missing(object_, symbol, require)
    if missing:
        raise CujitError(
            f"native code calls {', '.join(missing)}: there is no such function", help=_REPORT, code="internal"
        )
    placed = None if seen else place(*object_, address_of_name)
    if placed is None:
        code = load_object(object_.elf.data, symbol)
    else:
        code = NativeFunction(placed.get_function_address(symbol), placed)
    own = next(each for each in object_.symbols if each.name == symbol)
    code = replace(code, code=(code.address - own.value, _size_of(object_.elf, own.section)))
    if seen:
        from cujit.devices.perf_files import tell  # which few ask for

        tell(object_.elf.data, symbol, code, work.called)
    return code


def keep(kind: str, parts: Iterable[Part], make: Callable[[], Artifact]) -> Artifact:
    """Return what ``make()`` makes, from the process's cache if it is there.

    ``parts`` are what it is made of; the code of cujit's devices is added to them.

    Raises:
        OptionError: a variable of the environment gives the cache a value that it cannot have.
        Whatever ``make`` raises.
    """
    identity = code_identity()
    if not identity:
        return make()
    key = make_key(kind, [Part.text("schema", _SCHEMA), Part.text("cujit", identity), *parts])
    return default_cache().get_or_make(key, make, why_not_keep=_why_not_keep)[0]


def _why_not_keep() -> str:
    return "" if is_as_imported() else _CHANGED


class _Object(NamedTuple):
    """An object file that was read, and all of its symbols."""

    elf: Elf
    symbols: tuple[ElfSymbol, ...]


def _missing(object_: _Object, symbol: str, require: Callable[[str], object] | None) -> list[str]:
    """List the functions that an object calls and this process does not have, and ``symbol`` if it has not that."""
    needed = [each.name for each in object_.symbols if each.name and not each.section]
    if require is not None:
        for name in needed:
            require(name)
    has = any(each.name == symbol and each.section for each in object_.symbols)
    return [name for name in needed if address_of_name(name) is None] + ([] if has else [symbol])


def _read(data: bytes) -> _Object:
    """Read an object."""
    try:
        elf = read_elf(data)
        return _Object(elf, elf.symbols())
    except FormatError as e:
        raise CujitError(f"LLVM gave an object that is no ELF file: {e.message}", help=_REPORT, code="internal") from e


def _size_of(elf: Elf, section: int) -> int:
    """Count the bytes of a section; 0 where there is none of that number, as of a symbol that is a number itself."""
    return elf.sections[section].size if section < len(elf.sections) else 0
