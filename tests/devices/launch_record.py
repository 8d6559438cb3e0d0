"""Record which launches a GPU takes: ``python tests/devices/launch_record.py tests/goldens/launches.json``.

Each kernel is assembled by the driver. Every launch is made as a program makes it that asks for what it needs: more
dynamic shared memory than 48 KiB, clusters of more than 8 blocks.
"""

from __future__ import annotations

import ctypes
import datetime
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver as cu

sys.path.insert(0, str(Path(__file__).parents[1]))

from devices.launch_table import ROWS, Row, ptx_of

_WORDS = 11


def _call(name: str, *arguments: Any) -> Any:
    """Call the driver; its result comes first."""
    status, *values = getattr(cu, name)(*arguments)
    if status != cu.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{name}: {status.name}")
    return values[0] if values else None


class Recorder:
    """The GPU, the kernels assembled so far, and what came of each."""

    def __init__(self) -> None:
        _call("cuInit", 0)
        self.device = _call("cuDeviceGet", 0)
        self.context = _call("cuDevicePrimaryCtxRetain", self.device)
        _call("cuCtxSetCurrent", self.context)
        self.out = _call("cuMemAlloc", 4 * _WORDS)
        self.functions: dict[str, Any] = {}
        self.refused: dict[str, str] = {}

    def origin(self) -> str:
        """Say which GPU and driver this is, and the day."""
        name = _call("cuDeviceGetName", 100, self.device).split(b"\0")[0].decode()
        version = _call("cuDriverGetVersion")
        return f"{name}; driver of CUDA {version // 1000}.{version % 1000 // 10}; {datetime.date.today().isoformat()}"

    def function(self, row: Row) -> Any | None:
        """Assemble a kernel once."""
        name = row.entry.name
        if name not in self.functions:
            status, module = cu.cuModuleLoadData(ptx_of(row.entry).encode() + b"\0")
            self.functions[name] = None
            if status == cu.CUresult.CUDA_SUCCESS:
                self.functions[name] = _call("cuModuleGetFunction", module, b"k")
            else:
                self.refused[name] = status.name
        return self.functions[name]

    def launch(self, row: Row) -> list[int] | None:
        """Launch once; give the sizes that the kernel saw, or None where the driver refused."""
        function, attributes = self.function(row), cu.CUfunction_attribute
        if row.dynamic:
            which = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            cu.cuFuncSetAttribute(function, which, min(row.dynamic, (1 << 31) - 1))
        cu.cuFuncSetAttribute(function, attributes.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
        _call("cuMemsetD8", self.out, 0xFF, 4 * _WORDS)
        config = cu.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = (*row.grid, 1, 1)[:3]
        config.blockDimX, config.blockDimY, config.blockDimZ = (*row.block, 1, 1)[:3]
        config.sharedMemBytes = row.dynamic
        if row.cluster is not None:
            attribute = cu.CUlaunchAttribute()
            attribute.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            cluster = attribute.value.clusterDim
            cluster.x, cluster.y, cluster.z = (*row.cluster, 1, 1)[:3]
            config.attrs, config.numAttrs = [attribute], 1
        (status,) = cu.cuLaunchKernelEx(config, function, ((int(self.out),), (ctypes.c_uint64,)), 0)
        if status != cu.CUresult.CUDA_SUCCESS:
            return None
        _call("cuCtxSynchronize")
        seen = np.zeros(_WORDS, np.uint32)
        _call("cuMemcpyDtoH", seen.ctypes.data, self.out, seen.nbytes)
        return [int(n) for n in seen]


def main(path: Path) -> int:
    """Write which rows the GPU took, by kernel, and the sizes that a kernel saw where they are not those of the row."""
    recorder = Recorder()
    taken: dict[str, list[str]] = {}
    unlike: dict[str, dict[str, list[int]]] = {}
    for row in ROWS:
        name = row.entry.name
        if recorder.function(row) is None:
            continue
        seen = recorder.launch(row)
        kept = taken.setdefault(name, [])
        if seen is not None:
            kept.append(row.key)
            if seen[:9] != row.sizes:
                unlike.setdefault(name, {})[row.key] = seen[:9]
    written = {
        "origin": recorder.origin(), "not assembled": sorted(recorder.refused), "taken": taken, "unlike": unlike,
    }  # fmt: skip
    path.write_text(json.dumps(written, indent=0))
    print(f"{sum(map(len, taken.values()))} of {len(ROWS)} taken; not assembled: {recorder.refused}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
