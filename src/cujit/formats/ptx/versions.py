"""The first lines of a module: which ``.version`` and ``.target`` there are, and since when."""

from __future__ import annotations

import re

from cujit.arch import Arch
from cujit.arch.arch import KNOWN_ARCHES
from cujit.arch.support import Version, dotted
from cujit.formats.ptx.isa.since import FIRST
from cujit.formats.ptx.isa.table import NEWEST_PTX
from cujit.formats.ptx.syntax import PtxModule
from cujit.formats.ptx.tokens import fail_at_construct

_TARGET = re.compile(r"sm_([1-9][0-9]{1,2})[af]?")
_TARGET_MODES = frozenset({"texmode_unified", "texmode_independent", "debug", "map_f64_to_f32"})


def is_known_version(module: PtxModule) -> bool:
    """Return whether the instruction table covers a module's version. Constructs outside the table are then invalid."""
    return module.version <= NEWEST_PTX


def is_target(name: str) -> bool:
    """Return whether there is, or was, a target of that name: ``sm_90a``, ``sm_20``."""
    return name.startswith("sm_") and name.removeprefix("sm_") in FIRST


def check_head(module: PtxModule, text: str, name: str) -> None:
    """Check that the version and the target of a module exist. It was parsed from ``text``.

    A newer version with the same major number is accepted, and its targets are not checked.

    Raises:
        PtxSyntaxError: the version or the target doesn't exist. ``name`` is the file name in messages.
    """
    if module.version[0] > NEWEST_PTX[0]:
        known = f"the newest that cujit knows is {dotted(NEWEST_PTX)}"
        fail_at_construct(text, name, 1, ".version", f"there is no PTX {dotted(module.version)}", help=known)
    if is_known_version(module):
        _check_target(module, text, name)


def declared_target(module: PtxModule) -> Arch | None:
    """Return the architecture of the declared target, or None if no known toolkit supports it."""
    match = _TARGET.fullmatch(module.target[0]) if module.target else None
    return Arch.parse(match[0]).virtual if match and int(match[1]) in KNOWN_ARCHES else None


def target_version(arch: Arch) -> Version | None:
    """Return the first PTX ISA with a target. None if no known toolkit has it.

    Source: ``isa.since.FIRST``.
    """
    return FIRST.get(f"{arch.number}{arch.suffix}")


def _check_target(module: PtxModule, text: str, name: str) -> None:
    if not is_target(module.target[0]):
        newest = max(KNOWN_ARCHES)
        why = f"there is no target {module.target[0][:60]!r}"
        fail_at_construct(
            text, name, 1, ".target", why, help=f"the newest architecture that cujit knows is sm_{newest}"
        )
    for word in module.target[1:]:
        if word not in _TARGET_MODES:
            fail_at_construct(text, name, 1, ".target", f"there is no mode {word[:60]!r} of a target")
