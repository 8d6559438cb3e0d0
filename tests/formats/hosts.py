"""Host files around containers, written here: objects and archives."""

from __future__ import annotations

import struct


def host_object(*containers: bytes, section: bytes = b".nv_fatbin") -> bytes:
    """An ELF object with one section that holds the containers."""
    content = b"".join(containers)
    names = b"\0" + section + b"\0.shstrtab\0"
    rows = [(0, 0, 0, 0), (1, 1, 64, len(content)), (2 + len(section), 3, 64 + len(content), len(names))]
    headers = b"".join(
        struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, offset, size, 0, 0, 8, 0) for name, kind, offset, size in rows
    )
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    table_at = 64 + len(content) + len(names)
    header = struct.pack("<16sHHIQQQIHHHHHH", ident, 1, 62, 1, 0, 0, table_at, 0, 64, 0, 0, 64, len(rows), 2)
    return header + content + names + headers


def archive(*members: bytes) -> bytes:
    """An ``.a`` file of these members."""
    parts = [b"!<arch>\n"]
    for i, member in enumerate(members):
        parts.append(b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (b"m%d.o/" % i, 0, 0, 0, b"644", len(member)))
        parts.append(member + b"\n" * (len(member) % 2))
    return b"".join(parts)
