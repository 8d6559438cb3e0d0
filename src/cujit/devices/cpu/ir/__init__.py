"""A kernel as operations and basic blocks. ``formats.ptx.isa.semantics`` defines the operations."""
