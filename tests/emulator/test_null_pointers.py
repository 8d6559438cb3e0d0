"""An entry point that is given null where it reads or writes answers, and ends no process."""

from __future__ import annotations

from emulator.programs import python

CODE = """
import ctypes
from cujit.emulator.entries import ENTRIES
from cujit.emulator.results import Result

lib, zero = ctypes.CDLL("libcuda.so.1"), {"U": ctypes.c_uint32, "I": ctypes.c_int32, "F": ctypes.c_float}
assert lib.cuInit(0) == 0

def made(name, *more):
    handle = ctypes.c_uint64()
    assert getattr(lib, name)(ctypes.byref(handle), *more) == 0
    return handle.value

answers = {}
memory = "cuMemAlloc_v2", ctypes.c_size_t(64)
for of in (None, ("cuGraphCreate", 0), ("cuStreamCreate", 1), ("cuEventCreate", 0), memory):
    for name, entry in sorted(ENTRIES.items()):
        context = made("cuDevicePrimaryCtxRetain", 0)
        assert lib.cuCtxSetCurrent(ctypes.c_uint64(context)) == 0
        given = [zero.get(kind, ctypes.c_uint64)(0) for kind in entry.types]
        if of is not None and entry.types[:1] in ("P", "S"):
            given[0] = ctypes.c_uint64(made(*of))
        print(name, of, flush=True)
        answers.setdefault(getattr(lib, name)(*given), []).append(name)
assert len(ENTRIES) > 200, len(ENTRIES)
assert Result.UNKNOWN not in answers, answers[Result.UNKNOWN]
assert len(answers[Result.INVALID_VALUE]) > 500
"""


def test_null_pointer_arguments_never_end_the_process() -> None:
    python(CODE)
