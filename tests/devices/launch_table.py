"""Launches around everything that binds one: directives of the entry, sizes of the device, shared memory.

What an H200 makes of each is in ``tests/goldens/launches.json``, recorded by ``launch_record.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["GOLDENS", "ROWS", "Entry", "Row", "ptx_of"]

GOLDENS = Path(__file__).parents[1] / "goldens" / "launches.json"

Size = tuple[int, ...]


@dataclass(frozen=True)
class Entry:
    """A kernel: its directives as PTX spells them, and its shared memory: static bytes, and what alignments say.

    ``dynamic_align`` is 0 where it has no dynamic shared memory of its own.
    """

    directives: str = ""
    static: int = 0
    align: int = 16
    dynamic_align: int = 16

    @property
    def name(self) -> str:
        """Its name in the goldens."""
        said = [self.directives] if self.directives else []
        if self.static:
            said.append(f"static {self.static} align {self.align}")
        if self.static and self.dynamic_align != 16:
            said.append(f"dynamic align {self.dynamic_align}")
        return " ".join(said) or "plain"


@dataclass(frozen=True)
class Row:
    """One launch. ``cluster`` is that of the launch, if it says one; ``dynamic`` are bytes of shared memory."""

    entry: Entry
    grid: Size
    block: Size
    cluster: Size | None = None
    dynamic: int = 0

    @property
    def key(self) -> str:
        """Its name in the goldens."""
        said = [f"grid {_spell(self.grid)}", f"block {_spell(self.block)}"]
        if self.cluster is not None:
            said.append(f"cluster {_spell(self.cluster)}")
        if self.dynamic:
            said.append(f"dynamic {self.dynamic}")
        return ", ".join(said)

    @property
    def sizes(self) -> list[int]:
        """Threads, blocks and blocks of a cluster along x, y and z, as it says them."""
        return [n for size in (self.block, self.grid, self.cluster or (1,)) for n in (*size, 1, 1)[:3]]


def _spell(size: Size) -> str:
    return "x".join(map(str, size))


_PTX = """.version VERSION
.target sm_90
.address_size 64
DYNAMIC
.visible .entry k(.param .u64 out) DIRECTIVES {
.reg .b32 r<8>; .reg .b64 a; .reg .pred p;
STATIC USES
mov.u32 r0, %tid.x; mov.u32 r1, %ctaid.x; or.b32 r0, r0, r1; mov.u32 r1, %tid.y; or.b32 r0, r0, r1;
mov.u32 r1, %ctaid.y; or.b32 r0, r0, r1; mov.u32 r1, %tid.z; or.b32 r0, r0, r1; mov.u32 r1, %ctaid.z;
or.b32 r0, r0, r1; setp.ne.u32 p, r0, 0; @p bra DONE;
ld.param.u64 a, [out]; cvta.to.global.u64 a, a;
mov.u32 r1, %ntid.x; st.global.u32 [a], r1; mov.u32 r1, %ntid.y; st.global.u32 [a+4], r1;
mov.u32 r1, %ntid.z; st.global.u32 [a+8], r1; mov.u32 r1, %nctaid.x; st.global.u32 [a+12], r1;
mov.u32 r1, %nctaid.y; st.global.u32 [a+16], r1; mov.u32 r1, %nctaid.z; st.global.u32 [a+20], r1;
mov.u32 r1, %cluster_nctaid.x; st.global.u32 [a+24], r1; mov.u32 r1, %cluster_nctaid.y; st.global.u32 [a+28], r1;
mov.u32 r1, %cluster_nctaid.z; st.global.u32 [a+32], r1; mov.u32 r1, %dynamic_smem_size; st.global.u32 [a+36], r1;
mov.u32 r1, %total_smem_size; st.global.u32 [a+40], r1;
DONE: ret;
}
"""
_STATIC = ".shared .align ALIGN .b8 fixed[SIZE]; mov.b32 r2, fixed; st.shared.u8 [r2], 1;"
_DYNAMIC = ".extern .shared .align ALIGN .b8 dynamic[];"
# The address of dynamic shared memory is asked for, so that it is the kernel's.
_USES = "mov.b32 r2, dynamic; setp.eq.u32 p, r2, 0xFFFFFFFF; @p trap;"


def ptx_of(entry: Entry) -> str:
    """Write a kernel whose first thread stores the sizes that it sees."""
    static = _STATIC.replace("SIZE", str(entry.static)).replace("ALIGN", str(entry.align)) if entry.static else ""
    dynamic = _DYNAMIC.replace("ALIGN", str(entry.dynamic_align)) if entry.dynamic_align else ""
    parts = {
        "VERSION": "9.0" if "blocksareclusters" in entry.directives else "8.0", "DIRECTIVES": entry.directives,
        "STATIC": static, "DYNAMIC": dynamic, "USES": _USES if dynamic else "",
    }  # fmt: skip
    text = _PTX
    for word, part in parts.items():
        text = text.replace(word, part)
    return text


_THREADS: tuple[Size, ...] = (
    (1,), (2,), (31,), (32,), (33,), (63,), (64,), (65,), (95,), (96,), (97,), (127,), (128,), (129,), (192,), (256,),
    (512,), (1023,), (1024,), (1025,), (2, 64), (64, 2), (32, 4), (4, 32), (32, 2), (32, 3), (33, 1), (31, 4), (32, 5),
    (1, 128), (1, 1, 64), (1, 1, 65), (8, 4, 2), (8, 2, 4), (2, 4, 8), (8, 4), (8, 4, 1), (8, 4, 4), (64, 1), (1, 64),
    (32, 32), (32, 33), (1, 1024), (2, 512), (16, 8, 8), (16, 8, 9), (64, 16), (1, 1, 1),
)  # fmt: skip
_BOUNDS = ("1", "32", "33", "64", "96", "128", "1024", "32, 4", "64, 2", "1, 64", "32, 1", "8, 4, 2", "1, 1, 64")


def _threads() -> Iterator[Row]:
    """Blocks of every shape around bounds of one, two and three dimensions."""
    entries = [Entry()]
    entries += [Entry(f".{word} {bound}") for word in ("maxntid", "reqntid") for bound in _BOUNDS]
    entries += [
        Entry(".maxntid 128 .minnctapersm 2"), Entry(".reqntid 64 .minnctapersm 4"), Entry(".minnctapersm 2"),
        Entry(".maxntid 1024 .minnctapersm 2"), Entry(".maxntid 1024 .minnctapersm 8"),
        Entry(".maxntid 128 .reqntid 64"), Entry(".maxntid 64 .reqntid 128"), Entry(".maxnreg 32"),
        Entry(".maxnreg 64"), Entry(".maxnreg 128"), Entry(".maxntid 0"),
        Entry(".reqntid 0"), Entry(".maxntid 2048"), Entry(".reqntid 2048"), Entry(".maxntid 4, 0"),
    ]  # fmt: skip
    for entry, block in itertools.product(entries, _THREADS):
        yield Row(entry, (1,), block)


_GRIDS: tuple[Size, ...] = (
    (1,), (2,), (3,), (4,), (5,), (6,), (8,), (16,), (32,), (1, 2), (2, 2), (2, 1, 2), (4, 3), (3, 4), (4, 1, 2),
    (8, 2, 2), (16, 2), (1, 1, 8),
)  # fmt: skip
_CLUSTERS: tuple[Size | None, ...] = (
    None, (1,), (2,), (3,), (4,), (8,), (9,), (16,), (17,), (1, 2), (2, 2), (2, 1, 2), (4, 1, 2), (1, 1, 8),
)  # fmt: skip
_CLUSTERED = (
    ".reqnctapercluster 1", ".reqnctapercluster 2", ".reqnctapercluster 3", ".reqnctapercluster 2, 2",
    ".reqnctapercluster 4, 1, 2", ".reqnctapercluster 8", ".reqnctapercluster 16", ".reqnctapercluster 32",
    ".reqnctapercluster 0", ".reqnctapercluster 1, 1, 2",
    ".explicitcluster", ".explicitcluster .reqnctapercluster 2", ".maxclusterrank 1", ".maxclusterrank 2",
    ".maxclusterrank 4", ".maxclusterrank 8", ".maxclusterrank 16", ".explicitcluster .maxclusterrank 4",
    ".maxclusterrank 4 .reqnctapercluster 2", ".maxclusterrank 2 .reqnctapercluster 4",
)  # fmt: skip


def _clusters() -> Iterator[Row]:
    """Grids and clusters around what a kernel says of them."""
    for words, grid, cluster in itertools.product(("", *_CLUSTERED), _GRIDS, _CLUSTERS):
        yield Row(Entry(words), grid, (32,), cluster)
    both = Entry(".reqntid 32, 2 .reqnctapercluster 2")
    for grid, block in itertools.product(((1,), (2,), (3,), (2, 2)), ((32,), (64,), (32, 2), (2, 32), (32, 3))):
        yield Row(both, grid, block)
    units = Entry(".blocksareclusters .reqntid 32 .reqnctapercluster 2")
    for grid, block, cluster in itertools.product(((1,), (2,), (3,)), ((32,), (64,)), (None, (1,), (2,))):
        yield Row(units, grid, block, cluster)


_SMALL = (0, 1, 15, 16, 100, 1024)
_LARGE = (256 << 10, 1 << 20, (1 << 31) - 1, 1 << 31)
_BELOW = (-17, -16, -1, 0, 1, 2, 3, 4, 7, 8, 11, 12, 15, 16, 17, 28, 63, 64, 923, 924, 1023, 1024)


def _shared() -> Iterator[Row]:
    """Static and dynamic shared memory around 48 KiB and around the most that a block gets."""
    entries = [Entry(static=n) for n in (0, 1, 16, 100, 1024, (48 << 10) - 1024, (48 << 10) - 1, 48 << 10)]
    entries += [
        Entry("", static, align, dynamic)
        for static, align, dynamic in itertools.product((1, 100), (1, 4, 16), (0, 1, 4, 64, 1024))
    ]
    for entry in entries:
        near = [(limit << 10) - entry.static + k for limit in (47, 48, 226, 228) for k in (-1, 0, 1)]
        edge = [(227 << 10) - entry.static - k for k in _BELOW]
        for dynamic in sorted({*_SMALL, *_LARGE, *(n for n in (*near, *edge) if n > 0)}):
            yield Row(entry, (1,), (32,), dynamic=dynamic)


def _sizes() -> Iterator[Row]:
    """Grids around the limits of the device; the largest along x would take long."""
    for most in (65535, 65536):
        yield from (Row(Entry(), grid, (32,)) for grid in ((most,), (1, most), (1, 1, most)))
    yield from (Row(Entry(), (most,), (32,)) for most in (1 << 31, (1 << 32) - 1))


ROWS: tuple[Row, ...] = tuple(dict.fromkeys((*_threads(), *_clusters(), *_shared(), *_sizes())))
