"""Machine code of objects in memory: what we put there ourselves, and what is left to LLVM."""

from __future__ import annotations

import ctypes
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from cujit.devices import object_loader
from cujit.devices.jit import address_of_name, emit_object, name_address, processor
from cujit.devices.launcher.cpython import is_supported
from cujit.devices.launcher.library import library_or_none
from cujit.devices.object_loader import LoadedObject, PositionFreeCode, lay_out, place, relocate
from cujit.devices.objects import CompileTask, machine_code
from cujit.errors import FormatError
from cujit.formats.elf import read_elf
from cujit.loading import jit
from cujit.machine import cpu
from processes import printed
from raising import raises

pytestmark = pytest.mark.skipif(not processor().triple.startswith("x86_64"), reason="others have LLVM's loader")

TABLE = """
@table = private constant [4 x i32] [i32 7, i32 11, i32 13, i32 17]
declare i32 @cujit_test_named(i32)
declare i32 @abs(i32)
define i32 @other(i32 %x) noinline { %y = add i32 %x, 1 ret i32 %y }
define i32 @k(i32 %x) {
  %at = getelementptr [4 x i32], ptr @table, i32 0, i32 %x
  %y = load i32, ptr %at
  %z = call i32 @cujit_test_named(i32 %y)
  %minus = sub i32 0, %z
  %w = call i32 @abs(i32 %minus)
  %v = call i32 @other(i32 %w)
  ret i32 %v
}
"""
"""A table, a function of its own, one that was published, and one of the C library."""

SWITCH = """
define i32 @k(i32 %x) {
  switch i32 %x, label %no [i32 0, label %a  i32 1, label %b  i32 2, label %c  i32 3, label %d]
a: call void asm sideeffect "nop", ""()  ret i32 40
b: call void asm sideeffect "nop;nop", ""()  ret i32 30
c: call void asm sideeffect "nop;nop;nop", ""()  ret i32 20
d: call void asm sideeffect "nop;nop;nop;nop", ""()  ret i32 10
no: ret i32 0
}
"""
COUNTS = """
@count = internal global i32 5
define i32 @k(i32 %x) { %y = load i32, ptr @count %z = add i32 %x, %y store i32 %z, ptr @count ret i32 %z }
"""
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)


DOUBLED = FUNCTION(lambda x: 2 * x)


@pytest.fixture(autouse=True)
def named() -> None:
    """Publish a function under a name."""
    name_address("cujit_test_named", ctypes.cast(DOUBLED, ctypes.c_void_p).value or 0)


_ROW = struct.Struct("<QIIq")


def _placed(text: str, row: Callable[[int, int, int, int], tuple[int, ...]] | None = None) -> LoadedObject | None:
    """Put an object into memory, after each of its relocations (offset, type, symbol, addend) was changed."""
    data = bytearray(emit_object(text))
    for section in read_elf(bytes(data)).sections if row else ():
        if section.type == 4 and row:
            for at in range(section.offset, section.offset + section.size, _ROW.size):
                _ROW.pack_into(data, at, *row(*_ROW.unpack_from(data, at)))
    elf = read_elf(bytes(data))
    code = lay_out(elf, elf.symbols())
    if code is None:
        return None
    kept = PositionFreeCode.of_bytes(code.to_bytes())
    assert kept == code
    return place(kept, [address_of_name(name) or 0 for name in kept.needs])


def _called(placed: LoadedObject | None, *values: int) -> list[int]:
    assert placed is not None
    function = FUNCTION(placed.get_function_address("k"))
    return [function(value) for value in values]


def test_code_finds_its_tables_and_functions() -> None:
    placed = _placed(TABLE)
    assert _called(placed, 0, 1, 2, 3) == [15, 23, 27, 35]
    assert placed is not None
    assert FUNCTION(placed.get_function_address("other"))(3) == 4


def test_sections_have_their_alignment() -> None:
    placed = _placed("define double @k(double %x) { %y = fadd double %x, 1.1 ret double %y }")  # behind 8 bytes
    assert placed is not None
    assert placed.get_function_address("k") % 16 == 0


def test_code_finds_its_jump_tables() -> None:
    assert _called(_placed(SWITCH), 0, 1, 2, 3, 4) == [40, 30, 20, 10, 0]


def test_relative_relocations_are_applied() -> None:
    text = 'define i32 @k(i32 %x) { ret i32 7 }\nmodule asm ".text; .globl here; here: call k; ret"'
    placed = _placed(text)
    assert placed is not None
    assert FUNCTION(placed.get_function_address("here"))(0) == 7


def test_code_is_not_writable_and_freed_with_its_owner() -> None:
    placed = _placed(TABLE)
    assert placed is not None
    memory = placed.memory
    assert _rights(memory) == "r-xp"
    del placed
    assert _rights(memory) != "r-xp"


