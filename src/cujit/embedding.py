"""An Artifact as the text of a Python module that loads itself: for those who do not want to ship files."""

from __future__ import annotations

import base64
import textwrap
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cujit.signature import Parameter, Signature
from cujit.version import __version__

if TYPE_CHECKING:
    from cujit.artifact import Artifact

__all__ = ["python_module"]

_TEMPLATE = '''\
"""{summary}.

Written by cujit {version} (``cujit embed``). Do not edit: embed the image again.
"""

from __future__ import annotations

import cujit

NAMES = {{
{names}}}
"""Name expressions, and what the image calls them."""


def artifact() -> cujit.Artifact:
    """Give the image with its names and signatures."""
    return cujit.Artifact(
        cujit.Kind.{kind}, _image(), arch={arch}, names=NAMES, signatures=_signatures(), name=__name__{made_by}
    )


def load(device: cujit.Device | str | None = None) -> cujit.Module:
    """Load the image on a device; without one, on the first GPU or else the CPU device."""
    return cujit.load(artifact(), device)


def _signatures() -> dict[str, cujit.Signature]:
    parameter, kind = cujit.Parameter, cujit.ParameterClass
    return {{
{signatures}    }}


{image}
'''

_TEXT = '''\
def _image() -> bytes:
    return _PTX.encode()


_PTX = r"""{text}"""
'''

_BINARY = '''\
def _image() -> bytes:
    import base64
    import zlib

    return zlib.decompress(base64.b85decode("".join(_PACKED.split())))


_PACKED = """
{text}
"""
'''


def python_module(artifact: Artifact) -> str:
    """Write the source of a module with ``artifact()`` and ``load(device=None)``.

    PTX stays readable text; everything else is compressed and spelled in base 85. Names, signatures and the tool
    that made the image are kept.
    """
    return _TEMPLATE.format(
        summary=_summary(artifact),
        version=__version__,
        names="".join(f"    {name!r}: {lowered!r},\n" for name, lowered in artifact.names.items()),
        kind=artifact.kind.name,
        arch=f"cujit.Arch.parse({str(artifact.arch)!r})" if artifact.arch else "None",
        made_by=f", tool={artifact.tool!r}" if artifact.tool else "",
        signatures="".join(_signature(name, s) for name, s in artifact.signatures.items()),
        image=_image(artifact),
    )


def _summary(artifact: Artifact) -> str:
    arch = f" for {artifact.arch}" if artifact.arch else ""
    return f"CUDA kernels: a {artifact.kind.value}{arch}, {len(artifact.data):,} bytes"


def _signature(name: str, signature: Signature) -> str:
    items = "".join(f"            {_parameter(p)},\n" for p in signature)
    return f"        {name!r}: cujit.Signature((\n{items}        )),\n"


def _parameter(p: Parameter) -> str:
    said: Iterable[str] = (repr(v) for v in (p.size, p.align, p.type, p.pointee, p.offset))
    return f"parameter(kind.{p.kind.name}, {', '.join(said)})"


def _image(artifact: Artifact) -> str:
    if artifact.kind.value == "ptx":
        text = artifact.text
        if '"""' not in text and not text.endswith(("\\", '"')) and "\r" not in text:
            return _TEXT.format(text=text)
    packed = base64.b85encode(zlib.compress(artifact.data, 9)).decode()
    return _BINARY.format(text="\n".join(textwrap.wrap(packed, 112)))
