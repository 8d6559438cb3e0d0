"""Machine code as object files, compiled once for a processor type, stored in the cache, and loaded by any process.

The key of an object covers everything that determines its contents. These inputs are the caller's parts, the processor,
LLVM, and the code of cujit that generates it. Objects contain no addresses of this process, because they call functions
by name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from cujit.artifact import Artifact, ImageKind
from cujit.cache.key import Key, Part, key_of_text, text_of
from cujit.cache.process import default_cache
from cujit.devices.jit import NativeFunction, Processor, address_of_name, emit_object, load_object, processor
from cujit.devices.object_loader import PositionFreeCode, is_position_free, lay_out, place
from cujit.devices.perf import wanted_lines
from cujit.devices.sources import code_identity, is_as_imported
from cujit.errors import CujitError, FormatError
from cujit.formats.elf import Elf, ElfSymbol, read_elf
from cujit.values import NamedTuple, replace

_SCHEMA = "1"
"""Another number where objects are used in another way, but made as before."""

_REPORT = "report this bug with the PTX"
_CHANGED = "cujit's own code changed after it was imported"


def _as_ours(symbol: str) -> str:
    return symbol if symbol.startswith("cujit_") else f"cujit_{symbol}"


class CompileTask(NamedTuple):
    """A task to compile one object. ``kind`` is the kind of work (``Key.kind``), and ``name`` is for messages.

    ``parts`` are the other inputs of the object. ``write`` returns the LLVM IR as text or bitcode. ``level``,
    ``passes``, and ``kernel`` are the parameters of ``jit.optimise``.
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
    companion: Callable[[Callable[[], bytes]], bytes | None] | None = None
    """Returns position-free code that the cache keeps with other data, or None. It is called with what makes the code.
    """


def object_of(work: CompileTask) -> bytes:
    """Return the object file of a compile task, from the cache or newly compiled.

    Raises:
        CujitError: LLVM rejects the IR, which is a bug in cujit.
        Whatever ``write`` raises.
    """
    return _made(work, seen=bool(wanted_lines()), lays_out=False)


def _made(work: CompileTask, *, seen: bool, lays_out: bool) -> bytes:
    """Return the object file that ``work`` makes, or its position-free code if it ``lays_out`` and has such code."""
    host = processor()

    def make() -> Artifact:
        data = emit_object(work.write(), work.level, passes=work.passes, kernel=work.kernel, unwinds=seen)
        if lays_out and (code := lay_out(*_read(data))) is not None:
            data = code.to_bytes()
        return Artifact(ImageKind.OBJECT, data, name=work.name, tool=host.llvm)

    if not work.keep:
        return make().data
    if lays_out and work.companion is not None and (found := work.companion(lambda: make().data)) is not None:
        return found
    parts = (Part.text("name", work.name), Part.text("form", f"{lays_out} {seen}"), *work.parts)
    return keep(work.kind, parts, make, is_native=True).data


def machine_code(work: CompileTask, symbol: str, require: Callable[[str], object] | None = None) -> NativeFunction:
    """Load the object of a compile task, from the cache or newly compiled, and return its function ``symbol``.

    ``require`` is called with each symbol that the object needs. It ensures that cujit's own symbols are available.

    Raises:
        CujitError: LLVM rejects the IR, or the object calls a missing function. Both are bugs in cujit.
        OptionError, FileError: ``CUJIT_PERF`` has an invalid value, or its files can't be written.
        Whatever ``write`` and ``require`` raise.
    """
    seen = bool(wanted_lines())
    data = _made(work, seen=seen, lays_out=work.keep and not seen)
    code, _ = _loaded(data, symbol, require, seen=seen)
    if code is None:
        # Kept by a machine of another C library, if it was kept at all.
        data = _made(work._replace(keep=False), seen=seen, lays_out=False)
        code, missing = _loaded(data, symbol, require, seen=seen)
        if code is None:
            raise CujitError(
                f"native code calls {', '.join(missing)}, which can't be found", help=_REPORT, code="internal"
            )
    if seen:
        from cujit.devices.perf_files import tell  # which few ask for

        tell(data, symbol, code, work.called)
    return code


