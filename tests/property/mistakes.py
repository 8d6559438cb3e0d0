"""Mistakes in code generation that the oracles have to find: a file of the CPU device, a piece of it, a wrong one.

``python mistakes.py FOLDER NUMBER`` runs the programs of a folder (``cpp-SEED.ptx`` and ``ptx-SEED.ptx`` beside
``*.npy``) with one mistake. It ends with 1 if a result is another one, or nothing comes out, and the last line that it
prints is the program that found that, after how many others.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["MISTAKES"]

_CPU = "cujit.devices.cpu"
_SECONDS = 40
"""A program that takes longer never ends by itself, for the mistake: the process ends by SIGALRM then."""
_BY_FILE: dict[str, tuple[tuple[str, str], ...]] = {
    "instructions.integer": (
        ("lambda b, op, x, y: b.binary(op.opcode,", "lambda b, op, x, y: b.binary(op.opcode.replace('x', ''),"),
        ('b.binary("lshr", wide, b.integer(bits, 2 * bits))', 'b.binary("lshr", wide, b.integer(bits - 1, 2 * bits))'),
        ('b.binary("add", high, b.binary("lshr", cross, half))', 'b.binary("add", high, b.binary("and", cross, low))'),
        ('b.binary("add", b.binary("mul", x1, y1), b.binary("lshr", middle, half))', 'b.binary("mul", x1, y1)'),
        ('b.binary("sub", x, b.binary("mul", result, y))', 'b.binary("add", x, b.binary("mul", result, y))'),
        ('x = b.intrinsic(f"{op.type.kind}{op.opcode}", x, y)', 'x = b.intrinsic(f"u{op.opcode}", x, y)'),
        ('"ctpop", x) if op.opcode == "popc"', '"ctpop", x) if op.opcode != "popc"'),
        ('b.intrinsic("bitreverse", x)', 'b.intrinsic("bswap", x)'),
        ('near = b.binary("shl", x,', 'near = b.binary("lshr", x,'),
        ('near = b.binary("ashr" if signed else "lshr", x', 'near = b.binary("lshr", x'),
        ('"fshl" if left else "fshr"', '"fshr" if left else "fshl"'),
        ("b.resize(y, bits, signed))\n", "b.resize(y, bits, not signed))\n"),
        ('y = b.binary("xor", y, b.integer(-1, bits))', 'y = b.binary("sub", b.integer(0, bits), y)'),
        ('carried = b.compare("icmp ult", total, x)', 'carried = b.compare("icmp ule", total, x)'),
        ('b.binary("or", carried, b.compare("icmp ult", again, total))', "carried"),
    ),
    "instructions.compare": (
        ("{'s' if is_signed else 'u'}{name}", "{'u' if is_signed else 's'}{name}"),
        ('f"fcmp u{name[:2]}" if len(name) == 3', 'f"fcmp o{name[:2]}" if len(name) == 3'),
        ("e.source(op, 0, type_), e.source(op, 1, type_)))", "e.source(op, 1, type_), e.source(op, 0, type_)))"),
    ),
    "instructions.warpwide": (
        ('"or", first, b.binary("and", by, outside))', '"or", first, b.binary("and", lane, outside))'),
        ("return lane + by, lane + by <= last", "return lane + by, lane + by < last"),
        ("return (b.invert(none),)", "return (none,)"),
        ("        return (every,)\n", "        return (b.invert(none),)\n"),
        ('found = b.binary("and", b.load("i32", same', 'found = b.binary("or", b.load("i32", same'),
        ('_NEUTRAL = {"add": 0', '_NEUTRAL = {"add": 1'),
    ),
    "codegen.rounding": (
        ("return b.intrinsic(opcode, *values)", "return b.intrinsic(opcode, *values[::-1])"),
        ('return b.binary(f"f{opcode}", *values)', 'return b.binary(f"f{opcode}", *values[::-1])'),
        ('convert = "sitofp" if is_signed else "uitofp"', 'convert = "uitofp" if is_signed else "sitofp"'),
    ),
    "instructions.convert": (
        ('"fptosi.sat" if is_signed else "fptoui.sat"', '"fptoui.sat" if is_signed else "fptosi.sat"'),
    ),
    "analysis.uniformity": (
        ("return Shape(1, align=WARP)", "return Shape(2, align=WARP)"),
        ("return UNIFORM if first.spans(1 << by)", "return UNIFORM if True"),
        ("UNIFORM if _is_same_for_all(read) else VARYING", "UNIFORM"),
        ("found[index] = op.sources[0].value", "found[index] = op.sources[0].value ^ 1"),
    ),
    "instructions.halves": (
        ('if "ftz" in op.modifiers and name == "f16"', "if False"),
        ('key = b.intrinsic(f"s{op.opcode}", *keys)', 'key = b.intrinsic(f"u{op.opcode}", *keys)'),
        ('b.binary(f"f{op.opcode}", *values)', 'b.binary(f"f{op.opcode}", *values[::-1])'),
    ),
    "instructions.small_formats": (
        ("b.integer(low >> 1, 32)", "b.integer(low, 32)"),
        ("bits = b.select(b.is_nan(x), exact if nan is None else b.integer(nan, 32), bits)", "bits = bits"),
    ),
    "instructions.calls": (
        ('mine = b.binary("and", lanes, b.compare("icmp eq"', 'mine = b.binary("and", lanes, b.compare("icmp ne"'),
        ("local_base(e, first_lane=True), e.symbol(record))", "local_base(e, first_lane=True), b.integer(0, 64))"),
    ),
    "codegen.warp": (
        ("if not self.mask.constant and self.divergence.masked", "if False and self.divergence.masked"),
    ),
}  # fmt: skip
MISTAKES = tuple((f"{_CPU}.{file}", old, new) for file, several in _BY_FILE.items() for old, new in several)


class _Planter(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module with a mistake in it."""

    def __init__(self, name: str, old: str, new: str) -> None:
        self.name, self.old, self.new = name, old, new

    def find_spec(self, name: str, path: Sequence[str] | None, _: ModuleType | None = None) -> Any:
        if name != self.name or path is None:
            return None
        place = Path(path[0]) / f"{name.rpartition('.')[2]}.py"
        return importlib.util.spec_from_file_location(name, place, loader=self)

    def create_module(self, _: Any) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        assert module.__file__ is not None
        text = Path(module.__file__).read_text()
        if self.old not in text:
            sys.exit(3)
        exec(compile(text.replace(self.old, self.new, 1), module.__file__, "exec"), module.__dict__)


def main() -> None:
    """Run them."""
    folder, number = Path(sys.argv[1]), int(sys.argv[2])
    if number >= 0:
        sys.meta_path.insert(0, _Planter(*MISTAKES[number]))
    import numpy as np  # behind the planter, as what follows

    import cujit
    from property.oracles import cpp_results, launcher, ptx_results

    device = cujit.cpu(1)
    for tried, path in enumerate(sorted(folder.glob("*.ptx"), reverse=True)):  # those of PTX first: they take less time
        kind, _, seed = path.stem.partition("-")
        print(f"{path.stem}, after {tried}", flush=True)
        signal.alarm(_SECONDS)
        try:
            launch = launcher(cujit.load(path.read_bytes(), device))
            out = (ptx_results if kind == "ptx" else cpp_results)(int(seed), launch)
        except Exception:
            sys.exit(1)
        if not np.array_equal(out, np.load(path.with_suffix(".npy"))):
            sys.exit(1)


if __name__ == "__main__":
    main()
