"""What the CPU device finds wrong with each of many statements, which it loads in one module."""

from __future__ import annotations

from collections.abc import Sequence

from cujit.devices.cpu.frontend.layout import ModuleLayout
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.cpu.pipeline import prepare
from cujit.errors import PtxSyntaxError
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.syntax import PtxModule
from cujit.formats.ptx.validity import check_module
from toolkits.minimal import module_of

__all__ = ["mistakes"]


def mistakes(statements: Sequence[str], version: str, target: str) -> dict[str, str]:
    """Return why loading refuses statements, by statement; what is PTX and not executed is none of them."""
    first = module_of(["MARK"], version, target).splitlines().index("MARK") + 1
    found: dict[str, str] = {}
    left = list(statements)
    while True:
        try:
            module = _checked(module_of(left, version, target))
            break
        except PtxSyntaxError as error:  # of the first statement that is none
            found[left.pop((error.line or 0) - first)] = error.message
    refusals = Refusals()
    prepare(module.entries[0], ModuleLayout(module, refusals), refusals)
    found.update({left[line - first]: why for line, _, why, _ in refusals.mistakes})
    return found


def _checked(text: str) -> PtxModule:
    module = parse(text, name="x")
    check_module(module, text, "x")
    return module
