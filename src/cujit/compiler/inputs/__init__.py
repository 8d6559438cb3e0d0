"""What work begins with, brought into its one form: sources, modules of LLVM IR, images, entries."""
