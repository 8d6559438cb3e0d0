"""Memory: allocations, copies, sets, and what is said of pointers."""

from __future__ import annotations

from emulator.programs import python
from emulator.test_device import ASKS

STARTS = ASKS + "import numpy as np\ncontext = ok(d.cuCtxCreate(None, 0, device))\n"


def test_what_is_copied_and_set_is_there_and_what_lies_beyond_is_refused() -> None:
    python(
        STARTS
        + """
one, two = ok(d.cuMemAlloc(1000)), ok(d.cuMemAlloc(3 << 20))
data = np.arange(250, dtype=np.float32)
ok(d.cuMemcpyHtoD(one, data, 1000))
ok(d.cuMemcpyDtoD(int(two) + 8, one, 1000))
back = np.zeros(250, np.float32)
ok(d.cuMemcpyDtoH(back, int(two) + 8, 1000)); assert (back == data).all()
ok(d.cuMemcpy(one, two, 8)); ok(d.cuMemcpyAsync(int(one) + 8, int(two) + 8, 992, 0))
ok(d.cuMemsetD8(one, 0xAB, 1000)); ok(d.cuMemsetD16(int(one) + 2, 0x1234, 2))
ok(d.cuMemsetD32(int(one) + 8, 0x89ABCDEF, 1))
ok(d.cuMemcpyDtoH(back, one, 1000))
assert back.tobytes()[:14].hex() == "abab34123412ababefcdab89abab"
ok(d.cuMemsetD8(two, 0, 192)); ok(d.cuMemsetD2D16Async(two, 64, 7, 4, 3, 0))
rows = np.zeros(96, np.uint16)
ok(d.cuMemcpyDtoH(rows, two, 192)); assert rows.nonzero()[0].tolist() == [*range(4), *range(32, 36), *range(64, 68)]
bad = [
    d.cuMemcpyDtoH(back, one, 1001), d.cuMemcpyHtoD(int(one) + 1, data, 1000), d.cuMemcpyDtoD(one, two, 1001),
    d.cuMemcpyHtoD(data.ctypes.data, data, 8),
    d.cuMemcpyDtoH(back, data.ctypes.data, 8), d.cuMemcpyHtoD(one, 0, 8), d.cuMemcpyDtoH(0, one, 8),
    d.cuMemsetD8(one, 0, 1001), d.cuMemsetD16(int(one) + 1, 0, 1), d.cuMemsetD32(int(one) + 2, 0, 1),
    d.cuMemsetD32(one, 0, 251),
    d.cuMemsetD2D8(two, 64, 0, 65, 2), d.cuMemsetD32(one, 0, 1 << 62), d.cuMemAlloc(0),
    d.cuMemcpyHtoD(int(one) + 1000, data, 1),
]
assert [refused(answer) for answer in bad] == ["INVALID_VALUE"] * len(bad)
assert refused(d.cuMemcpyDtoHAsync(back, one, 8, 12345)) == "INVALID_HANDLE"
ok(d.cuMemcpyHtoD(one, data, 0)); ok(d.cuMemFree(0)); ok(d.cuMemFreeHost(0))
assert refused(d.cuMemFree(int(one) + 256)) == "INVALID_VALUE"
ok(d.cuMemFree(one)); ok(d.cuMemFree(two))
assert refused(d.cuMemFree(one)) == refused(d.cuMemFree(two)) == "INVALID_VALUE"
assert refused(d.cuMemcpyDtoH(back, one, 8)) == "INVALID_VALUE"
free, total = ok(d.cuMemGetInfo())
assert free == total and refused(d.cuMemAlloc(total + 1)) == "OUT_OF_MEMORY"
"""
    )
