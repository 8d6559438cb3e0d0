"""Makes ``tests/goldens/tileir``: Tile IR of cuTile in two versions of the bytecode, and of CUDA Tile C++.

Run a copy beside ``tests/clients/cutile_kernels.py`` in a folder of its own, whose path the bytecode names, with a
Python that has ``cuda-tile`` and cujit: ``python tile_ir.py DIRECTORY``. No GPU is needed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cuda.tile.compilation import CallingConvention, KernelSignature, export_kernel
from cutile_kernels import KERNELS

import cujit
from cujit.program import toolchain

SCALE = """
#include <cuda_tile.h>
namespace ct = cuda::tiles;
template <typename T> __tile_global__ void scale(T* a, T* b, int n) {
    ct::tensor_span all{a, ct::extents<int, ct::dynamic_extent>{n}}, out{b, ct::extents<int, ct::dynamic_extent>{n}};
    ct::partition_view tiles{all, ct::shape<256>{}}, made{out, ct::shape<256>{}};
    made.store_masked(tiles.load_masked(ct::bid().x) * T(2), ct::bid().x);
}
__tile_global__ void twice(float* a, float* b) {
    ct::tensor_span all{a, ct::extents<int, 1024>{}}, out{b, ct::extents<int, 1024>{}};
    ct::partition_view tiles{all, ct::shape<256>{}}, made{out, ct::shape<256>{}};
    made.store(tiles.load(ct::bid().x) * 2.0f, ct::bid().x);
}
"""

if __name__ == "__main__":
    directory = Path(sys.argv[1])
    for name, bytecode in (("add", "13.3"), ("add", "13.4"), ("attention", "13.4")):
        kernel, parameters = KERNELS[name]
        signature = KernelSignature(parameters, CallingConvention.cutile_python_v1(), symbol=name)
        path = directory / f"{name}-{bytecode}.tileir"
        export_kernel(kernel, [signature], str(path), output_format="tileir_bytecode", bytecode_version=bytecode)
    made = cujit.compile(SCALE, to="tileir", names=["scale<float>"], cache=False)
    made.save(directory / "scale-{}.{}.tileir".format(*toolchain().nvrtc.version))
