"""What each counter means, in a sentence of our own."""

from __future__ import annotations

import re
from collections.abc import Mapping

MEANINGS: Mapping[str, str] = {
    "warps": "Warps that executed the instruction.",
    "active": "Threads of these warps that were active.",
    "threads": "Active threads whose predicate was true.",
    "divergent_branches": "Warps whose threads took different sides of a branch. The sides run one after the other.",
    "requests": "Instructions of a warp that accessed global memory.",
    "sectors": "32-byte sectors of global memory that the requests moved.",
    "asked_bytes": "Bytes of global memory that the threads requested, each thread counted.",
    "local_requests": "Instructions of a warp that accessed local memory.",
    "local_sectors": "32-byte sectors of local memory that the requests moved, such as for spilled registers.",
    "local_bytes": "Bytes of local memory that the threads requested.",
    "shared_requests": "Instructions of a warp that accessed shared memory.",
    "wavefronts": "Steps that shared memory took for the requests. Each step serves one word per bank.",
    "bank_conflicts": "Additional wavefronts, because threads of a warp requested different words of one bank.",
    "shared_bytes": "Bytes of shared memory that the threads requested.",
    "texture_requests": "Instructions of a warp that accessed a texture or surface.",
    "texture_sectors": "Sectors that texture lookups read.",
    "texture_bytes": "Bytes of texels that texture lookups read.",
    "contended": "Threads that updated the most-updated word of their atomic request, added over all requests.",
    "most_contended": "The most threads of one atomic request that updated the same word.",
    "flops": "Floating-point operations. A fused multiply-add counts as two.",
    "tensor_flops": "Floating-point operations of the tensor cores.",
    "barriers": "Warps that reached a barrier of the block.",
    "sectors_per_request": "Sectors of global memory per request. Fewer are better: 4 are ideal for 4-byte elements.",
    "active_lanes": "Active threads per warp, on average. 32 are ideal.",
    "distinct_sectors": "Sectors of global memory that were accessed at least once.",
    "block_sectors": "Sectors of global memory that each block accessed at least once, added over all blocks.",
    "reuse": "How often each distinct sector was accessed, on average. Caches or a tile can save these repetitions.",
    "launches": "Launches that were counted.",
    "blocks": "Blocks of the launches.",
}
"""By the names of measures (docs/profile.md, "Measures")."""

_METRICS = (
    (
        r"l1tex__t_requests_pipe_lsu_mem_(global|local)_op_(\w+)\.sum",
        "Requests of warps for {0} memory in the L1 cache: {1}.",
    ),
    (r"l1tex__t_sectors_pipe_lsu_mem_(global|local)_op_(\w+)\.sum", "Sectors of {0} memory in the L1 cache: {1}."),
    (r"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_(\w+)\.sum", "Wavefronts of shared memory: {0}."),
    (r"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_(\w+)\.sum", "Bank conflicts of shared memory: {0}."),
    (r"smsp__sass_branch_targets_threads_divergent\.sum", "Branches whose threads took different sides."),
    (r"smsp__inst_executed\.sum", "Instructions that warps executed."),
    (r"smsp__thread_inst_executed\.sum", "Instructions that active threads executed."),
    (r"smsp__thread_inst_executed_pred_on\.sum", "Instructions that threads executed with a true predicate."),
    (
        r"smsp__sass_thread_inst_executed_op_([df])(add|mul|fma)_pred_on\.sum",
        "Floating-point instructions of threads with a true predicate: {1}, {0}.",
    ),
    (r"sm__ops_path_tensor_src_(\w+)\.sum", "Operations of the tensor cores on {0}."),
)
_WORDS = {
    "ld": "loads", "st": "stores", "atom": "atomic updates that return a value", "red": "atomic updates",
    "ldgsts": "asynchronous copies", "ldgsts_cache_access": "asynchronous copies through the L1 cache",
    "ldgsts_cache_bypass": "asynchronous copies past the L1 cache",
    "f": "32-bit", "d": "64-bit", "add": "additions", "mul": "products", "fma": "fused multiply-adds",
}  # fmt: skip


def metric_meaning(name: str) -> str:
    """Return what a metric of Nsight Compute counts. "" if the name is unknown."""
    for pattern, text in _METRICS:
        if found := re.fullmatch(pattern, name):
            return text.format(*(_WORDS.get(word, word.replace("_", " ")) for word in found.groups()))
    return ""
