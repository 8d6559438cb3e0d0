"""Packs in the layout of the kernel hub: a directory that ``kernels.get_local_kernel`` loads, and that can be uploaded.

::

    build/torch-universal/     the variant for every system: no extension module, and so no ABI of torch
        __init__.py, …         the Python package, as its author wrote it
        kernels.pack           the pack
        metadata.json          name, version, license, and the SHA-256 of every other file
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from cujit.artifact.reading import file_errors
from cujit.artifact.writing import write_file
from cujit.cache.pack import open_verified
from cujit.errors import OptionError, read_int, spell

VARIANT = "torch-universal"
PACK_NAME = "kernels.pack"
_METADATA = "metadata.json"
_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
_SKIPPED = ("__pycache__",)


@file_errors()
def export_hub(pack: Path, package: Path, output: Path, *, name: str, license: str, version: int = 1) -> Path:
    """Write a Python package and its pack in the layout of the kernel hub, and return the directory of the variant.

    The package finds its pack at ``Path(__file__).with_name("kernels.pack")``. The same files make the same bytes.

    Args:
        pack: the pack, of which every record is verified first.
        package: the directory of the package, with an ``__init__.py``. Hidden files and caches are left out.
        output: the directory of the repository. Its ``build/torch-universal`` must not exist.
        name: the name of the kernel on the hub: lower-case letters, digits and dashes.
        license: the SPDX identifier of the license, such as ``Apache-2.0``.
        version: the version of the kernel, at least 1.

    Raises:
        FormatError: a record of the pack is damaged.
        OptionError: the name or the version is invalid, or the package has no ``__init__.py`` or a file of these names.
        FileError: a file can't be read or written, or the variant exists.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise OptionError(f"{spell(name)} is not a valid kernel name", help="write a name such as my-kernel")
    number = read_int(version, "version", OptionError, least=1)
    open_verified(pack)
    files = dict(_files(package))
    if "__init__.py" not in files:
        raise OptionError(f"{package} has no __init__.py", help="pass the directory of a Python package")
    if taken := files.keys() & {PACK_NAME, _METADATA}:
        raise OptionError(f"{package} already contains {min(taken)}, which cujit writes", help="rename that file")
    files[PACK_NAME] = pack.read_bytes()
    variant = output / "build" / VARIANT
    variant.parent.mkdir(parents=True, exist_ok=True)
    variant.mkdir()
    for path, data in files.items():
        (variant / path).parent.mkdir(parents=True, exist_ok=True)
        write_file(variant / path, data)
    write_file(variant / _METADATA, _metadata(files, name, license, number))
    return variant


def _files(package: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(package.rglob("*")):
        parts = path.relative_to(package).parts
        if any(part.startswith(".") or part in _SKIPPED for part in parts) or path.is_dir():
            continue
        if path.is_symlink():
            raise OptionError(f"{path} is a symbolic link", help="replace the link with a copy of the file")
        yield "/".join(parts), path.read_bytes()


def _metadata(files: dict[str, bytes], name: str, license: str, version: int) -> bytes:
    """Describe the variant, as ``kernels`` reads it. Its id is of its content, so that two variants can be loaded."""
    digests = {path: base64.b64encode(hashlib.sha256(data).digest()).decode() for path, data in sorted(files.items())}
    whole = hashlib.sha256(json.dumps(digests).encode()).hexdigest()
    about = {
        "id": f"_{name.replace('-', '_')}_{whole[:16]}",
        "name": name,
        "version": version,
        "license": license,
        "python-depends": [],
        "backend": {"type": "cuda"},
        "digest": {"algorithm": "sha256", "files": digests},
    }
    return json.dumps(about, indent=2).encode() + b"\n"
