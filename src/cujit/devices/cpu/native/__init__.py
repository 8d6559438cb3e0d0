"""Native code of the CPU device's own, as LLVM IR: stacks, the scheduler of a block, barriers, faults, output."""
