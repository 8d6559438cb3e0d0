"""A kernel of CUDA Tile C++, and the mark of tests that compile it."""

from __future__ import annotations

import pytest

from cujit import program
from cujit.toolchain.libraries import find_program

__all__ = ["TWICE", "needs_tiles"]

TWICE = """#include <cuda_tile.h>
namespace ct = cuda::tiles;
__tile_global__ void twice(float* x, int n) {
    ct::tensor_span all{x, ct::extents<int, ct::dynamic_extent>{n}};
    ct::partition_view tiles{all, ct::shape<256>{}};
    auto tile = tiles.load_masked(ct::bid().x);
    tiles.store_masked(tile * 2.0f, ct::bid().x);
}
"""

needs_tiles = pytest.mark.skipif(
    find_program("tileiras", ()) is None
    or find_program("tileirdisasm", ()) is None
    or program.toolchain().nvrtc.version < (13, 3),
    reason="tileiras is not installed, or NVRTC is older than 13.3",
)
