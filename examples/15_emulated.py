"""Use `cujit emulate` to run a cuda.core program without a GPU, and find its bug with `--check`."""

import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = '''
import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

CODE = """
extern "C" __global__ void squares(int* p, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) p[i] = i * i;
}
"""
device = Device()
device.set_current()
stream = device.create_stream()
options = ProgramOptions(arch=f"sm_{device.arch}", lineinfo=True, name="squares.cu")
kernel = Program(CODE, "c++", options).compile("cubin").get_kernel("squares")
numbers = device.allocate(4 * 100, stream=stream)
launch(stream, LaunchConfig(grid=1, block=128), kernel, numbers, np.int32(100))
stream.sync()
print("done on", device.name)
'''

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "squares.py")
    path.write_text(PROGRAM)
    emulate = [sys.executable, "-m", "cujit", "emulate"]
    plain = subprocess.run([*emulate, sys.executable, path], capture_output=True, text=True, check=True)
    checked = subprocess.run(
        [*emulate, "--check", "memory", sys.executable, path], capture_output=True, text=True, check=False
    )

print(plain.stdout.strip())
found = next(line for line in checked.stderr.splitlines() if "squares" in line)
print(found)
assert checked.returncode
assert "thread (100, 0, 0)" in found
