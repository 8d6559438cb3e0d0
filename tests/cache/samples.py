"""Keys and Artifacts to cache, cheap to make."""

from __future__ import annotations

import hashlib

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.cache.key import Key, Part, make_key

FATBIN_MAGIC = b"\x50\xed\x55\xba"


def key_of(n: int, *, name: str = "sample.cu", work: str = "nvrtc") -> Key:
    """The key of the n-th piece of work."""
    return make_key(work, [Part.text("name", name), Part.text("arch", "sm_90"), Part.content("source", f"source {n}")])


def artifact_of(n: int, size: int = 1000) -> Artifact:
    """The Artifact of the n-th piece of work: no two are alike."""
    block = hashlib.sha256(f"{n}".encode()).digest()
    data = FATBIN_MAGIC + (block * (size // len(block) + 1))[: size - len(FATBIN_MAGIC)]
    return Artifact(
        ImageKind.FATBIN, data, Arch.parse("sm_90"), {f"f<{n}>": f"_Z1f{n}"}, log=f"log {n}", name=f"{n}.cu"
    )
