"""Variables of the emitted code become values: a phi stands only where different ones meet, and it is read later.

For example, after ``write("x", 1)`` in block ``a`` and ``write("x", %v)`` in ``b``, ``read("x")`` in ``m`` is the phi::

    a:  br i1 %c, label %b, label %m
    b:  br label %m
    m:  %x$1 = phi i32 [ 1, %a ], [ %v, %b ]

Source: Cytron et al., "Efficiently Computing Static Single Assignment Form and the Control Dependence Graph", 1991, for
where phis stand. Sets of variables are the bits of ints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cujit.devices.cpu.analysis.dataflow import bits_of, dominators, joined, solve
from cujit.devices.cpu.codegen.nodes import Node, Value
from cujit.values import NamedTuple, dataclass, field


class Variable(NamedTuple):
    """What a variable is at first, and its LLVM type."""

    first: Value
    type: str


@dataclass(slots=True, eq=False)
class Block:
    """What a basic block does with variables: those that it reads first, by the value that stands for what it finds,
    and what each is at its end."""

    label: str
    found: dict[str, Value] = field(default_factory=dict)
    left: dict[str, Value] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Piece:
    """A block with its nodes, where it leads, and where ways to it come from; ``number`` is in reverse postorder."""

    block: Block
    nodes: list[Node] = field(default_factory=list)
    after: list[_Piece] = field(default_factory=list)
    before: list[_Piece] = field(default_factory=list)
    number: int = -1
    parent: _Piece | None = None
    """The nearest block that every way to this one passes."""
    frontier: list[_Piece] = field(default_factory=list)
    """Where ways from blocks that this one dominates meet others."""
    live: int = 0
    phis: dict[str, Node] = field(default_factory=dict)


def in_ssa(
    body: Sequence[Node],
    first: Block,
    blocks: Mapping[str, Block],
    variables: Mapping[str, Variable],
    name: Callable[[str], str],
) -> list[Node]:
    """Give the nodes of a body with values in place of variables, without the blocks that nothing leads to.

    The body begins in ``first``, where variables are zero; ``blocks`` are the others. ``variables`` are those that are
    read; ``name`` makes a name for a phi of one.
    """
    pieces = _pieces(body, first, blocks)
    order = _ordered(pieces)
    _place_phis(order, list(variables))
    known = _rename(order, variables, name)
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
    return nodes


def _leave_out(phi: Node, reached: set[str]) -> None:
    """Forget the ways that nothing comes."""
    ways = [way for way in zip(phi.operands, phi.labels, strict=True) if way[1] in reached]
    phi.operands, phi.labels = tuple(value for value, _ in ways), tuple(label for _, label in ways)


# -- blocks -----------------------------------------------------------------------------------------------

ENDS = frozenset({"br", "switch", "ret", "unreachable"})
"""What ends a basic block."""


def _pieces(body: Sequence[Node], first: Block, blocks: Mapping[str, Block]) -> list[_Piece]:
    """Cut a body into its blocks. What stands behind the end of one is never done."""
    pieces = {first.label: _Piece(first)}
    piece, ended = pieces[first.label], False
    for node in body:
        if node.opcode == "label":
            piece, ended = _Piece(blocks[node.name]), False
            pieces[node.name] = piece
        if not ended:
            piece.nodes.append(node)
            ended = node.opcode in ENDS
    for piece in pieces.values():
        # A label that is none of these is outside, where no variable is read.
        piece.after = [pieces[label] for label in piece.nodes[-1].labels if label in pieces]
    return [*pieces.values()]


def _ordered(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Number the blocks that are reached, the first one first; find the parent and the frontier of each."""
    at = {id(piece): k for k, piece in enumerate(pieces)}
    numbers, parents = dominators([[at[id(each)] for each in piece.after] for piece in pieces], 0)
    order = [pieces[k] for k in numbers]
    for number, piece in enumerate(order):
        piece.number, piece.parent = number, pieces[parents[at[id(piece)]]]
        for each in piece.after:
            each.before.append(piece)
    for piece in order:
        for each in piece.before if len(piece.before) > 1 else ():
            while each is not piece.parent and each.frontier[-1:] != [piece]:
                each.frontier.append(piece)
                each = each.parent or each
    return order


# -- variables --------------------------------------------------------------------------------------------


def _place_phis(order: Sequence[_Piece], variables: Sequence[str]) -> None:
    """Find where phis stand: where blocks that write a variable begin to meet others, if it is read from there on."""
    bit = {variable: 1 << k for k, variable in enumerate(variables)}
    given = []
    for piece in order:
        block = piece.block
        piece.live = sum([bit[variable] for variable in block.found])
        written = [bit.get(v, 0) for v, value in block.left.items() if value is not block.found.get(v)]
        given.append(sum(written))
    _find_live(order, given)
    placed = [0] * len(order)
    todo = list(order)
    while todo:
        piece = todo.pop()
        for meeting in piece.frontier:
            k = meeting.number
            new = given[piece.number] & meeting.live & ~placed[k]
            if new:
                placed[k] |= new
                given[k] |= new
                todo.append(meeting)
    for piece, phis in zip(order, placed, strict=True):
        piece.phis = {variables[k]: Node("phi") for k in bits_of(phis)}


def _find_live(order: Sequence[_Piece], written: Sequence[int]) -> None:
    """Find the variables whose values at the begin of each block are read there or later."""

    def before(piece: _Piece) -> bool:
        was, piece.live = piece.live, piece.live | (joined(each.live for each in piece.after) & ~written[piece.number])
        return was != piece.live

    solve(order[::-1], before)


def _rename(order: Sequence[_Piece], variables: Mapping[str, Variable], name: Callable[[str], str]) -> dict[str, str]:
    """Fill the phis; give the texts of the values that blocks found, by the names that stand for them."""
    children: list[list[_Piece]] = [[] for _ in order]
    for piece in order[1:]:
        assert piece.parent is not None
        children[piece.parent.number].append(piece)
    known: dict[str, str] = {}
    now = {variable: first for variable, (first, _) in variables.items()}
    todo: list[_Piece | dict[str, Value]] = [order[0]]
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
    piece: _Piece,
    variables: Mapping[str, Variable],
    now: Mapping[str, Value],
    known: dict[str, str],
    name: Callable[[str], str],
) -> dict[str, Value]:
    """Tell what variables become in a block; what it finds is known from here on."""
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
