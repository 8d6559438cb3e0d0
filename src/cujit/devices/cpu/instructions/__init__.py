"""The implementation of each instruction, with one file per family."""
