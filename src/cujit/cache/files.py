"""Files of another compiler's cache as the data of one Artifact.

::

    {"cujit files":1,"files":[["axpy.cubin",5968],["axpy.json",1192]]}    JSON, and the end of the line
    the files, one after the other

A name is one component of a path, so that no file can be written outside the directory that is meant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from cujit.artifact import magic
from cujit.cache.key import Part
from cujit.errors import FormatError, spell

_MOST_NAME_BYTES = 255


def pack_files(files: Mapping[str, bytes]) -> bytes:
    """Write files as one value: the same bytes in any order of the mapping.

    Raises:
        FormatError: a name is not one component of a path.
    """
    ordered = sorted(files.items())
    for name, _ in ordered:
        check_name(name)
    rows = [[name, len(data)] for name, data in ordered]
    head = json.dumps({"cujit files": 1, "files": rows}, separators=(",", ":")).encode("ascii")
    return b"".join((head, b"\n", *(data for _, data in ordered)))


def unpack_files(data: bytes) -> dict[str, bytes]:
    """Read files from one value.

    Raises:
        FormatError: the value is damaged, or has a name that could lead elsewhere.
    """
    head, _, content = data.partition(b"\n")
    try:
        if not head.startswith(magic.FILES):
            raise ValueError("the data doesn't begin with the prefix of a file set")
        rows = [(str(name), int(size)) for name, size in json.loads(head)["files"]]
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as e:
        raise FormatError(f"the list of files is invalid: {e}") from e
    if len(dict(rows)) < len(rows) or any(size < 0 for _, size in rows):
        raise FormatError("the list of files contains a duplicate name or a negative size")
    declared = sum(size for _, size in rows)
    if declared != len(content):
        raise FormatError(f"the files have {len(content)} bytes, but their list declares {declared}")
    files, begin = {}, 0
    for name, size in rows:
        check_name(name)
        files[name] = content[begin : begin + size]
        begin += size
    return files


def parts_of_files(data: bytes) -> list[Part]:
    """Describe files as the parts of a key, for comparison: each field of a JSON object, and other files by content.

    Raises:
        FormatError: as ``unpack_files``.
    """
    parts = []
    for name, content in unpack_files(data).items():
        fields = _fields(name, content)
        if fields is None:
            parts.append(Part.content(name, content))
        else:
            parts += [Part.text(f"{name} {field}", json.dumps(value)) for field, value in fields.items()]
    return parts


def _fields(name: str, content: bytes) -> dict[str, object] | None:
    if not name.endswith(".json"):
        return None
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def check_name(name: str) -> None:
    """Check that a name is one component of a path, and no hidden file.

    Raises:
        FormatError: it could lead elsewhere.
    """
    is_plain = name.isprintable() and "/" not in name and not name.startswith((".", "__grp__"))
    if not name or not is_plain or len(name.encode("utf-8", "replace")) > _MOST_NAME_BYTES:
        raise FormatError(f"{spell(name)} is not a valid file name")
