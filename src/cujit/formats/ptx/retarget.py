"""PTX for an older assembler: another ``.version`` or ``.target`` where everything that the text uses allows it.

Only the number after ``.version`` and the name after ``.target`` are rewritten; every other byte stays as it is, so
that comments, debug data and line numbers of messages stay true, and nothing hangs on how a printer lays PTX out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

from cujit.arch import Arch
from cujit.arch.support import NEWEST, Version, dotted, extra_for, install, knows, toolkit_of_ptx
from cujit.artifact import Artifact, Kind
from cujit.errors import FormatError, OptionError, UnsupportedError, spell
from cujit.formats.ptx.isa.since import number_of
from cujit.formats.ptx.isa.table import NEWEST_PTX
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.syntax import Directive, Module
from cujit.formats.ptx.tokens import Cursor
from cujit.formats.ptx.uses import Need, construct_needs, removed_constructs
from cujit.formats.ptx.versions import check_head, declared_target, target_version
from cujit.values import NamedTuple, replace

Ptx = TypeVar("Ptx", str, bytes, Artifact)

_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})")
_SHOWN = 12


class Obstacle(NamedTuple):
    """What stands in the way of another version or target: line, construct, and why it does."""

    line: int
    construct: str
    why: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.construct} {self.why}"


def retarget(ptx: Ptx, *, version: Version | str | None = None, arch: Arch | str | None = None) -> Ptx:
    """Give PTX another ``.version``, another ``.target``, or both, where everything that it uses allows that.

    What is not said stays. Nothing but the two words is changed; the instruction table tells what every construct
    needs, and a construct that it does not know is taken to need what the text declares.

    Args:
        ptx: text, its bytes, or an Artifact; so is the result.
        version: ``(8, 4)`` or ``"8.4"``.
        arch: ``"compute_80"`` or ``"sm_80"``, which mean the same here.

    Raises:
        UnsupportedError: something in the text is newer than that; ``items`` has every such construct with its line
            and the version or the architecture that introduced it.
        PtxSyntaxError: the text is not PTX.
        FormatError: the Artifact or the bytes are not PTX.
        ArchError: the architecture is malformed, or unknown.
        OptionError: the version is malformed, or there is no such version.

    Example::

        older = cujit.retarget(ptx, version="8.0")
        assert ".version 8.0" in older.text
    """
    wanted_version = None if version is None else _read_version(version)
    wanted_arch = None if arch is None else Arch.parse(arch)
    if isinstance(ptx, Artifact):
        if ptx.kind is not Kind.PTX:
            raise FormatError(f"this is a {ptx.kind.value}; only PTX has a version to be changed")
        text = retarget_text(ptx.text, wanted_version, wanted_arch, name=ptx.name or "<ptx>")
        made = wanted_arch.virtual if wanted_arch and ptx.arch else ptx.arch
        return replace(ptx, data=text.encode(), arch=made, provenance=None)  # no cache has this
    if isinstance(ptx, str):
        return retarget_text(ptx, wanted_version, wanted_arch)
    if not isinstance(ptx, (bytes, bytearray, memoryview)):
        raise FormatError(f"PTX is a str, bytes or an Artifact, not {type(ptx).__name__}")
    try:
        return retarget_text(bytes(ptx).decode(), wanted_version, wanted_arch).encode()
    except UnicodeDecodeError as e:
        raise FormatError("this is no PTX: it is not text", offset=e.start) from None


def retarget_text(text: str, version: Version | None, arch: Arch | None, *, name: str = "<ptx>") -> str:
    """Do what ``retarget`` does to text.

    Raises:
        UnsupportedError: something in the text is newer than that.
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


