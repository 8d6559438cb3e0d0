"""Replacements for functions of NVRTC and nvJitLink, which return containers of PTX in place of cubins.

For NVRTC, the container holds the PTX and the machine code that was assembled from it. Only the machine code shows
which GPU resources a kernel uses. In a link, the real library compiles LTO-IR to PTX, and cujit's linker links PTX.
Containers from cujit's links also hold the machine code. The real library performs a link to PTX or LTO-IR without
changes. All handles belong to the real library, and this module stores additional data for each. Source: nvJitLink user
guide.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cujit.arch import Arch
from cujit.artifact import magic
from cujit.emulator.device_runtime import NAME as DEVICE_RUNTIME
from cujit.emulator.device_runtime import device_runtime, is_device_runtime
from cujit.emulator.images import contained, ptx_of
from cujit.emulator.machine import for_c
from cujit.emulator.process import say
from cujit.emulator.results import RefusedCall
from cujit.errors import CujitError
from cujit.formats.container import read_container
from cujit.formats.fatbin import find_fatbins, select
from cujit.formats.ptx import syntax
from cujit.formats.ptx.linking import Input, link_modules
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.printer import print_module
from cujit.formats.ptx.resolving import is_of_nvidia
from cujit.formats.ptx.validity import check_module
from cujit.program import compile
from cujit.toolchain.libraries import is_machine_code_requested
from cujit.toolchain.results import InputType, NvrtcResult
from cujit.toolchain.results import NvJitLinkResult as Code
from cujit.values import NamedTuple, replace


class _Piece(NamedTuple):
    """An input of a link, in the form that the real library receives."""

    kind: int
    data: bytes
    name: bytes


class _RealLinkError(Exception):
    """The error code of the real library, with the contents of its log."""

    def __init__(self, code: int, log: bytes) -> None:
        super().__init__(code)
        self.code, self.log = int(code), log


_LTO_NAME = "LTO-IR"
"""What messages call the PTX that was made of it."""

_KEEPER = "cujit_keeper"


def _keeper(names: Sequence[str]) -> str:
    """Return the source of a kernel that uses the addresses of functions, so that a linker keeps the functions."""
    declared = "".join(f"__device__ void {name}(); " for name in names)
    taken = "".join(f"at[{k}] = (void *){name}; " for k, name in enumerate(names))
    return f'extern "C" {{ {declared}__global__ void {_KEEPER}(void **at) {{ {taken}}} }}'


def _without_keeper(module: syntax.PtxModule, names: Sequence[str]) -> Iterator[syntax.ModuleItem]:
    """Yield the items of a module without the keeper kernel, and make the functions that it kept visible."""
    for item in module.items:
        if isinstance(item, syntax.Function) and item.name in names and item.linkage != "extern":
            yield replace(item, linkage="visible")
        elif not isinstance(item, syntax.Function) or item.name not in (_KEEPER, *names):
            yield item


def _checked(name: str, text: str) -> Input:
    module = parse(text, name=name)
    check_module(module, text, name)
    return Input(name, module)


class Link:
    """The data of a link handle: its inputs, and after the link the PTX or the errors."""

    def __init__(self, real: ctypes.CDLL, options: list[bytes]) -> None:
        self.real, self.options = real, options
        self.ptx: bytes | None = None
        self.cubin = b""
        self.log = b""
        self._given: list[_Piece] = []
        self._texts: list[tuple[str, bytes]] = []
        self._lto: list[_Piece] = []
        self._wants_runtime = False

    @property
    def arch(self) -> Arch:
        """The architecture in the options. If several options specify an architecture, the last option counts."""
        return Arch.parse([option[6:].decode() for option in self.options if option.startswith(b"-arch=")][-1])

    def add(self, kind: int, data: bytes, name: bytes) -> int:
        """Add an input, and return the result code."""
        held = read_container(data)
        self._given.append(_Piece(kind, data if held is None else held.cubin, name))
        return self._take(kind, data, name)

    def _take(self, kind: int, data: bytes, name: bytes) -> int:
        if data.startswith((magic.ARCHIVE, magic.FATBIN)) or (kind in (InputType.OBJECT, InputType.LIBRARY)):
            return self._add_parts(data, name)
        if data.startswith(magic.LTOIR):
            self._lto.append(_Piece(InputType.LTOIR, data, name))
            return Code.SUCCESS
        try:
            self._texts.append((name.decode(errors="replace"), ptx_of(data).data))
        except RefusedCall as e:
            return self._refuse(Code.ERROR_INVALID_INPUT, f"{name.decode(errors='replace')}: {e.words}")
        return Code.SUCCESS

    def _add_parts(self, data: bytes, name: bytes) -> int:
        """Add the code for the architecture from an archive, an object, or a fatbin, and return the result code."""
        if is_device_runtime(data):
            self._wants_runtime = True
            return Code.SUCCESS
        for fatbin in find_fatbins(data):
            lto = [entry for entry in fatbin.ltoir_entries if entry.arch is not None and entry.arch.runs_on(self.arch)]
            entry = lto[-1] if lto else select(fatbin, self.arch, emulated=True)
            if entry is None:
                return self._refuse(Code.ERROR_ARCH_MISMATCH, f"{name.decode()} contains no code for {self.arch}")
            answer = self._take(InputType.ANY, entry.payload(), name)
            if answer:
                return answer
        return Code.SUCCESS

    def _refuse(self, code: int, words: str) -> int:
        self.log = words.encode()
        return code

    def complete(self) -> int:
        """Link all that was added into one PTX."""
        try:
            inputs = [_checked(name or "<ptx>", text.decode()) for name, text in self._texts]
            text = self._texts[0][1] if self._texts else b""
            if self._wants_runtime:
                inputs.append(Input(DEVICE_RUNTIME, device_runtime()))
            if self._lto:
                text = self._from_lto(self._lto)
                inputs.append(self._with_functions(inputs, _checked(_LTO_NAME, text.decode())))
            linked = link_modules(inputs, self.arch.virtual)
        except _RealLinkError as e:
            self.log = e.log
            return e.code
        except CujitError as e:
            return self._refuse(Code.ERROR_PTX_COMPILE, str(e))
        self.ptx = text if len(inputs) == 1 else print_module(linked.module).encode()
        if is_machine_code_requested() and all(piece.data for piece in self._given):
            with contextlib.suppress(_RealLinkError):  # of a fatbin of containers, say: then there is PTX alone
                self.cubin = self._by_real(self.options, self._given, "LinkedCubin")
        return Code.SUCCESS

    def _with_functions(self, others: Sequence[Input], lto: Input) -> Input:
        """Return the former LTO-IR with the functions that the others use, which the optimizer otherwise removes."""
        has = {f.name for f in lto.module.functions}
        defined = {f.name for each in others for f in each.module.functions if f.body is not None}
        used = {f.name for each in others for f in each.module.functions if f.linkage == "extern"}
        names = sorted(n for n in used - defined - has if not is_of_nvidia(n) and n.isidentifier())
        if not names:
            return lto
        try:
            keeper = compile(_keeper(names), to="ltoir", arch=self.arch.virtual, rdc=True).data
        except CujitError:  # a name that CUDA C++ has for something else
            return lto
        text = self._from_lto([*self._lto, _Piece(InputType.LTOIR, keeper, b"keeper")]).decode()
        module = parse(text, name=_LTO_NAME)
        return Input(_LTO_NAME, replace(module, items=tuple(_without_keeper(module, names))))

    def _from_lto(self, pieces: Sequence[_Piece]) -> bytes:
        """Compile LTO-IR to PTX with the real library.

        Raises:
            _RealLinkError: the real library failed.
        """
        return self._by_real([*self.options, b"-ptx"], pieces, "LinkedPtx").rstrip(b"\0")

    def _by_real(self, options: list[bytes], pieces: Sequence[_Piece], what: str) -> bytes:
        """Link with the real library, and return the result that ``what`` names.

        Raises:
            _RealLinkError: the real library failed.
        """
        inner = ctypes.c_void_p()
        failed = self.real.nvJitLinkCreate(
            ctypes.byref(inner), len(options), (ctypes.c_char_p * len(options))(*options)
        )
        if failed:
            raise _RealLinkError(failed, b"")
        try:
            for kind, data, name in pieces:
                failed = failed or self.real.nvJitLinkAddData(inner, kind, data, ctypes.c_size_t(len(data)), name)
            failed = failed or self.real.nvJitLinkComplete(inner)
            if failed:
                raise _RealLinkError(failed, self._taken(inner, "ErrorLog").rstrip(b"\0"))
            return self._taken(inner, what)
        finally:
            self.real.nvJitLinkDestroy(ctypes.byref(inner))

    def _taken(self, handle: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self.real[f"nvJitLinkGet{what}Size"](handle, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(max(size.value, 1))
        self.real[f"nvJitLinkGet{what}"](handle, buffer)
        return buffer.raw[: size.value]


# -- functions that C calls ---------------------------------------------------------------------------------------

_P, _U = ctypes.c_uint64, ctypes.c_uint32
_Row = tuple[str, tuple[Any, ...], Callable[..., int]]


def _functions(failed: int, rows: Iterable[_Row]) -> dict[str, Any]:
    """Create functions for C. An exception in one of them is reported, and the function returns the error code
    ``failed``.
    """

    def guarded(name: str, body: Callable[..., int]) -> Callable[..., int]:
        def call(*arguments: int) -> int:
            try:
                return int(body(*arguments))
            except KeyboardInterrupt:
                raise  # for the caller: see ``for_c``
            except BaseException as e:
                say(f"{name} failed because of a bug in cujit: {type(e).__name__}: {e}")
                return failed

        return call

    return {name: for_c(ctypes.c_int32, types, guarded(name, body), failed) for name, types, body in rows}


def _taking(real: ctypes.CDLL, name: str, content: Callable[[int], bytes | None]) -> list[_Row]:
    """Return the two functions that read something: cujit's own if there is any, otherwise the library's."""

    def size_of(handle: int, answer: int) -> int:
        data = content(handle) if answer else None
        if data is None:
            return int(real[f"{name}Size"](_at(handle), _at(answer)))
        ctypes.c_size_t.from_address(answer).value = len(data)
        return 0

    def taken(handle: int, buffer: int) -> int:
        data = content(handle) if buffer else None
        if data is None:
            return int(real[name](_at(handle), _at(buffer)))
        ctypes.memmove(buffer, data, len(data))
        return 0

    return [(f"{name}Size", (_P, _P), size_of), (name, (_P, _P), taken)]


_at = ctypes.c_void_p


def compiler_functions(real: ctypes.CDLL) -> dict[str, Any]:
    """Return cujit's functions of NVRTC, by name."""

    def container(program: int) -> bytes | None:
        size = ctypes.c_size_t()
        if real.nvrtcGetCUBINSize(_at(program), ctypes.byref(size)) or not size.value:
            return None
        cubin = ctypes.create_string_buffer(size.value)
        real.nvrtcGetCUBIN(_at(program), cubin)
        real.nvrtcGetPTXSize(_at(program), ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        real.nvrtcGetPTX(_at(program), text)
        return contained(text.raw.rstrip(b"\0"), cubin=cubin.raw)

    return _functions(NvrtcResult.NVRTC_ERROR_INTERNAL_ERROR, _taking(real, "nvrtcGetCUBIN", container))


class _Links:
    """The machine-code links of a process, by their handles."""

    def __init__(self, real: ctypes.CDLL) -> None:
        self._real = real
        self._links: dict[int, Link] = {}

    def create(self, handle: int, count: int, options: int) -> int:
        result = int(self._real.nvJitLinkCreate(_at(handle), _U(count), _at(options)))
        listed = (_P * count).from_address(options) if count and not result else ()
        texts = [ctypes.string_at(each) for each in listed]
        if texts and b"-ptx" not in texts and not any(option.startswith(b"-arch=lto_") for option in texts):
            made = _P.from_address(handle).value
            self._links[made] = Link(self._real, texts)
        return result

    def destroy(self, handle: int) -> int:
        if handle:
            self._links.pop(_P.from_address(handle).value, None)
        return int(self._real.nvJitLinkDestroy(_at(handle)))

    def add_data(self, handle: int, kind: int, data: int, size: int, name: int) -> int:
        link = self._links.get(handle)
        if link is None or not data or not size:
            return int(self._real.nvJitLinkAddData(_at(handle), kind, _at(data), _P(size), _at(name)))
        return link.add(kind, ctypes.string_at(data, size), ctypes.string_at(name) if name else b"")

    def add_file(self, handle: int, kind: int, name: int) -> int:
        link = self._links.get(handle)
        path = Path(os.fsdecode(ctypes.string_at(name))) if name else None
        if link is None or path is None or not path.is_file():
            return int(self._real.nvJitLinkAddFile(_at(handle), kind, _at(name)))
        return link.add(kind, path.read_bytes(), os.fsencode(path))

    def complete(self, handle: int) -> int:
        link = self._links.get(handle)
        return int(self._real.nvJitLinkComplete(_at(handle))) if link is None else link.complete()

    def image(self, handle: int) -> bytes | None:
        link = self._links.get(handle)
        return None if link is None or link.ptx is None else contained(link.ptx, link.arch, cubin=link.cubin)

    def log(self, handle: int) -> bytes | None:
        link = self._links.get(handle)
        return link.log + b"\0" if link is not None and link.log else None


def linker_functions(real: ctypes.CDLL) -> dict[str, Any]:
    """Return cujit's functions of nvJitLink, by name."""
    links = _Links(real)
    rows: list[_Row] = [
        ("nvJitLinkCreate", (_P, _U, _P), links.create),
        ("nvJitLinkDestroy", (_P,), links.destroy),
        ("nvJitLinkAddData", (_P, _U, _P, _P, _P), links.add_data),
        ("nvJitLinkAddFile", (_P, _U, _P), links.add_file),
        ("nvJitLinkComplete", (_P,), links.complete),
        *_taking(real, "nvJitLinkGetLinkedCubin", links.image),
        *_taking(real, "nvJitLinkGetErrorLog", links.log),
    ]
    return _functions(Code.ERROR_INTERNAL, rows)
