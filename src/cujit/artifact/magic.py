"""First bytes of files and images: the one place that knows them, and the machine of CUDA's ELF files.

Sources: System V gABI, "ELF Header" (``e_machine`` 190 is ``EM_CUDA``); ar(5), also for thin archives; LLVM Bitcode
File Format; fatbinary.h of CUDA 13.5; the output of nvFatbin and NVRTC 12.4 to 13.5 for fatbins and LTO-IR;
CUDA Tile IR 13.4, "Binary Format".
"""

from __future__ import annotations

ELF = b"\x7fELF"
ELF_64 = ELF + b"\x02\x01\x01"
"""An ELF file of 64 bits, little-endian, version 1."""

EM_CUDA = 190
EM_CUDA_AT = slice(18, 20)
"""Where an ELF file names its machine."""

ARCHIVE, THIN_ARCHIVE = b"!<arch>\n", b"!<thin>\n"
FATBIN = b"\x50\xed\x55\xba"
FATBIN_WRAPPER = b"\xb1\x43\x62\x46"
LTOIR = b"\xed\x43\x4e\x7f"
TILEIR = b"\x7fTileIR\x00"
BITCODE = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")
"""LLVM bitcode, as it is and in its wrapper."""

FILES = b'{"cujit files":'
"""Files of another compiler's cache: ``cache/files.py``."""
