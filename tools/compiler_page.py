"""Writes ``docs/cpu-compiler.md``: one kernel, as every stage of the compiler of the CPU device leaves it.

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

This page follows one kernel through every stage; it is written from the code by `python tools/compiler_page.py`. The
stages stand in order in [pipeline.py](../src/cujit/devices/cpu/pipeline.py). To see them for a kernel of yours, name
some in the environment: `CUJIT_DUMP=uniformity,fission` prints what these leave to standard error, with the time that
each took; `all` prints every stage, `times` only the times. Kernels are compiled then, whatever the cache has.

The kernel sums 64 numbers a block, half of the threads adding in every turn of a loop with a barrier:

"""

ABOUT = {
    "flatten": (
        "Frontend",
        """Calls are inlined, names become numbered registers and places in memory, and one list of operations is left.
Functions that call themselves, or are called by address, keep lists of their own. What is not executed on the CPU
device is noted here and in the next stage, all of it, with its lines.""",
    ),
    "blocks": (
        "Blocks",
        """Operations are cut into basic blocks, in the order in which a warp scans them: topological but for loops,
which are contiguous each. A warp whose lanes have parted always runs the first block that any lane waits at, and so
they meet again. An operation at which lanes meet begins a block; a barrier also ends it.""",
    ),
    "uniformity": (
        "Uniformity",
        """A register that is the same in all lanes of a warp (uniform), or counts up with the lane (affine), is one
scalar; any other is a vector of 32 (varying). The shape of the block is known from here on. Where lanes part at a
branch, they may be waiting at several blocks: what those still need is blended when it is written.

Before that, addresses of shared memory that a compiler computed in 64 bits, as NVRTC 13.0 does, are computed in 32: a
GPU reads no more of them, and what is known of `%rd2` is known of its lower half, `%rd2.low`. Where somebody watches
(checks, profiles, traces) the operations stay those of the text.""",
    ),
    "fission": (
        "Barrier fission",
        """A kernel whose warps all come to its barriers whole is cut there into regions. All warps of a block run one
region, then all run the next, so that no warp needs a stack of its own. Registers that a later region needs are kept
in memory over the barrier; what is cheap to compute again is made again. Kernels with other barriers are not cut:
their warps get stacks, and switch.""",
    ),
    "plan": (
        "Planning",
        """It is settled how the blocks of each region are emitted. Where lanes may part, blocks come twice: with a mask
of the lanes that wait at them, and for warps whose lanes are all active, in which nobody waits. Loops that only
compute run for some lanes to the end, then for the next ones. Atomic operations come behind what only computes.""",
    ),
    "emit": (
        "Code generation",
        """Every region becomes a function of LLVM IR over vectors of 32 lanes, with a mask of the lanes that take part;
around them stands a loop over blocks and warps. LLVM then optimises the module and makes machine code. That takes
the square of a basic block that touches much memory, so a long one is cut, by a branch that is never taken. Of the text
this is block 1 of region 1, which adds:""",
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