def keep(kind: str, parts: Iterable[Part], make: Callable[[], Artifact], *, is_native: bool = False) -> Artifact:
    """Return the cached result of ``make()``, or call ``make()`` and cache its result.

    ``parts`` are the inputs of the result. The key also includes the code of cujit's devices. If ``is_native``, the
    result contains machine code, and the key also includes the processor and LLVM.

    Raises:
        OptionError: an environment variable contains an invalid value for the cache.
        Whatever ``make`` raises.
    """
    key = _key(kind, parts, is_native=is_native)
    return make() if key is None else default_cache().get_or_make(key, make, why_not_keep=_why_not_keep)[0]


def kept(kind: str, parts: Iterable[Part], *, is_native: bool = False) -> Artifact | None:
    """Return the result that ``keep`` cached, or None if the cache doesn't contain it.

    Raises:
        OptionError: an environment variable contains an invalid value for the cache.
    """
    key = _key(kind, parts, is_native=is_native)
    if key is None:
        return None
    cache = default_cache()
    found = cache.hit(key.digest, key.kind) or cache.find(key, is_read=True)
    return found and found[0]


def _key(kind: str, parts: Iterable[Part], *, is_native: bool) -> Key | None:
    """Return the key under which ``keep`` caches a result, or None if cujit's files differ from the running code."""
    identity = code_identity()
    if not identity:
        return None
    own = tuple(parts)
    before, text = _before(identity, processor() if is_native else None)
    return key_of_text(kind, len(before) + len(own), text + text_of(own), lambda: (*before, *own))


@functools.cache
def _before(identity: str, host: Processor | None) -> tuple[tuple[Part, ...], str]:
    """Return the key parts with which all keys of this process begin, and their text."""
    parts = [Part.text("schema", _SCHEMA), Part.text("cujit", identity)]
    if host is not None:
        machine = Part.text("processor", f"{host.triple} {host.name}")
        parts += [Part.text("LLVM", host.llvm), machine, Part.content("features", host.features)]
    return tuple(parts), text_of(parts)


def _why_not_keep() -> str:
    return "" if is_as_imported() else _CHANGED


def _loaded(
    data: bytes, symbol: str, require: Callable[[str], object] | None, *, seen: bool
) -> tuple[NativeFunction | None, list[str]]:
    """Load an object or position-free code. Without a function, return the names that it lacks or calls in vain."""
    object_ = None if is_position_free(data) else _read(data)
    if object_ is None:
        code: PositionFreeCode | None = PositionFreeCode.of_bytes(data)
        assert code is not None
        needs, has = code.needs, symbol in code.functions
    else:
        code = None if seen else lay_out(*object_)
        needs = tuple(each.name for each in object_.symbols if each.name and not each.section)
        has = any(each.name == symbol and each.section for each in object_.symbols)
    if require is not None:
        for name in needs:
            require(name)
    found = [address_of_name(name) for name in needs]
    addresses = [address for address in found if address is not None]
    missing = [name for name, address in zip(needs, found, strict=True) if address is None] + ([] if has else [symbol])
    if code is not None and not missing:
        placed = place(code, addresses)
        at, begin, size = code.functions[symbol]
        return NativeFunction(placed.memory + at, placed, (placed.memory + begin, size)), []
    if missing or object_ is None:
        return None, missing
    native = load_object(data, symbol)
    own = next(each for each in object_.symbols if each.name == symbol)
    return replace(native, code=(native.address - own.value, _size_of(object_.elf, own.section))), []


class _CachedObject(NamedTuple):
    """An object file that was read, and all of its symbols."""

    elf: Elf
    symbols: tuple[ElfSymbol, ...]


def _read(data: bytes) -> _CachedObject:
    """Read an object."""
    try:
        elf = read_elf(data)
        return _CachedObject(elf, elf.symbols())
    except FormatError as e:
        raise CujitError(
            f"LLVM generated an object that is not an ELF file: {e.message}", help=_REPORT, code="internal"
        ) from e


def _size_of(elf: Elf, section: int) -> int:
    """Return the size of a section in bytes, or 0 if no section has this index, as for an absolute symbol."""
    return elf.sections[section].size if section < len(elf.sections) else 0