def test_detached_code_remains() -> None:
    placed = _placed(TABLE)
    assert placed is not None
    memory = placed.memory
    placed.detach()
    del placed
    assert _rights(memory) == "r-xp"


AT_THE_END = """
import ctypes
from cujit.devices import object_loader
from cujit.devices.jit import emit_object
from cujit.devices.object_loader import lay_out, place
from cujit.formats.elf import read_elf
from cujit.loading import jit
from cujit.machine import cpu

class Last:
    def __init__(self, address):
        self.call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(address)
    def __del__(self, print=print):
        print(self.call(3))

elf = read_elf(emit_object("define i32 @k(i32 %x) { %y = add i32 %x, 1 ret i32 %y }"))
_placed = place(lay_out(elf, elf.symbols()), [])
last = Last(_placed.get_function_address("k"))
"""


def test_code_remains_at_process_exit() -> None:
    assert printed(AT_THE_END).split() == ["4"]


def _rights(address: int) -> str:
    """Tell what may be done in the memory around an address; "" where there is none."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        places, rights, *_ = line.split()
        begin, end = (int(place, 16) for place in places.split("-"))
        if begin <= address < end:
            return rights
    return ""


def test_writable_data_shares_no_page_with_code() -> None:
    placed, other = _placed(COUNTS), _placed(COUNTS)
    assert _called(placed, 1, 2, 3) == [6, 8, 11]
    assert _called(other, 1) == [6]
    assert placed is not None
    assert _rights(placed.memory) == "r-xp"
    assert _rights(placed.memory + placed._size - 1) == "rw-p"
    zero = """@zero = internal global [5000 x i32] zeroinitializer
define i32 @k(i32 %x) { %at = getelementptr i32, ptr @zero, i32 4999 %y = load i32, ptr %at
  %z = add i32 %x, %y store i32 %z, ptr %at ret i32 %z }"""
    assert _called(_placed(zero), 1, 2) == [1, 3]


def test_other_relocations_are_left_to_llvm() -> None:
    assert _placed(TABLE, lambda offset, _, symbol, addend: (offset, 9, symbol, addend)) is None


def test_objects_of_other_processors_are_left_to_llvm() -> None:
    data = bytearray(emit_object(TABLE))
    data[18:20] = (183).to_bytes(2, "little")  # e_machine: AArch64
    elf = read_elf(bytes(data))
    assert lay_out(elf, elf.symbols()) is None


def test_addresses_out_of_range_are_left_to_llvm() -> None:
    assert _placed(TABLE, lambda offset, _, symbol, addend: (offset, 2, symbol, addend + (1 << 40))) is None


@pytest.mark.parametrize("at", [1 << 20, (1 << 64) - 8])
def test_relocations_outside_of_their_object_are_damage(at: int) -> None:
    with raises(FormatError, "format", "relocation"):
        _placed(TABLE, lambda _, kind, symbol, addend: (at, kind, symbol, addend))
    with raises(FormatError, "format", "relocation"):
        _placed(TABLE, lambda offset, kind, _, addend: (offset, kind, 1 << 20, addend))


def test_code_is_placed_directly_unless_debugging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = CompileTask("test", "k", (), lambda: TABLE, keep=False)
    code = machine_code(work, "k")
    assert isinstance(code.engine, LoadedObject)
    begin, size = code.code
    assert begin <= code.other("other") < begin + size
    assert begin <= code.address < begin + size
    written = machine_code(CompileTask("test", "k", (), lambda: COUNTS, keep=False), "k")
    assert [FUNCTION(written.address)(n) for n in (1, 2)] == [6, 8]
    monkeypatch.setenv("CUJIT_PERF", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert not isinstance(machine_code(work, "k").engine, LoadedObject)


def test_native_and_python_relocations_are_equal() -> None:
    native = library_or_none() if is_supported() else None
    if native is None:
        pytest.skip("this interpreter takes no native launches")
    random_ = random.Random(7)
    values = [random_.getrandbits(64) for _ in range(5)]
    places = random_.sample(range(0, 4000, 9), 300)
    rows = b"".join(
        struct.pack("<QQq", at, random_.randrange(5), random_.randrange(-(1 << 40), 1 << 40)) for at in places
    )
    written = []
    for write in (relocate, native.relocate.call):
        memory = ctypes.create_string_buffer(4096)
        write(ctypes.addressof(memory), rows, struct.pack("<5Q", *values))
        written.append(memory.raw)
    assert written[0] == written[1]
    assert len(set(written[0])) > 200


def test_code_of_a_kernel_is_placed_by_native_code() -> None:
    cpu()  # whose first kernel brings the native code
    kernel = jit('extern "C" __global__ void k(float* a) { *a = sinf(*a); }', device="cpu")["k"]
    kernel.compile(1)
    is_native = is_supported() and library_or_none() is not None
    assert (object_loader._native is not relocate) == is_native