def obstacles(module: Module, version: Version, arch: Arch | None = None, *, target_line: int = 0) -> list[Obstacle]:
    """List what in ``module`` does not exist in PTX ISA ``version``, or not for ``arch``, by line.

    ``target_line`` is where its ``.target`` stands, which a Module does not tell.
    """
    declared = declared_target(module)
    target = arch or declared
    needed = target_version(target) if target else None
    found = [o for need in construct_needs(module) if (o := _obstacle(need, module, version, arch, declared))]
    if target is not None and needed is not None and needed > version:
        found.append(Obstacle(target_line, f".target {target.real}", f"came with PTX {dotted(needed)}"))
    found += _removed(module, version, target, declared)
    if arch is not None:
        changed = (d for d in module.items if isinstance(d, Directive) and d.name == "target")
        found += (Obstacle(d.line, ".target", "is changed again in the middle of the text") for d in changed)
    return sorted(found)


def _removed(module: Module, version: Version, target: Arch | None, declared: Arch | None) -> Iterator[Obstacle]:
    """Find what is gone in that version, or for that target, and was not where the text comes from."""
    number = target.number if target else 0
    is_moved = declared is not None and number != declared.number
    for line, construct, since in removed_constructs(module, version, number):
        if is_moved or module.version < since:
            yield Obstacle(line, construct, f"is gone since PTX {dotted(since)}")


def lowest_version(module: Module) -> Version:
    """Give the lowest version that ``module`` could have: that of the newest thing in it, its target included."""
    target = declared_target(module)
    own = module.target[0].removeprefix("sm_")
    needed = [need.since.of(own) or need.ptx for need in construct_needs(module)]
    needed += [v for v in (target_version(target) if target else None,) if v is not None]
    return max(needed, default=module.version)


def _obstacle(
    need: Need, module: Module, version: Version, arch: Arch | None, declared: Arch | None
) -> Obstacle | None:
    """Say why a construct does not go into that version or that architecture, if it does not."""
    target = arch or declared
    name = f"{target.number}{target.suffix}" if target is not None else ""
    first = need.since.of(name)
    wanted = need.ptx if first is None or need.since.is_as_old_as_its_target(name) else first
    if wanted > version:
        if not need.is_known:
            return Obstacle(need.line, need.construct, f"is in no table of PTX up to {dotted(module.version)}")
        return Obstacle(need.line, need.construct, f"came with PTX {dotted(wanted)}")
    if arch is None or arch == declared or first is not None:
        return None
    if not need.is_known:
        return Obstacle(need.line, need.construct, f"is in no table of sm_{arch.number}")
    near = need.since.nearest(f"{arch.number}{arch.suffix}", version)
    if number_of(near) > arch.number:
        return Obstacle(need.line, need.construct, f"came with sm_{near}")
    others = "alone" if len(need.since.versions) == 1 else "and others like it"
    return Obstacle(need.line, need.construct, f"is for sm_{near} {others}")


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
        raise OptionError(f"a PTX version is a text such as '8.4' or a pair such as (8, 4), not {spell(version)}")
    if not (1, 0) <= (major, minor) <= (NEWEST_PTX[0], NEWEST_PTX[1] + 9):
        raise OptionError(f"there is no PTX {major}.{minor}", help=f"the newest known is {dotted(NEWEST_PTX)}")
    return major, minor


def _message(module: Module, version: Version, arch: Arch | None, found: Sequence[Obstacle]) -> str:
    to = f"PTX {dotted(version)}" + (f" for {arch.real}" if arch else "")
    lines = [f"  {obstacle}" for obstacle in found[:_SHOWN]]
    if len(found) > _SHOWN:
        lines.append(f"  … and {len(found) - _SHOWN} more")
    return "\n".join((f"this PTX {dotted(module.version)} cannot become {to}:", *lines))


def _help(module: Module, arch: Arch | None) -> str:
    toolkit = toolkit_of_ptx(module.version)
    target = arch or declared_target(module)
    if target is not None and not knows(NEWEST, target):
        return f"compile it with the last toolkit that builds for {target.real}: {install(extra_for(target))}"
    if toolkit is None:
        return "build a cubin instead: target sm_…"
    return f"assemble it with the nvJitLink of CUDA {dotted(toolkit)} or later: cujit.link([ptx], arch='sm_…')"
