"""Write ``docs/cpu-compiler.md``: one kernel after every stage of the CPU-device compiler.

``python tools/compiler_page.py > docs/cpu-compiler.md``; a test compares the two.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from cujit.devices.cpu.frontend.layout import ModuleLayout
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.cpu.pipeline import ir_of, prepare
from cujit.devices.cpu.stages import STAGES, Stage, show_stages
from cujit.devices.shapes import Dim3
from cujit.formats.ptx.parser import parse

__all__ = ["page"]

KERNEL = """.version 8.0
.target sm_80
.address_size 64
.visible .entry sums(.param .u64 from, .param .u64 to)
{
    .shared .align 4 .b32 tile[64];
    .reg .b64 in, out, at;
    .reg .b32 t, b, i, step, slot, other, x, y;
    .reg .pred idle, more, first;
    ld.param.u64 in, [from];
    mov.u32 t, %tid.x;
    mov.u32 b, %ctaid.x;
    mad.lo.u32 i, b, 64, t;
    mad.wide.u32 at, i, 4, in;
    ld.global.u32 x, [at];
    mov.u32 slot, tile;
    mad.lo.u32 slot, t, 4, slot;
    st.shared.u32 [slot], x;
    mov.u32 step, 32;
HALVE:
    bar.sync 0;
    setp.ge.u32 idle, t, step;
    @idle bra SKIP;
    mad.lo.u32 other, step, 4, slot;
    ld.shared.u32 y, [other];
    add.u32 x, x, y;
    st.shared.u32 [slot], x;
SKIP:
    shr.u32 step, step, 1;
    setp.ne.u32 more, step, 0;
    @more bra HALVE;
    setp.ne.u32 first, t, 0;
    @first ret;
    ld.param.u64 out, [to];
    mad.wide.u32 at, b, 4, out;
    st.global.u32 [at], x;
    ret;
}
"""
BLOCK = Dim3(64)

HEAD = """# CPU-device compiler

This page follows one kernel through every stage of the CPU-device compiler.
[pipeline.py](../src/cujit/devices/cpu/pipeline.py) lists the stages in order. To print the stages for your own kernel,
set the environment variable `CUJIT_DUMP`. For example, `CUJIT_DUMP=uniformity,fission` prints the results of these two
stages to standard error, with the time that each stage took. `all` prints every stage, and `times` prints only the
times. If `CUJIT_DUMP` is set, cujit compiles kernels even if they are in the cache.

The kernel sums 64 numbers per block. Each iteration of a loop with a barrier halves the number of threads that add:

"""

ABOUT = {
    "flatten": (
        "Frontend",
        """The frontend inlines calls and replaces names with numbered registers and memory locations. The result is one
list of operations. Functions that call themselves or are called by address keep separate lists. This stage and the next
one record every operation that the CPU device doesn't support, with its line.""",
    ),
    "blocks": (
        "Blocks",
        """This stage divides the operations into basic blocks, in the order in which a warp scans them. The order is
topological except for loops; the blocks of each loop are contiguous. If the lanes of a warp have diverged, the warp
always runs the first block that any lane is waiting at, so the lanes reconverge. An operation that synchronizes lanes
starts a block, and a barrier also ends its block.""",
    ),
    "uniformity": (
        "Uniformity",
        """A register that has the same value in all lanes of a warp (uniform) is stored as one scalar. So is a register
whose value is a base plus a stride times the lane number (affine). Any other register is a vector of 32 elements
(varying). From this stage on, the shape of the thread block is known. After lanes diverge at a branch, they can be
waiting at several blocks. A write to a register that the waiting lanes still need blends the new value with the old
value.

Before this analysis, shared-memory addresses that a compiler computed in 64 bits, as NVRTC 13.0 does, are converted to
32 bits. A GPU uses only the low 32 bits of these addresses, and everything known about `%rd2` also holds for its lower
half, `%rd2.low`. With checks, profiles or traces enabled, the operations stay the same as in the PTX.""",
    ),
    "fission": (
        "Barrier fission",
        """If all lanes of each warp reach a kernel's barriers together, this stage splits the kernel at the barriers
into regions. All warps of a block run one region, then all warps run the next region, so no warp needs its own stack.
Registers that a later region needs are saved in memory across the barrier, and values that are cheap to compute are
recomputed. Kernels with other barriers aren't split: each warp has its own stack, and the CPU device switches between
warps.""",
    ),
    "plan": (
        "Planning",
        """This stage decides how to emit the blocks of each region. If lanes can diverge, each block is emitted twice.
One version has a mask of the lanes that are waiting at the block. The other version is for warps whose lanes are all
active, so no lane is waiting. Loops that only compute run to completion for one group of lanes, then for the next
group. Atomic operations are placed after operations that only compute.""",
    ),
    "emit": (
        "Code generation",
        """Each region becomes an LLVM IR function over vectors of 32 lanes, with a mask of the active lanes. A loop
over blocks and warps surrounds the regions. LLVM then optimizes the module and generates machine code. LLVM's compile
time is quadratic in the length of a basic block with many memory accesses. Therefore, long blocks are split by a branch
that is never taken. This excerpt of the IR is block 1 of region 1, which performs the additions:""",
    ),
}
"""Title and description of each stage."""

_ADDITION = re.compile(r"@region\.1\(.*?^(body\.1:\n.*?)^\S", re.MULTILINE | re.DOTALL)
"""The block of the second region that adds."""


def page() -> str:
    """Write the page."""
    seen: dict[str, Stage] = {}
    show_stages(lambda stage: seen.update({stage.name: stage}))
    module, refusals = parse(KERNEL), Refusals()
    ir_of(prepare(module.entries[0], ModuleLayout(module, refusals), refusals), BLOCK)
    return f"{HEAD}```\n{KERNEL}```\n" + "".join(_section(name, seen[name].text()) for name in STAGES)


def _section(name: str, text: str) -> str:
    title, about = ABOUT[name]
    if name == "emit":
        found = _ADDITION.search(text)
        assert found is not None, "the kernel of the page is cut at its barrier"
        text = found[1].rstrip()
    return f"\n## {title}: `{name}`\n\n{about}\n\n```\n{text}\n```\n"


if __name__ == "__main__":
    print(page(), end="")
