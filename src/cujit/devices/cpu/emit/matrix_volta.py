"""``mma.m8n8k4`` of f16: four products at once, each by eight lanes, 4q to 4q + 3 and 4q + 16 to 4q + 19.

PTX ISA 9.1, "Matrix Fragments for mma.m8n8k4 with .f16 floating point type".
"""

from __future__ import annotations

from cujit.devices.cpu.emit.builder import Builder, Value
from cujit.devices.cpu.emit.matrix_product import definer
from cujit.devices.cpu.emit.matrix_tiles import at, c_type, packed, put_all, scratch, unpacked, words_of
from cujit.devices.cpu.emit.registry import Rules, types_of
from cujit.devices.cpu.emit.warp import WarpEmitter
from cujit.devices.cpu.program import Op
from cujit.devices.cpu.shapes import WARP

__all__ = ["register"]

Place = tuple[int, int]
"""A lane and the number of an element in it."""


def register(rules: Rules) -> None:
    """Add the rules of this shape."""
    for d, c in (("f16", "f16"), ("f32", "f16 f32")):
        rules.on("mma", d, "f16", "f16", c, modifiers="sync aligned row col", choices=["m8n8k4"])(_mma)


# Where the element of a row and a column is, in the lanes of product q.


def _by_row(q: int, row: int, column: int) -> Place:
    """A by rows (column: k); B by columns (row: its column, column: k)."""
    return 4 * q + row % 4 + 16 * (row // 4), column


def _by_column(q: int, row: int, column: int) -> Place:
    """A by columns (column: k); B by rows (row: its column, column: k)."""
    return 4 * q + column + 16 * (row // 4), row % 4


def _sum_place(kind: str, q: int, row: int, column: int) -> Place:
    """C and D."""
    if kind == "f16":
        return _by_row(q, row, column)
    lane = 4 * q + (row & 1) + (column & 2) + 16 * (row // 4)
    return lane, (row & 2) + (column & 4) + (column & 1)


def _sum_places(kind: str) -> dict[Place, Place]:
    """Row and column (row + 8q, column) of every element of every lane."""
    return {
        _sum_place(kind, q, row, column): (row + 8 * q, column)
        for q in range(4)
        for row in range(8)
        for column in range(8)
    }


def _mma(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    d, _, _, c = types_of(op)
    layouts = [m for m in op.modifiers if m in ("row", "col")]
    name = f"matrix.volta.{layouts[0]}.{layouts[1]}.{d}.{c}"
    place = scratch(e, "volta", 16 * 4 * WARP)
    halves = [h for index in (0, 1) for word in words_of(e, op, index, 2) for h in unpacked(b, word)]
    words = words_of(e, op, 2, 4 if c == "f16" else 8, c_type(c))
    sums = [h for word in words for h in unpacked(b, word)] if c == "f16" else words
    for k, value in enumerate([*halves, *sums]):
        b.line(f"store <{WARP} x float> {value.text}, ptr {at(e, place, 4 * WARP * k)}")
    definer(b)(name, "ptr %at", lambda inner: _products(inner, layouts, d, c))
    b.line(f"call void @{name}(ptr {place})")
    found = [_loaded(b, place, k) for k in range(8)]
    put_all(e, op, [packed(b, x, y) for x, y in zip(found[::2], found[1::2], strict=True)] if d == "f16" else found)


def _loaded(b: Builder, pointer: str, k: int) -> Value:
    there = b.assign(f"getelementptr i8, ptr {pointer}, i64 {4 * WARP * k}")
    return Value(b.assign(f"load <{WARP} x float>, ptr {there}"), "float", True)


def _products(b: Builder, layouts: list[str], d: str, c: str) -> None:
    """From A, B and C at ``at`` (4, 4 and 8 vectors) to D in the place of the first eight."""
    values = [_loaded(b, "%at", k) for k in range(16)]
    place_a = _by_row if layouts[0] == "row" else _by_column
    place_b = _by_column if layouts[1] == "row" else _by_row
    picker = _Picker(b)
    where = _sum_places(d)
    results = []
    for element in range(8):
        cells = [where[lane, element] for lane in range(WARP)]
        places = [_sum_place(c, row // 8, row % 8, column) for row, column in cells]
        total = picker.pick(values[8:], places)
        for k in range(4):
            left = picker.pick(values[:4], [place_a(row // 8, row % 8, k) for row, _ in cells])
            right = picker.pick(values[4:8], [place_b(row // 8, column, k) for row, column in cells])
            total = b.intrinsic("fma", left, right, total)
        results.append(total)
    for element, total in enumerate(results):
        there = b.assign(f"getelementptr i8, ptr %at, i64 {4 * WARP * element}")
        b.line(f"store <{WARP} x float> {total.text}, ptr {there}")


class _Picker:
    """Brings elements from lane to lane; what was brought already is not brought again."""

    def __init__(self, b: Builder) -> None:
        self._b = b
        self._known: dict[tuple[str, tuple[Place, ...]], Value] = {}

    def pick(self, values: list[Value], places: list[Place]) -> Value:
        """Make a vector whose lane k has what is at ``places[k]``."""
        key = (values[0].text, tuple(places))
        if key not in self._known:
            self._known[key] = self._pick(values, places)
        return self._known[key]

    def _pick(self, values: list[Value], places: list[Place]) -> Value:
        result = ""
        full = f"<{WARP} x float>"
        for element in sorted({element for _, element in places}):
            if not result:
                result = values[element].text
                order = [lane for lane, _ in places]
                result = self._shuffle(result, result, order, full)
            else:
                moved = self._shuffle(values[element].text, values[element].text, [lane for lane, _ in places], full)
                order = [k + (WARP if own == element else 0) for k, (_, own) in enumerate(places)]
                result = self._shuffle(result, moved, order, full)
        return Value(result, "float", True)

    def _shuffle(self, x: str, y: str, order: list[int], full: str) -> str:
        picks = ", ".join(f"i32 {k}" for k in order)
        return self._b.assign(f"shufflevector {full} {x}, {full} {y}, <{WARP} x i32> <{picks}>")
