"""Warm launches by ``cuda.core`` under the emulator, against the same calls where the driver's function is empty.

The floor is ``cuda.core``'s own time: in turns with the launches, the slot of ``cuLaunchKernelEx`` leads to a function
in machine code that answers 0. Both times are of the processor, in one process; the kernel has one block of one warp.
``python benchmarks/emulator_launch.py`` prints medians in microseconds, and what a launch takes beyond the floor.
"""

from __future__ import annotations

from collections.abc import Iterator

from measure import in_emulator

_SCRIPT = r"""
import ctypes, statistics, time
import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
from cujit.devices.jit import compile_ir
from cujit.emulator.functions import exports
from cujit.emulator.structures import BootTable

device = Device()
device.set_current()
stream = device.create_stream()
code = 'extern "C" __global__ void add(float *x, float a, int n) { if (threadIdx.x < n) x[threadIdx.x] += a; }'
kernel = Program(code, "c++", ProgramOptions(arch=f"sm_{device.arch}")).compile("ptx").get_kernel("add")
x, config = np.zeros(32, np.float32), LaunchConfig(grid=1, block=32)
arguments = x.ctypes.data, np.float32(1), np.int32(32)

table = BootTable.in_dll(ctypes.CDLL("libcuda.so.1"), "cujit_table")
slots = (ctypes.c_uint64 * table.count).from_address(ctypes.addressof(table) + ctypes.sizeof(BootTable))
index = [k for k, name in enumerate(exports()) if name.startswith("cuLaunchKernelEx")]
empty = compile_ir("define i32 @empty() {\n  ret i32 0\n}\n", "empty")

def timed(count=2000):
    begin = time.process_time()
    for _ in range(count):
        launch(stream, config, kernel, *arguments)
    return (time.process_time() - begin) / count * 1e6

timed()
before = [slots[k] for k in index]
rows = []
for _ in range(31):
    launched = timed()
    for k in index:
        slots[k] = empty.address
    floor = timed()
    for k, address in zip(index, before):
        slots[k] = address
    rows.append((launched, floor))
assert x[0] == 2000 * 32, x[0]
launched, floor = (statistics.median(column) for column in zip(*rows))
print(f"{launched:.2f} {floor:.2f} {statistics.median(a - b for a, b in rows):.2f}")
"""


def run() -> Iterator[str]:
    """Print a line: a launch, the floor, and the difference."""
    (line,) = in_emulator(_SCRIPT)
    launched, floor, beyond = line.split()
    yield f"a warm launch by cuda.core: {launched} us, of which cuda.core {floor} us; beyond it {beyond} us"


if __name__ == "__main__":
    for line in run():
        print(line)
