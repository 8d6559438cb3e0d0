"""Texts of the advice rules: the finding of each rule, its importance, and the fix.

``docs/advice.md`` and reports quote them.
"""

from __future__ import annotations

from collections.abc import Mapping

from cujit.values import dataclass


@dataclass(frozen=True)
class AdviceRule:
    """One rule in words, with its ``source``, and the times of an ``example`` on an H200 in microseconds.

    The example is a pair of ``benchmarks/advice_pairs.py``: ``before_us`` without the fix, ``after_us`` with it.
    """

    finds: str
    why: str
    fix: str
    source: str
    example: str
    before_us: float
    after_us: float

    @property
    def measured(self) -> str:
        """The times of the example in a sentence."""
        times = f"took {self.before_us:g} µs before the fix and {self.after_us:g} µs after it"
        return f'On an H200, the kernel "{self.example}" {times}.'

    def to_json(self) -> dict[str, str]:
        """Return the parts of the rule's page by their titles."""
        return {
            "What it finds": self.finds,
            "Why it matters": self.why,
            "Example": self.measured,
            "Fix": self.fix,
        }


RULES: Mapping[str, AdviceRule] = {
    "uncoalesced": AdviceRule(
        "At least 10% of the kernel's sectors are in excess of the minimum for the requested bytes. The line causes at "
        "least 10% of the excess, and adjacent threads access nonadjacent addresses.",
        "Memory moves whole sectors of 32 bytes. If each thread of a warp accesses a different sector, the GPU moves "
        "up to 32 sectors for 128 bytes. Most of the bandwidth is then lost.",
        "Let adjacent threads access adjacent elements: swap the indices, use one array for each member of a "
        "structure, or sort the accesses by address. If both orders are necessary, as in a transpose, stage a tile in "
        "shared memory.",
        "Best Practices Guide, *Coalesced Access to Global Memory*; Nsight Compute, *Uncoalesced Global Accesses*",
        "columns", 289, 67.8,
    ),
    "misaligned": AdviceRule(
        "Same as `uncoalesced`, except that adjacent threads access adjacent addresses. Idle threads don't count as "
        "waste. The rule ignores arrays to which the kernel also makes aligned accesses, as in stencils.",
        "A warp whose 128 bytes don't start at a multiple of 32 bytes accesses five sectors instead of four. The fifth "
        "sector usually comes from the L1 or L2 cache, so that the fix saves little if memory is the bottleneck.",
        "Start each row at a multiple of 32 bytes: pad the rows, and shift the threads instead of the array.",
        "Best Practices Guide, *Effects of Misaligned Accesses*",
        "shifted load", 56, 55.3,
    ),
    "narrow": AdviceRule(
        "The loads or stores of a thread are adjacent and could be combined into one vector access, for example with "
        "`float4`.",
        "Each load is a separate request to the load/store unit, and each request moves the same sectors again. "
        "The narrower the elements, the more requests are necessary.",
        "Access up to 16 bytes at once through a vector type, such as `float4` or `uint4`. The address must be "
        "aligned to the size of the vector.",
        "Programming Guide, *Device Memory Accesses*",
        "bytes", 149, 86.3,
    ),
    "redundant": AdviceRule(
        "On average, a block accesses each of its sectors at least 4 times. A kernel that reads its data three times "
        "is below this threshold.",
        "Even if the data comes from the L1 cache, each load occupies the load/store unit. An access to shared memory "
        "is faster, and registers don't occupy the unit at all.",
        "Load a tile into shared memory or registers once, and read it from there.",
        "Best Practices Guide, *Shared Memory in Matrix Multiplication*",
        "all of a block", 947, 301,
    ),
    "local_memory": AdviceRule(
        "At least 10% of the sectors are in local memory. PTX doesn't show the register spills that ptxas adds; to "
        "limit spills, set `spills` in a budget.",
        "An array whose index isn't a constant can't be in registers. The compiler places it in local memory, so each "
        "access goes through the L1 cache.",
        "Unroll the loops over the array, so that each index is a constant, or keep the array in shared memory. "
        "Measure the result: selecting an element by comparisons can be slower than local memory.",
        "Programming Guide, *Device Memory Accesses: Local Memory*",
        "sort", 2099, 785,
    ),
    "bank_conflicts": AdviceRule(
        "At least 10% of the wavefronts are bank conflicts, and the line causes at least 10% of these conflicts.",
        "Shared memory has 32 banks, and each bank serves one 4-byte word at a time. If several threads of a warp "
        "access different words of the same bank, shared memory serves them one after the other.",
        "Pad each row of a tile by one element, or let adjacent threads access adjacent words.",
        "Nsight Compute, *Shared Memory Conflicts*, which uses the same threshold",
        "rows of a tile", 554, 130,
    ),
    "contended_atomics": AdviceRule(
        "On average, at least 4 threads of a request update the same word, or words in the same shared-memory bank. If "
        "32 threads update 32 words at random, the average is 3.5.",
        "The GPU performs updates of the same word one after the other. If all threads of a warp update the same word "
        "and ignore the result, ptxas already combines their updates, and the fix saves almost nothing.",
        "Combine the values of a warp with `__reduce_add_sync` or shuffles, and let one thread update the word. For "
        "histograms, update a copy in shared memory and add the copies at the end of each block.",
        "Programming Guide, *Atomic Functions*",
        "sum", 406, 406,
    ),
    "divergence": AdviceRule(
        "Warps diverge at a branch, and on average, fewer than 24 of 32 threads execute an instruction.",
        "A warp executes both sides of a branch one after the other. The threads that take the other side wait.",
        "Let whole warps take the same branch: make the active threads adjacent, or sort the work by its kind.",
        "Nsight Compute, *Thread Divergence*, which uses the same threshold",
        "odd threads", 431, 226,
    ),
    "double_precision": AdviceRule(
        "A line converts floats to doubles, computes in double precision, and converts the results back to floats.",
        "Most GPUs have far fewer units for doubles than for floats, and the conversions between them are slow. The "
        "usual reason is a constant without the suffix `f`.",
        "Write constants as `2.0f`, and call `sqrtf` or `expf` instead of `sqrt` or `exp`.",
        "Best Practices Guide, *Single vs. Double Precision*",
        "constants", 146, 55.7,
    ),
    "partial_warps": AdviceRule(
        "The block size is not a multiple of 32 threads.",
        "The last warp of each block has idle threads, which occupy the SM like active threads. Starting many small "
        "blocks also takes time.",
        "Launch blocks of a multiple of 32 threads, such as 256, and let the threads past the end return.",
        "Nsight Compute, *Launch Configuration*",
        "blocks of 16", 637, 62.8,
    ),
}  # fmt: skip
"""By the names that ``Advice.rule`` has."""
