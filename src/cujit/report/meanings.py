"""What the instructions and counters of a report mean: sentences, and where the manuals describe them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from cujit.formats import sass_meanings
from cujit.formats.ptx.isa import meanings as ptx_meanings
from cujit.formats.ptx.isa.meanings import meaning_key
from cujit.formats.ptx.isa.table import section_of
from cujit.profile.meanings import MEANINGS, metric_meaning
from cujit.report.listings import Listing

_WORD = re.compile(r"[^\s;,]+")
_MOST_WORDS = 4
"""Words of a line that can be its opcode: an address, a predicate or a brace can stand before it."""

MANUALS = {
    "ptx": ("PTX ISA", "https://docs.nvidia.com/cuda/parallel-thread-execution/index.html#instruction-set"),
    "sass": (
        "CUDA Binary Utilities",
        "https://docs.nvidia.com/cuda/cuda-binary-utilities/index.html#instruction-set-reference",
    ),
    "counter": ("Nsight Compute", "https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#metrics-reference"),
}


def meanings_of(listings: Sequence[Listing], counters: Iterable[str]) -> dict[str, Any]:
    """Describe what stands in listings, by kind and opcode, and counters by their names."""
    known = {"ptx": ptx_meanings.MEANINGS, "sass": sass_meanings.MEANINGS}
    found: dict[str, dict[str, list[str]]] = {"ptx": {}, "sass": {}, "counter": {}}
    for listing in listings:
        sentences, of = known.get(listing.kind, {}), found.get(listing.kind, {})
        for word in {word for line in listing.lines for word in _WORD.findall(line)[:_MOST_WORDS]} if sentences else ():
            if key := meaning_key(word, sentences):
                of[word] = [sentences[key], section_of(word) if listing.kind == "ptx" else ""]
    for name in counters:
        if sentence := MEANINGS.get(name) or metric_meaning(name):
            found["counter"][name] = [sentence, ""]
    return {"manuals": {kind: list(manual) for kind, manual in MANUALS.items()}, **found}
