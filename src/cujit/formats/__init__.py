"""Bytes and text as values: PTX, cubins, fatbins, LTO-IR, mangled names. Pure: no files, no libraries, no clock."""
