"""From operations to LLVM IR, one file per family of instructions."""
