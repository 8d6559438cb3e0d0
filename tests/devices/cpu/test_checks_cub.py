"""``check="init"`` is silent over partial tiles in all of cub's algorithms of a block and of a warp (``make checked``).

``test_checks_raw.py`` has a few of them that run always.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

import cujit

_FILE = Path(__file__).parent / "cub_partial.cu"
_KERNELS = re.findall(r"^KERNEL (\w+)", _FILE.read_text(), re.MULTILINE)
_TILE = 192

pytestmark = pytest.mark.skipif("CUJIT_EFFORT" not in os.environ, reason="a minute: make checked")


@pytest.fixture(scope="module")
def module() -> cujit.Module:
    image = cujit.compile(cujit.Source.cuda(_FILE), arch="compute_80")
    return cujit.load(image, cujit.cpu(1, check="init"))


@pytest.mark.parametrize("kernel", _KERNELS)
def test_cub_is_silent_over_partial_tiles(kernel: str, module: cujit.Module) -> None:
    for n in (1, 31, 33, 63, 64, 96, 100, 191, _TILE):
        x, out = (module.device.empty(_TILE, np.int32) for _ in range(2))
        x[:n].copy_from(np.random.default_rng(n).integers(-99, 99, n).astype(np.int32))
        module[kernel][1, 64](x, out, np.int32(n))
        np.asarray(out)  # a raw value in it would be found
