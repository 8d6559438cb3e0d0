"""Nodes of LLVM IR for the values and the memory of one warp."""
