"""Inputs of all work in a uniform form: sources, LLVM IR modules, images, and entries."""
