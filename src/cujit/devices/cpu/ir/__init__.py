"""A kernel as operations and blocks; ``formats.ptx.isa.semantics`` says what operations mean."""
