"""The instructions in the PTX ISA manual as tables, with one row per form. ``table`` searches the tables."""
