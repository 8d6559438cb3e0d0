"""Our arithmetic beside what the driver of a real GPU said, recorded by ``record.py``."""

from __future__ import annotations

import json
from pathlib import Path

from cujit.arch import Arch
from cujit.arch.multiprocessor import limits_of
from cujit.occupancy.residency import Demand, residency

GOLDEN = Path(__file__).parents[1] / "goldens" / "occupancy-h200.json"


def test_blocks_match_the_driver_of_an_h200() -> None:
    told = json.loads(GOLDEN.read_text())
    limits = limits_of(Arch.parse(told["arch"]))
    differ = []
    for registers, shared_bytes, barriers, max_threads, block, dynamic_bytes, blocks in told["rows"]:
        demand = Demand(limits, registers, shared_bytes, barriers=barriers, max_threads=max_threads)
        ours = residency(demand, block, dynamic_bytes).blocks
        if ours != blocks:
            differ.append((demand, block, dynamic_bytes, ours, blocks))
    assert not differ
    assert len(told["rows"]) > 200
    assert sum(row[-1] > 0 for row in told["rows"]) > 120
