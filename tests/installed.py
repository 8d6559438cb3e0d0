"""Distributions as installers leave them, made for tests."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path

__all__ = ["install"]


def install(site: Path, name: str, files: Mapping[str, bytes], *, points: str = "", is_hashed: bool = True) -> Path:
    """Install a distribution of some files into a directory, and return that of its metadata.

    ``points`` is the text of its entry_points.txt.
    """
    metadata = f"{name.replace('-', '_')}-1.0.dist-info"
    every = {
        **files,
        f"{metadata}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{metadata}/entry_points.txt": points.encode(),
    }
    rows = [f"{metadata}/RECORD,,"]
    for path, data in every.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(data)}" if is_hashed else f"{path},,")
    (site / metadata / "RECORD").write_text("\n".join(rows) + "\n")
    return site / metadata
