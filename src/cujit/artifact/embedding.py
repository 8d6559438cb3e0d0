"""Write an Artifact as a Python module or a C header, for programs that don't ship image files."""

from __future__ import annotations

import base64
import enum
import re
import textwrap
import zlib
from collections.abc import Iterable, Mapping
from typing import Protocol

from cujit.arch import Arch
from cujit.errors import OptionError, spell
from cujit.signature import Parameter, Signature
from cujit.version import __version__


class Embeddable(Protocol):
    """The parts of an Artifact that a module or a header contains."""

    @property
    def kind(self) -> enum.Enum:
        """The kind of the image. Its value is ``ptx`` for text."""

    @property
    def data(self) -> bytes:
        """The bytes of the image."""

    @property
    def arch(self) -> Arch | None:
        """The architecture of the image, or None if it is unknown."""

    @property
    def names(self) -> Mapping[str, str]:
        """The lowered name of each name expression."""

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """The signatures of the kernels, by name."""

    @property
    def tool(self) -> str:
        """The tool that created the image, with its version, or empty if the tool is unknown."""


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
        cujit.ImageKind.{kind}, _image(), arch={arch}, names=NAMES, signatures=_signatures(), name=__name__{made_by}
    )


def load(device: cujit.Device | str | None = None) -> cujit.Module:
    """Load the image on a device; without one, on the first GPU or else the CPU device."""
    return cujit.load(artifact(), device)


def _signatures() -> dict[str, cujit.signature.Signature]:
    parameter, kind = cujit.signature.Parameter, cujit.signature.ParameterClass
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


def python_module(artifact: Embeddable) -> str:
    """Return the source of a module with the functions ``artifact()`` and ``load(device=None)``.

    PTX stays readable. Other images are compressed and written in base 85. The module keeps the names, the signatures,
    and the tool that created the image.
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


def _summary(artifact: Embeddable) -> str:
    arch = f" for {artifact.arch}" if artifact.arch else ""
    return f"CUDA kernels: a {artifact.kind.value}{arch}, {len(artifact.data):,} bytes"


def _signature(name: str, signature: Signature) -> str:
    items = "".join(f"            {_parameter(p)},\n" for p in signature)
    return f"        {spell(name)}: cujit.signature.Signature((\n{items}        )),\n"


def _parameter(p: Parameter) -> str:
    fields: Iterable[str] = (repr(v) for v in (p.size, p.align, p.type, p.pointee, p.offset))
    return f"parameter(kind.{p.kind.name}, {', '.join(fields)})"


def _image(artifact: Embeddable) -> str:
    if artifact.kind.value == "ptx":
        text = artifact.data.decode("utf-8", "replace")
        is_plain = text.encode() == artifact.data and "\0" not in text
        if is_plain and '"""' not in text and not text.endswith(("\\", '"')) and "\r" not in text:
            return _TEXT.format(text=text)
    packed = base64.b85encode(zlib.compress(artifact.data, 9)).decode()
    return _BINARY.format(text="\n".join(textwrap.wrap(packed, 112)))


# -- C ----------------------------------------------------------------------------------------------------

_HEADER = """\
/* {summary}.
 * Written by cujit {version} (cujit embed --language c). Do not edit: embed the image again.
 *
 * C99 and C++. The image is a static array: include this in one file of a program. The driver takes it as it is:
 *     cuModuleLoadData(&module, {prefix}_image);
 */
#ifndef {guard}
#define {guard}

#include <stddef.h>
#include <stdint.h>

#define {macro}_SIZE ((size_t){size})
#define {macro}_KERNEL_COUNT ((size_t){count})

{kernels}
#if defined(__cplusplus) && __cplusplus >= 201103L
#define {macro}_ALIGNED alignas(16)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define {macro}_ALIGNED _Alignas(16)
#elif defined(_MSC_VER)
#define {macro}_ALIGNED __declspec(align(16))
#elif defined(__GNUC__)
#define {macro}_ALIGNED __attribute__((aligned(16)))
#else
#define {macro}_ALIGNED
#endif

/* {macro}_SIZE bytes, little-endian, and at least one zero byte after them. */
{macro}_ALIGNED static const uint64_t {prefix}_image[] = {{
{words}
}};

#undef {macro}_ALIGNED

#endif
"""


def c_header(artifact: Embeddable, prefix: str) -> str:
    """Return a header for C99 and C++ with the image, its size, and the lowered name of every known kernel.

    All names begin with ``prefix_`` (``PREFIX_`` for macros). Equal Artifacts give equal text.

    The image is an array of 64-bit words. A string would compile faster (8 MB with gcc 12: 0.8 s, words 3.4 s, bytes 11
    s and three times the memory). But compilers may reject strings of more than 4,095 characters, and Microsoft's
    compiler allows 65,535.

    Source: C99, 5.2.4.1 "Translation limits"; Microsoft C++, "Compiler Error C2026"; measured.

    Raises:
        OptionError: ``prefix`` is not an identifier in C and C++.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", prefix) or "__" in prefix:
        raise OptionError(
            f"{spell(prefix)} is not a valid identifier in C or C++",
            help=f"use a name such as {spell(c_identifier(prefix))}",
        )
    return _HEADER.format(
        summary=_summary(artifact),
        version=__version__,
        prefix=prefix,
        macro=prefix.upper(),
        guard=f"CUJIT_{prefix.upper()}_H",
        size=len(artifact.data),
        count=len(artifact.names),
        kernels=_c_kernels(artifact, prefix),
        words=_c_words(artifact.data),
    )


def c_identifier(text: str) -> str:
    """Return a C identifier for a text: ``axpy_float`` for ``axpy<float>``."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_") or "image"
    return f"image_{name}" if name[0].isdigit() else name


def _c_kernels(artifact: Embeddable, prefix: str) -> str:
    """Return a constant for each kernel, and a table of all kernels. A number distinguishes names that
    are equal in C.
    """
    taken: set[str] = set()
    lines, rows = [], []
    for expression, lowered in artifact.names.items():
        plain = name = c_identifier(expression)
        number = 2
        while name in taken:
            name, number = f"{plain}_{number}", number + 1
        taken.add(name)
        lines.append(f"static const char {prefix}_kernel_{name}[] = {_c_string(lowered)};")
        rows.append(f"    {{{_c_string(expression)}, {prefix}_kernel_{name}}},")
    if not rows:
        return ""
    head = f"/* What kernels are called in the source, and in the image. */\n{chr(10).join(lines)}\n\n"
    table = f"static const struct {{\n    const char *expression;\n    const char *lowered;\n}} {prefix}_kernels[] = {{"
    return f"{head}{table}\n{chr(10).join(rows)}\n}};\n"


def _c_string(text: str) -> str:
    """A literal; what is not plain is spelled in octal, a question mark too (C99 has trigraphs)."""
    plain = (chr(b) if 32 <= b < 127 and chr(b) not in '"\\\\?' else f"\\{b:03o}" for b in text.encode())
    return f'"{"".join(plain)}"'


def _c_words(data: bytes) -> str:
    """Return the words of an image as C literals. Zeros pad the last word and terminate the image."""
    padded = data + bytes(8 - len(data) % 8)
    words = [f"0x{int.from_bytes(padded[i : i + 8], 'little'):x}" for i in range(0, len(padded), 8)]
    return ",\n".join(f"    {', '.join(words[i : i + 6])}" for i in range(0, len(words), 6))
