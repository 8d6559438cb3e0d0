"""``mma.m8n8k4`` of f16: four products at once, each by eight lanes, 4q to 4q + 3 and 4q + 16 to 4q + 19.

PTX ISA 9.1, "Matrix Fragments for mma.m8n8k4 with .f16 floating point type".
"""

from __future__ import annotations

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.rounding import canonical
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions.matrix.product import in_function
from cujit.devices.cpu.instructions.matrix.tiles import c_type, packed, put_all, unpacked, words_of
from cujit.devices.cpu.ir.program import Op

__all__ = ["register"]

Place = tuple[int, int]
"""A lane and the number of an element in it."""


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("mma .m8n8k4 .f16|f32", _mma)


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
    d, _, _, c = op.types
    layouts = [m for m in op.modifiers if m in ("row", "col")]
    given = [word for index in (0, 1) for word in words_of(e, op, index, 2)]
    given += words_of(e, op, 2, 4 if c == "f16" else 8, c_type(c))

    def body(b: Builder, words: list[Value]) -> list[Value]:
        halves = [h for word in words[:4] for h in unpacked(b, word)]
        sums = [h for word in words[4:] for h in unpacked(b, word)] if c == "f16" else words[4:]
        found = _products(b, layouts, d, c, [*halves, *sums])
        return [packed(b, x, y) for x, y in zip(found[::2], found[1::2], strict=True)] if d == "f16" else found

    made = [c_type(d)] * (4 if d == "f16" else 8)
    put_all(e, op, in_function(e.builder, op.name, given, made, body))


def _products(b: Builder, layouts: list[str], d: str, c: str, values: list[Value]) -> list[Value]:
    """From A, B and C (4, 4 and 8 vectors) to D."""
    place_a = _by_row if layouts[0] == "row" else _by_column
    place_b = _by_column if layouts[1] == "row" else _by_row
    picker = _Picker(b)
    where = _sum_places(d)
    results = []
    for element in range(8):
        cells = [where[lane, element] for lane in range(WARP)]
        places = [_sum_place(c, row // 8, row % 8, column) for row, column in cells]
        pairs = [
            (
                picker.pick(values[:4], [place_a(row // 8, row % 8, k) for row, _ in cells]),
                picker.pick(values[4:8], [place_b(row // 8, column, k) for row, column in cells]),
            )
            for k in range(4)
        ]
        results.append(canonical(b, _sum(b, pairs, picker.pick(values[8:], places), by_pairs=c == "f16" == d)))
    return results


def _sum(b: Builder, pairs: list[tuple[Value, Value]], c: Value, *, by_pairs: bool) -> Value:
    """Sum as the code does that ptxas 13.0 makes for sm_90: the products in their order, from 0, and C at last.

    Where C and D are f16: C and the first two products, and then the last two.
    """

    def chain(total: Value, some: list[tuple[Value, Value]]) -> Value:
        for left, right in some:
            total = b.intrinsic("fma", left, right, total)
        return total

    if not by_pairs:
        return b.binary("fadd", c, chain(b.vector(b.real(0, 32)), pairs))
    first, last = (chain(b.binary("fmul", *two[0]), two[1:]) for two in (pairs[:2], pairs[2:]))
    return b.binary("fadd", b.binary("fadd", c, first), last)


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
        result: Value | None = None
        for element in sorted({element for _, element in places}):
            if result is None:
                result = values[element]
                order = [lane for lane, _ in places]
                result = self._b.shuffle(result, result, order)
            else:
                moved = self._b.shuffle(values[element], values[element], [lane for lane, _ in places])
                order = [k + (WARP if own == element else 0) for k, (_, own) in enumerate(places)]
                result = self._b.shuffle(result, moved, order)
        assert result is not None
        return result
