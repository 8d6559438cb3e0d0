"""Nodes: what emitters make, one for each instruction of LLVM IR, and the one printer that makes modules of them.

A node knows its operands as values and where it jumps as labels, so that whoever improves code asks nodes and never
searches text. For example, ``store`` of a float for each lane, aligned to 4 bytes, in ``Builder`` and then printed::

    b.store(Value("%x", "float", 32), "%p", align=4)
    store <32 x float> %x, ptr %p, align 4
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from cujit.devices.cpu.run.dwarf import DebugInfo
from cujit.values import NamedTuple, dataclass, field


class Value(NamedTuple):
    """An LLVM value: its text, its element type (``i32``, ``float``, ``ptr``), and of how many lanes it is a vector.

    A scalar has no ``lanes``; a vector has those of the warp, or of a part of it that runs alone. ``constant`` marks a
    literal, whose vector form is ``splat (…)``.
    """

    text: str
    type: str
    lanes: int = 0
    constant: bool = False

    def __str__(self) -> str:
        return self.text


# What ``frame`` gives every warp's code by name.
LAUNCH = Value("%launch", "ptr")
STATE = Value("%state", "ptr")
"""The block, for warps with stacks of their own."""
BLOCK = Value("%block", "i64")
WARP_NUMBER = Value("%warp", "i32")
FIRST_THREAD = Value("%first.thread", "i32")


@dataclass(slots=True, eq=False)
class Node:
    """One instruction, or the label that begins a basic block.

    ``type`` is what the opcode is written with where no operand says it: what a load gives, what a cast makes.
    ``labels`` are where a jump leads to, or where the values of a ``phi`` come from. ``name`` is the callee of a call,
    the operation of an ``atomicrmw``, what a label is called.
    Memory operations have an alignment in bytes (0 is LLVM's choice) and an order, empty where they are not atomic.
    ``line`` is that of the PTX, 0 where nobody asks for it.
    """

    opcode: str
    operands: tuple[Value, ...] = ()
    result: str = ""
    type: str = ""
    labels: tuple[str, ...] = ()
    name: str = ""
    align: int = 0
    order: str = ""
    volatile: bool = False
    nontemporal: bool = False
    line: int = 0


def text_of(node: Node) -> str:
    """Print a node as a line of LLVM IR."""
    if node.opcode == "label":
        return f"{node.name}:"
    text = _FORMS.get(node.opcode, _binary)(node)
    return f"  {node.result} = {text}" if node.result else f"  {text}"


# -- forms ------------------------------------------------------------------------------------------------


def type_of(value: Value) -> str:
    """Write the LLVM type of a value."""
    return f"<{value.lanes} x {value.type}>" if value.lanes else value.type


def _typed(value: Value) -> str:
    return f"<{value.lanes} x {value.type}> {value.text}" if value.lanes else f"{value.type} {value.text}"


def _list(values: Iterable[Value]) -> str:
    return ", ".join([_typed(value) for value in values])


def _binary(n: Node) -> str:
    return f"{n.opcode} {_typed(n.operands[0])}, {n.operands[1].text}"


def _kind(n: Node) -> str:
    return (" atomic" if n.order else "") + (" volatile" if n.volatile else "")


def _how(n: Node) -> str:
    order = f" {n.order}" if n.order else ""
    align = f", align {n.align}" if n.align else ""
    return order + align + (", !nontemporal !{i32 1}" if n.nontemporal else "")


def _br(n: Node) -> str:
    if not n.operands:
        return f"br label %{n.labels[0]}"
    return f"br i1 {n.operands[0].text}, label %{n.labels[0]}, label %{n.labels[1]}"


def _switch(n: Node) -> str:
    cases = [f"{_typed(v)}, label %{to}" for v, to in zip(n.operands[1:], n.labels[1:], strict=True)]
    return f"switch {_typed(n.operands[0])}, label %{n.labels[0]} [ {' '.join(cases)} ]"


def _phi(n: Node) -> str:
    ways = [f"[ {v.text}, %{label} ]" for v, label in zip(n.operands, n.labels, strict=True)]
    return f"phi {n.type} {', '.join(ways)}"


_LISTS = "select freeze extractelement insertelement shufflevector"
_CASTS = "trunc zext sext fptrunc fpext fptosi fptoui sitofp uitofp ptrtoint inttoptr bitcast"
_IS_CAST = frozenset(_CASTS.split())

_FORMS: Mapping[str, Callable[[Node], str]] = {
    "load": lambda n: f"load{_kind(n)} {n.type}, ptr {n.operands[0].text}{_how(n)}",
    "store": lambda n: f"store{_kind(n)} {_typed(n.operands[0])}, ptr {n.operands[1].text}{_how(n)}",
    "atomicrmw": lambda n: f"atomicrmw {n.name} {_list(n.operands)}{_how(n)}",
    "cmpxchg": lambda n: f"cmpxchg {_list(n.operands)}{_how(n)}",
    "fence": lambda n: f"fence {n.order}",
    "alloca": lambda n: f"alloca {', '.join(filter(None, (n.type, _list(n.operands))))}{_how(n)}",
    "getelementptr": lambda n: f"getelementptr {n.type}, {_list(n.operands)}",
    "extractvalue": lambda n: f"extractvalue {n.type} {n.operands[0].text}, {n.operands[1].text}",
    "call": lambda n: f"call {n.type} {n.name}({_list(n.operands)})",
    "br": _br,
    "switch": _switch,
    "phi": _phi,
    "ret": lambda n: f"ret {_list(n.operands) or 'void'}",
    "unreachable": lambda n: n.opcode,
    **dict.fromkeys(_LISTS.split(), lambda n: f"{n.opcode} {_list(n.operands)}"),
    **dict.fromkeys(_IS_CAST, lambda n: f"{n.opcode} {_typed(n.operands[0])} to {n.type}"),
}
"""How each opcode is written; any other one has two operands of one type."""


# -- modules ----------------------------------------------------------------------------------------------

_ATTRIBUTES = 0
"""Number of the attributes that the function has which is called from elsewhere."""

_UNROLLED = 175_000
"""Characters of IR whose loops may be unrolled: where it is longer, machine code for many turns takes too long. Those
of debug information do not count: code is optimised with it as without."""

_LONG = 2_000_000
"""Characters of IR, counted likewise, beyond which LLVM is to leave out passes that take the square of the blocks: of
7 million, 11.6 CPU seconds went into level 2 and 0.8 into level 1. Measured with LLVM 22.1."""

_HUGE = 3_000_000
"""Characters of IR, counted likewise, beyond which LLVM compiles as quickly as it can, without passes.

Of 4.3 million, for 256 ``mma`` in 9,276 lines of PTX, 2.3 CPU seconds become 1, and the kernel is as quick; products of
doubles are three times slower. A row of 20,000 choices of 5.9 million takes 20 s at level 1, and 2.4 so. Measured with
LLVM 22.1, ``benchmarks/shapes.py`` and ``compile_tail.py``.
"""

MOST_LOOPS = 200
"""Loops of one function beyond which LLVM compiles its module as it does what is huge. For each loop, LLVM's code
generator looks at all others ("loop strength reduction"), and so do its passes: of 400, 5.2 CPU seconds became 0.02,
and of 200, 1. A loop that stays in the registers then takes 7 times as long. Measured with LLVM 22.1.
"""

_MOST_NODES, NODES_EACH = 500_000, 20
"""Nodes of a module, and as how many a basic block counts, as it has masks. Those of pairs of halves count twice.

Of 440,000, for 3,149 ifs inside each other, LLVM takes 0.8 GB; 430,000 of 64 doubles took 1.1 GB. Measured with LLVM
22.1, ``benchmarks/shapes.py``.
"""


class TooLargeError(Exception):
    """There is more of a module than LLVM compiles in a gigabyte of memory."""


_MOST_USES = 4_000
"""Uses of memory on the stack beyond which LLVM must not see where it is from: each time that ``instcombine`` looks at
an ``alloca`` it looks at all uses. Of 22,800, 6.8 CPU seconds of it became 0.3. Measured with LLVM 22.1.
"""

_LEAST = 1_000
"""Nodes of a function beyond which it is looked at for both."""

_MOST_CHAINED = 64
"""Steps of arithmetic, each of which only the next one reads, beyond which one lane of the last is read through memory.

``instcombine`` moves the reading of a lane ahead of each step, and before that looks at all steps ahead of it. Of
9,800, 2.9 CPU seconds of it became 0.07. Measured with LLVM 22.1.
"""

_LONGEST_CHAIN = 5_000
"""Such steps beyond which LLVM compiles a module as it does what is huge. LLVM's scheduler compares all instructions
that use one register: of 40,000, 22 CPU seconds, and without passes a kernel of 50,000 takes 7. A chain of choices is
as slow however often its steps are read: LLVM's two-address pass follows it from each step. Measured likewise.
"""

_MOST_RELOADS = 1_500
"""Reads of one vector, each after another call, beyond which LLVM compiles a module as it does what is huge. LLVM's
greedy register allocation splits the vector at each call, and looks at all of it each time: 3,000 reads take 0.9 CPU
seconds of it, and 15,000 take 60. Measured with LLVM 22.1.
"""


def _with_hidden(nodes: list[Node]) -> tuple[list[Node], bool]:
    """Hide from LLVM what takes it the square of a long function: where very often used stack memory is from, and that
    one lane of a long chain of arithmetic is read. Return the nodes, and whether LLVM is too slow even so.
    """
    if len(nodes) <= _LEAST:
        return nodes, False
    uses = Counter([value.text for node in nodes for value in node.operands])
    found: list[Node] = []
    steps: dict[str, int] = {}
    places: dict[str, Node] = {}
    for node in nodes:
        if node.opcode == "alloca" and uses[node.result] > _MOST_USES:
            found += _hidden(node)
        elif steps.get(node.operands[0].text if node.opcode == "extractelement" else "", 0) > _MOST_CHAINED:
            found += _through_memory(node, places)
        else:
            found.append(node)
            if node.result and (node.opcode not in _FORMS or node.opcode in _IS_CAST):
                steps[node.result] = 1 + max([steps.get(v.text, 0) for v in node.operands if uses[v.text] == 1] or [0])
    begin = [hidden for place in places.values() for hidden in _hidden(place)]
    is_slow = max(steps.values(), default=0) > _LONGEST_CHAIN or _longest_choice(nodes) > _LONGEST_CHAIN
    return begin + found, is_slow or _most_reloads(nodes) > _MOST_RELOADS


def _longest_choice(nodes: Iterable[Node]) -> int:
    """Count the steps of the longest chain of ``select``."""
    steps: dict[str, int] = {}
    for node in nodes:
        if node.opcode == "select":
            steps[node.result] = 1 + max([steps.get(value.text, 0) for value in node.operands[1:]])
    return max(steps.values(), default=0)


def _most_reloads(nodes: Iterable[Node]) -> int:
    """Count for each vector how often it is read with a call since the last time; return the largest count.

    What has become code of LLVM's is no call.
    """
    calls, last, reloads = 0, dict[str, int](), Counter[str]()
    for node in nodes:
        for value in node.operands:
            if value.lanes and value.text[0] == "%":
                if last.get(value.text, calls) < calls:
                    reloads[value.text] += 1
                last[value.text] = calls
        calls += node.opcode == "call" and node.name[0] == "@" and not node.name.startswith("@llvm.")
    return max(reloads.values(), default=0)


def _hidden(node: Node) -> tuple[Node, Node]:
    """Pass stack memory through inline assembly, which does nothing."""
    shown, node.result = node.result, f"{node.result}.own"
    return node, Node("call", (Value(node.result, "ptr"),), shown, "ptr", name='asm "", "=r,0"', line=node.line)


def _through_memory(node: Node, places: dict[str, Node]) -> list[Node]:
    """Read a lane of a vector from memory, of which each type of vector has a place."""
    vector, lane = node.operands
    if vector.type == "i1":  # lies in memory as bits
        return [node]
    kind = type_of(vector)
    name = f"%chained.{vector.lanes}.{vector.type}"
    places.setdefault(kind, Node("alloca", result=name, type=kind))
    place, at = Value(name, "ptr"), f"{node.result}.at"
    return [
        Node("store", (vector, place), line=node.line),
        Node("getelementptr", (place, lane), at, vector.type, line=node.line),
        Node("load", (Value(at, "ptr"),), node.result, vector.type, line=node.line),
    ]


@dataclass
class IrModule:
    """The module of a kernel: its functions, each printed as soon as it is complete, and those that they call by name.

    ``functions`` are the texts of those that it defines, ``declared`` of those that stand elsewhere, by name.

    With ``debug``, functions are printed with the lines that they come from. ``has_loops`` says whether the kernel has
    loops of its own, ``is_huge`` whether LLVM is to leave out its passes, as it does of modules that are long: their
    control flow takes some of them the square of their length.
    """

    debug: DebugInfo | None = None
    has_loops: bool = True
    is_huge: bool = False
    functions: dict[str, str] = field(default_factory=dict)
    declared: dict[str, str] = field(default_factory=dict)
    _constants: dict[str, str] = field(default_factory=dict)
    _debug_length: int = 0
    _nodes: int = 0

    def grow(self, nodes: int = NODES_EACH) -> None:
        """Count nodes that a function of it gets, or a basic block.

        Raises:
            TooLargeError: they are more than LLVM compiles.
        """
        self._nodes += nodes
        if self._nodes > _MOST_NODES:
            raise TooLargeError

    def define(
        self,
        name: str,
        parameters: str | Iterable[Value],
        nodes: Iterable[Node],
        returned: str = "void",
        attributes: str = "noinline",
        linkage: str = "internal",
    ) -> None:
        """Print a function that others may call."""
        if not isinstance(parameters, str):
            parameters = _list(parameters)
        shown, is_slow = _with_hidden(list(nodes))
        self.is_huge |= is_slow
        about, lines = self._printed(name, shown, is_internal=bool(linkage))
        if not linkage:
            attributes = f"#{_ATTRIBUTES} {attributes}"
        words = ("define", linkage, returned, f"@{name}({parameters})", attributes.strip(), about, "{")
        self.functions[name] = "\n".join([" ".join(filter(None, words)), "entry:", *lines, "}"])

    def _printed(self, name: str, nodes: Sequence[Node], *, is_internal: bool) -> tuple[str, list[str]]:
        """Print nodes, and what the head says of their lines.

        A function that comes from no line needs none, unless it is the one that all others may become a part of.
        """
        if self.debug is None or (is_internal and not any(node.line for node in nodes)):
            return "", [text_of(node) for node in nodes]
        about, behind = self.debug.function(name.strip('"'))
        added = ["" if node.opcode == "label" else behind(node.line) for node in nodes]
        self._debug_length += sum(map(len, added))
        return about, [text_of(node) + more for node, more in zip(nodes, added, strict=True)]

    def constant(self, name: str, fields: Sequence[Value]) -> Value:
        """Add a structure of constants to the module, and return a pointer to it."""
        types, items = ", ".join(v.type for v in fields), ", ".join(f"{v.type} {v.text}" for v in fields)
        self._constants[name] = f"@{name} = internal constant {{ {types} }} {{ {items} }}"
        return Value(f"@{name}", "ptr")

    def text(self, *first: str) -> str:
        """Write the module; the functions whose names are given stand ``first``."""
        rest = (name for name in self.functions if name not in first)
        functions = [self.functions[name] for name in (*first, *rest)]
        text = "\n".join([*self._constants.values(), *functions, *self.declared.values()])
        length = len(text) - self._debug_length
        facts = {"long": length > _LONG, "loops": self.has_loops, "unrolls": length <= _UNROLLED}  # see ``optimise``
        if self.is_huge or length > _HUGE:
            facts["huge"] = True
        words = " ".join(f'"cujit-{fact}"="{"yes" if holds else "no"}"' for fact, holds in facts.items())
        attributes = f"attributes #{_ATTRIBUTES} = {{ {words} }}"
        return "\n".join([text, attributes, *(self.debug.lines if self.debug is not None else ())])
