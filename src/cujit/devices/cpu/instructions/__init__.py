"""What each instruction does, one file per family."""
