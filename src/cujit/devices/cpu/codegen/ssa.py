"""Variables of the emitted code become values: a phi stands only where different ones meet, and it is read later.

For example, after ``write("x", 1)`` in block ``a`` and ``write("x", %v)`` in ``b``, ``read("x")`` in ``m`` is the phi::

    a:  br i1 %c, label %b, label %m
    b:  br label %m
    m:  %x$1 = phi i32 [ 1, %a ], [ %v, %b ]

Where that takes more phis than the code is long, as of masks in nests of loops, the variables with most of them lie in
memory instead, so that what is emitted is linear in the code.

Source: Cytron et al., "Efficiently Computing Static Single Assignment Form and the Control Dependence Graph", 1991, for
where phis stand; Sreedhar and Gao, "A Linear Time Algorithm for Placing phi-Nodes", 1995, for how to find that from the
leaves of the dominator tree up. Sets of variables are the bits of ints.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Collection, Container, Mapping, Sequence

import numpy as np

from cujit.devices.cpu.analysis.dataflow import bits_of, dominators, joined
from cujit.devices.cpu.codegen.nodes import Node, Value, type_of
from cujit.values import NamedTuple, dataclass, field

_MOST_WAYS, _MOST_WAYS_EACH = 10_000, 2
"""Ways into phis that a body may have: so many, and so many for each of its nodes."""

_MOST_BITS = 1 << 28
"""Blocks times variables, beyond which no variable becomes values: the sets of those that are live take a bit each."""

_MOST_PASSES = 40
"""Passes over all blocks that find what is live."""


class Spread(NamedTuple):
    """How large a body is: variables that live at begins of blocks, counted at each, and most ways through a block."""

    live: int
    ways: int


class SsaVariable(NamedTuple):
    """What a variable is at first, and its LLVM type."""

    first: Value
    type: str


@dataclass(slots=True, eq=False)
class IrBlock:
    """What a basic block does with variables: those that it reads first, by the value that stands for what it finds,
    and what each is at its end."""

    label: str
    found: dict[str, Value] = field(default_factory=dict)
    left: dict[str, Value] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _TextPiece:
    """A block with its nodes, where it leads, and where ways to it come from; ``number`` is in reverse postorder."""

    block: IrBlock
    nodes: list[Node] = field(default_factory=list)
    after: list[_TextPiece] = field(default_factory=list)
    before: list[_TextPiece] = field(default_factory=list)
    number: int = -1
    parent: _TextPiece | None = None
    """The nearest block that every way to this one passes."""
    depth: int = 0
    """How many blocks every way to this one passes."""
    live: int = 0
    phis: dict[str, Node] = field(default_factory=dict)


def in_ssa(
    body: Sequence[Node],
    first: IrBlock,
    blocks: Mapping[str, IrBlock],
    variables: Mapping[str, SsaVariable],
    name: Callable[[str], str],
    reserve: Callable[[int], Value],
) -> tuple[list[Node], Spread]:
    """Return the nodes of a body with values in place of variables, without unreachable blocks.

    Give too what the time of LLVM's passes depends on.

    The body begins in ``first``, where variables are zero; ``blocks`` are the others. ``variables`` are those that are
    read; ``name`` makes a name for a value of one, ``reserve`` has memory of some bytes and points to it.
    """
    pieces = _pieces(body, first, blocks)
    order = _ordered(pieces)
    kept = _place_phis(order, list(variables), len(body))
    if kept:
        _keep(order, kept, variables, name, reserve)
    known = _rename(order, {v: about for v, about in variables.items() if v not in kept}, name)
    reached = {piece.block.label for piece in order}
    nodes = []
    for piece in pieces:
        if piece.number >= 0:
            begin = piece is not order[0]  # whose label is none of ours
            nodes += [*piece.nodes[:begin], *piece.phis.values(), *piece.nodes[begin:]]
    for node in nodes:
        if not known.keys().isdisjoint([value.text for value in node.operands]):
            node.operands = tuple([value._replace(text=known.get(value.text, value.text)) for value in node.operands])
        if node.opcode == "phi" and not reached.issuperset(node.labels):
            _leave_out(node, reached)
    live = sum(piece.live.bit_count() for piece in order)
    return nodes, Spread(live, max(len(piece.before) * len(piece.after) for piece in order))


def _leave_out(phi: Node, reached: set[str]) -> None:
    """Forget the ways that nothing comes."""
    ways = [way for way in zip(phi.operands, phi.labels, strict=True) if way[1] in reached]
    phi.operands, phi.labels = tuple(value for value, _ in ways), tuple(label for _, label in ways)


# -- blocks -----------------------------------------------------------------------------------------------

ENDS = frozenset({"br", "switch", "ret", "unreachable"})
"""What ends a basic block."""


def _pieces(body: Sequence[Node], first: IrBlock, blocks: Mapping[str, IrBlock]) -> list[_TextPiece]:
    """Cut a body into its blocks. What stands behind the end of one is never done."""
    pieces = {first.label: _TextPiece(first)}
    piece, ended = pieces[first.label], False
    for node in body:
        if node.opcode == "label":
            piece, ended = _TextPiece(blocks[node.name]), False
            pieces[node.name] = piece
        if not ended:
            piece.nodes.append(node)
            ended = node.opcode in ENDS
    for piece in pieces.values():
        # A label that is none of these is outside, where no variable is read.
        piece.after = [pieces[label] for label in piece.nodes[-1].labels if label in pieces]
    return [*pieces.values()]


def _ordered(pieces: Sequence[_TextPiece]) -> list[_TextPiece]:
    """Number the blocks that are reached, the first one first; find the parent of each, and where ways come from."""
    at = {id(piece): k for k, piece in enumerate(pieces)}
    numbers, parents = dominators([[at[id(each)] for each in piece.after] for piece in pieces], 0)
    order = [pieces[k] for k in numbers]
    for number, piece in enumerate(order):
        parent = pieces[parents[at[id(piece)]]]
        piece.number, piece.parent, piece.depth = number, parent, parent.depth + (number > 0)
        for each in piece.after:
            each.before.append(piece)
    return order


# -- variables --------------------------------------------------------------------------------------------


def _place_phis(order: Sequence[_TextPiece], variables: Sequence[str], length: int) -> Collection[str]:
    """Find where phis stand: where blocks that write a variable begin to meet others, if it is read from there on.

    Give the variables that are to lie in memory, as a body of that ``length`` would get too many phis for them.
    """
    most = _MOST_WAYS + _MOST_WAYS_EACH * length
    if len(order) * len(variables) > _MOST_BITS:
        return frozenset(variables)
    bit = {variable: 1 << k for k, variable in enumerate(variables)}
    given = []
    for piece in order:
        block = piece.block
        piece.live = sum([bit[variable] for variable in block.found])
        written = [bit.get(v, 0) for v, value in block.left.items() if value is not block.found.get(v)]
        given.append(sum(written))
    if not _find_live(order, given):
        return frozenset(variables)
    placed = _meetings(order, given)
    kept = _with_most_ways(order, placed, most)
    for piece, phis in zip(order, placed, strict=True):
        piece.phis = {variables[k]: Node("phi") for k in bits_of(phis & ~kept)}
    return {variables[k] for k in bits_of(kept)}


def _meetings(order: Sequence[_TextPiece], given: list[int]) -> list[int]:
    """Find, as bits, the variables that each block needs phis for.

    ``given`` are the variables that each block writes; a phi writes, too. A block needs a phi for a variable that is
    live there if a block writes it that dominates one of those before, but not this one's parent. Such a block is
    at least as deep in the dominator tree. So the deepest blocks come first.
    """
    placed, above = [0] * len(order), [piece.parent or piece for piece in order]
    meetings = sorted([piece for piece in order if len(piece.before) > 1], key=lambda piece: -piece.depth)
    for _, group in itertools.groupby(meetings, lambda piece: piece.depth):
        level, following = [*group], collections.defaultdict(list)
        for meeting in level:
            for way in meeting.before:
                if way.depth >= meeting.depth:
                    top = _join_up_to(meeting.depth, way, above, given)
                    following[top.number].append(meeting)
                    if top is not way:
                        placed[meeting.number] |= given[way.number] & meeting.live
        _pass_on(level, following, placed, given)
    return placed


def _join_up_to(depth: int, piece: _TextPiece, above: list[_TextPiece], given: list[int]) -> _TextPiece:
    """Return the block of a ``depth`` that dominates a piece; give the piece what is given on the way up to it.

    The next call skips the blocks on the way, so that all calls take about as long as there are pieces.
    """
    way = []
    while piece.depth > depth:
        way.append(piece)
        piece = above[piece.number]
    for each in reversed(way[:-1]):
        given[each.number] |= given[above[each.number].number]
        above[each.number] = piece
    return piece


def _pass_on(
    level: Sequence[_TextPiece], following: Mapping[int, Sequence[_TextPiece]], placed: list[int], given: list[int]
) -> None:
    """Place phis, at the blocks of one depth, for what is written at that depth, until no phi asks for another."""
    for meeting in level:
        given[meeting.number] |= placed[meeting.number]
    changed = {*following}
    while changed:
        todo, changed = sorted(changed), set()
        for number in todo:
            for meeting in following.get(number, ()):
                new = given[number] & meeting.live & ~placed[meeting.number]
                if new:
                    placed[meeting.number] |= new
                    given[meeting.number] |= new
                    changed.add(meeting.number)


def _with_most_ways(order: Sequence[_TextPiece], placed: Sequence[int], most: int) -> int:
    """Find the variables, as bits, without which the phis of the others have at most so many ways."""
    total, kept = sum(phis.bit_count() * len(piece.before) for piece, phis in zip(order, placed, strict=True)), 0
    if total <= most:
        return kept
    ways = np.zeros(-(-joined(placed).bit_length() // 8) * 8, np.int64)
    for piece, phis in zip(order, placed, strict=True):
        if phis:
            bits = np.unpackbits(np.frombuffer(phis.to_bytes(len(ways) // 8, "little"), np.uint8), bitorder="little")
            ways += bits * np.int64(len(piece.before))
    for k in np.argsort(-ways, kind="stable").tolist():
        if total <= most:
            break
        kept, total = kept | 1 << k, total - int(ways[k])
    return kept


# -- variables in memory -----------------------------------------------------------------------------------


def _keep(
    order: Sequence[_TextPiece],
    kept: Collection[str],
    variables: Mapping[str, SsaVariable],
    name: Callable[[str], str],
    reserve: Callable[[int], Value],
) -> None:
    """Keep variables in memory: blocks load the variables that they find and store the variables that they leave."""
    places, size = {}, 0
    for variable in sorted(kept, key=lambda v: (-_bytes_of(variables[v].first), v)):
        places[variable], size = size, size + _bytes_of(variables[variable].first)
    frame = reserve(size)
    fresh = {v: variables[v].first for v in places}
    for piece in order:
        found, piece.block.found = _divided(piece.block.found, places)
        left, piece.block.left = _divided(piece.block.left, places)
        changed = {v: value for v, value in left.items() if value is not found.get(v)}
        points = {v: Value(name(v), "ptr") for v in (*fresh, *found, *changed)}
        begin = [Node("getelementptr", (frame, _number(places[v])), at.text, "i8") for v, at in points.items()]
        begin += _stores(points, fresh, name)
        for v, value in found.items():
            begin += _load(points[v], value, name)
        at = sum(node.opcode in ("label", "phi") for node in piece.nodes)
        piece.nodes = [*piece.nodes[:at], *begin, *piece.nodes[at:-1], *_stores(points, changed, name), piece.nodes[-1]]
        fresh = {}


def _stores(points: Mapping[str, Value], values: Mapping[str, Value], name: Callable[[str], str]) -> list[Node]:
    return [node for v, value in values.items() for node in _store(points[v], value, name)]


def _divided(values: Mapping[str, Value], places: Container[str]) -> tuple[dict[str, Value], dict[str, Value]]:
    """Return the values of variables that are in memory, and the values of the other variables."""
    return {v: x for v, x in values.items() if v in places}, {v: x for v, x in values.items() if v not in places}


def _number(value: int) -> Value:
    return Value(str(value), "i64", constant=True)


def _bytes_of(value: Value) -> int:
    """Bytes that a value takes in memory, in which a vector of i1 is a number with a bit for each lane."""
    bits = {"half": 16, "float": 32, "double": 64, "ptr": 64}.get(value.type) or int(value.type[1:])
    return max(bits * (value.lanes or 1) // 8, 1)


def _load(place: Value, value: Value, name: Callable[[str], str]) -> list[Node]:
    """Load what a block finds a variable to be."""
    if not _is_mask(value):
        return [Node("load", (place,), value.text, type_of(value), align=_align_of(value))]
    word = Value(name(""), f"i{value.lanes}")
    return [
        Node("load", (place,), word.text, word.type, align=1),
        Node("bitcast", (word,), value.text, type_of(value)),
    ]


def _store(place: Value, value: Value, name: Callable[[str], str]) -> list[Node]:
    """Store what a block leaves a variable to be."""
    if not _is_mask(value):
        return [Node("store", (value, place), align=_align_of(value))]
    word = Value(name(""), f"i{value.lanes}")
    return [Node("bitcast", (value,), word.text, word.type), Node("store", (word, place), align=1)]


def _is_mask(value: Value) -> bool:
    return bool(value.lanes) and value.type == "i1"


def _align_of(value: Value) -> int:
    """Alignment of a value that lies behind larger ones, from a multiple of 64 on."""
    size = _bytes_of(value)
    return min(size & -size, 64)


def _find_live(order: Sequence[_TextPiece], written: Sequence[int]) -> bool:
    """Find the variables whose values at the begin of each block are read there or later.

    Tell whether that took so few passes as it does unless many loops are inside each other.
    """

    def before(piece: _TextPiece) -> bool:
        was, piece.live = piece.live, piece.live | (joined(each.live for each in piece.after) & ~written[piece.number])
        return was != piece.live

    return any(not sum(map(before, reversed(order))) for _ in range(_MOST_PASSES))


def _rename(
    order: Sequence[_TextPiece], variables: Mapping[str, SsaVariable], name: Callable[[str], str]
) -> dict[str, str]:
    """Fill the phis; give the texts of the values that blocks found, by the names that stand for them."""
    children: list[list[_TextPiece]] = [[] for _ in order]
    for piece in order[1:]:
        assert piece.parent is not None
        children[piece.parent.number].append(piece)
    known: dict[str, str] = {}
    now = {variable: first for variable, (first, _) in variables.items()}
    todo: list[_TextPiece | dict[str, Value]] = [order[0]]
    while todo:
        each = todo.pop()
        if isinstance(each, dict):  # what variables were before a block whose children are done
            now |= each
            continue
        changed = _changes(each, variables, now, known, name)
        todo.append({variable: now[variable] for variable in changed})
        todo += children[each.number]
        now |= changed
        for following in each.after:
            for variable, phi in following.phis.items():
                phi.operands += (now[variable],)
                phi.labels += (each.block.label,)
    return known


def _changes(
    piece: _TextPiece,
    variables: Mapping[str, SsaVariable],
    now: Mapping[str, Value],
    known: dict[str, str],
    name: Callable[[str], str],
) -> dict[str, Value]:
    """Return what variables become in a block. What the block finds is known from here on."""
    found, changed = piece.block.found, {}
    for variable, phi in piece.phis.items():
        first, phi.type = variables[variable]
        phi.result = found[variable].text if variable in found else name(variable)
        changed[variable] = first._replace(text=phi.result)
    for variable, value in found.items():
        if variable not in changed:
            known[value.text] = now[variable].text
    for variable, value in piece.block.left.items():
        if variable in variables and value is not found.get(variable):
            changed[variable] = value._replace(text=known.get(value.text, value.text))
    return changed
