"""What the manual of the PTX ISA says of instructions, row by row; ``table`` looks them up."""
