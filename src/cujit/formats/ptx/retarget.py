"""PTX for an older assembler, with another ``.version`` or ``.target`` if every construct in the text allows it.

Only the number after ``.version`` and the name after ``.target`` are rewritten. Every other byte is unchanged, so
comments, debug data, and line numbers in messages stay correct. The result does not depend on the layout of a printer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from cujit.arch import Arch
from cujit.arch.support import NEWEST, Version, dotted, extra_for, install, knows, toolkit_of_ptx
from cujit.artifact import Artifact, magic
from cujit.errors import FormatError, OptionError, UnsupportedError, spell
from cujit.errors.hints import Hint
from cujit.formats.ptx.isa.table import NEWEST_PTX
from cujit.formats.ptx.obstacles import Obstacle, obstacles
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.recovered import as_ptx, ptx_of_cubin
from cujit.formats.ptx.syntax import PtxModule
from cujit.formats.ptx.tokens import Cursor
from cujit.formats.ptx.versions import check_head, declared_target
from cujit.values import replace

Ptx = TypeVar("Ptx", str, bytes, Artifact)

_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})")
_SHOWN = 12


def retarget(ptx: Ptx, *, version: Version | str | None = None, arch: Arch | str | None = None) -> Ptx:
    """Return PTX with a different ``.version`` or ``.target``, if every construct in the PTX allows the change.

    The function changes only these two directives. An unknown construct is assumed to require the declared version and
    target.

    Args:
        ptx: PTX as text, bytes, or an Artifact. The result has the same type. For a cubin, the function uses the PTX in
            its line information.
        version: PTX version, as ``(8, 4)`` or ``"8.4"``.
        arch: target architecture, as ``"compute_80"`` or ``"sm_80"``, which have the same meaning here.

    Raises:
        UnsupportedError: a construct requires a newer version or target. ``items`` lists each construct with its line
            and the version or architecture that introduced it.
        PtxSyntaxError: the text is not PTX.
        FormatError: the Artifact or the bytes are neither PTX nor a cubin that contains PTX.
        ArchError: the architecture is malformed or unknown.
        OptionError: the version is malformed or doesn't exist.

    Example::

        older = cujit.retarget(ptx, version="8.0")
        assert ".version 8.0" in older.text
    """
    wanted_version = None if version is None else _read_version(version)
    wanted_arch = None if arch is None else Arch.parse(arch)
    if isinstance(ptx, Artifact):
        source = as_ptx(ptx)
        text = retarget_text(source.text, wanted_version, wanted_arch, name=source.name or "<ptx>")
        made = wanted_arch.virtual if wanted_arch and source.arch else source.arch
        # No cache has this.
        return replace(ptx, kind=source.kind, data=text.encode(), arch=made, log=source.log, provenance=None)
    if isinstance(ptx, str):
        return retarget_text(ptx, wanted_version, wanted_arch)
    if not isinstance(ptx, (bytes, bytearray, memoryview)):
        raise FormatError(f"PTX must be a str, bytes or an Artifact, not {type(ptx).__name__}")
    data = bytes(ptx)
    try:
        text = ptx_of_cubin(data) if data.startswith(magic.ELF) else data.decode()
        return retarget_text(text, wanted_version, wanted_arch).encode()
    except UnicodeDecodeError as e:
        raise FormatError("the data is not PTX, because it is not text", offset=e.start) from None


def retarget_text(text: str, version: Version | None, arch: Arch | None, *, name: str = "<ptx>") -> str:
    """Return PTX text with another version or target, as ``retarget`` does.

    Raises:
        UnsupportedError: a construct needs a newer version or target.
        PtxSyntaxError: the text is not PTX.
    """
    module = parse(text, name=name)
    check_head(module, text, name)
    to_version = version or module.version
    in_the_way = obstacles(module, to_version, arch, target_line=_line_of(text, ".target"))
    if in_the_way:
        raise UnsupportedError(
            _message(module, to_version, arch, in_the_way), items=in_the_way, help=_help(module, arch)
        )
    return _rewritten(text, to_version if version else None, arch)


def _rewritten(text: str, version: Version | None, arch: Arch | None) -> str:
    """Change the number after the first ``.version`` and the name after the first ``.target``."""
    cursor = Cursor(text.rstrip("\0"), "<ptx>")
    changes: list[tuple[int, str, str]] = []
    if version is not None:
        at = cursor.words.index(".version") + 1
        changes.append((cursor.starts[at], cursor.words[at], dotted(version)))
    if arch is not None:
        at = cursor.words.index(".target") + 1
        changes.append((cursor.starts[at], cursor.words[at], str(arch.real)))
    for start, old, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[start + len(old) :]
    return text


def _line_of(text: str, word: str) -> int:
    cursor = Cursor(text.rstrip("\0"), "<ptx>")
    cursor.index = cursor.words.index(word)
    return cursor.line()


def _read_version(version: object) -> Version:
    if isinstance(version, str) and (match := _VERSION.fullmatch(version)):
        major, minor = int(match[1]), int(match[2])
    elif isinstance(version, tuple) and len(version) == 2 and all(type(n) is int for n in version):
        major, minor = version
    else:
        raise OptionError(f"expected a PTX version such as '8.4' or (8, 4), not {spell(version)}")
    if not (1, 0) <= (major, minor) <= (NEWEST_PTX[0], NEWEST_PTX[1] + 9):
        raise OptionError(
            f"there is no PTX version {major}.{minor}",
            help=f"the newest version that cujit knows is {dotted(NEWEST_PTX)}",
        )
    return major, minor


def _message(module: PtxModule, version: Version, arch: Arch | None, found: Sequence[Obstacle]) -> str:
    to = f"PTX {dotted(version)}" + (f" for {arch.real}" if arch else "")
    lines = [f"  {obstacle}" for obstacle in found[:_SHOWN]]
    if len(found) > _SHOWN:
        lines.append(f"  … and {len(found) - _SHOWN} more")
    return "\n".join((f"this PTX {dotted(module.version)} can't become {to}:", *lines))


def _help(module: PtxModule, arch: Arch | None) -> str:
    toolkit = toolkit_of_ptx(module.version)
    target = arch or declared_target(module)
    if target is not None and not knows(NEWEST, target):
        return f"compile it with the last toolkit that builds for {target.real}: {install(extra_for(target))}"
    if toolkit is None:
        return "build a cubin instead: target sm_…"
    return Hint(
        f"assemble it with nvJitLink of CUDA {dotted(toolkit)} or later: cujit.link([ptx], arch='sm_…')",
        shell=f"assemble it with nvJitLink of CUDA {dotted(toolkit)} or later: cujit link FILE -a sm_… -o x.cubin",
    )
