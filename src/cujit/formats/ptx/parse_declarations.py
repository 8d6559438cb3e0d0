"""Variables, parameters, registers and initial values. Each function's docstring is the rule that it reads.

Source: PTX ISA 9.1, chapter 5 "State Spaces, Types, and Variables".
"""

from __future__ import annotations

from cujit.formats.ptx import syntax as ptx
from cujit.formats.ptx.constants import constant_expression, integer, numbers
from cujit.formats.ptx.parameters import ELEMENT_BYTES
from cujit.formats.ptx.parse_operands import symbol_offset
from cujit.formats.ptx.register_names import Names
from cujit.formats.ptx.tokens import DIRECTIVE, NAME, NUMBERS, STRING, Cursor
from cujit.values import dataclass

LINKAGES = frozenset((".extern", ".visible", ".weak", ".common"))
SPACES = frozenset((".global", ".const", ".shared", ".local", ".param", ".tex"))

_VECTORS = {".v2": 2, ".v4": 4, ".v8": 8}
_POINTER_SPACES = frozenset((".const", ".global", ".local", ".shared"))

_LARGEST_ALIGN = 1 << 30
_MOST_DIMENSIONS = 16
_DEEPEST_INITIALIZER = 32
_MOST_NUMBERED = 4096


@dataclass
class _Head:
    """The part of a declaration between the state space and the name."""

    type: str = ""
    vector: int = 1
    align: int | None = None
    is_ptr: bool = False
    ptr_space: str = ""
    ptr_align: int | None = None
    attributes: tuple[str, ...] = ()


def _head(cursor: Cursor) -> _Head:
    """``.align 8 .attribute(.managed) .v2 .u64 .ptr .global .align 16``, the words in any order."""
    head = _Head()
    while cursor.at(DIRECTIVE):
        word = cursor.words[cursor.index]
        if word == ".attribute":
            head.attributes += attributes(cursor)
            continue
        cursor.index += 1
        if word == ".align" and head.is_ptr:
            head.ptr_align = _align(cursor)
        elif word == ".align":
            head.align = _align(cursor)
        elif word == ".ptr":
            head.is_ptr = True
        elif head.is_ptr and word in _POINTER_SPACES:
            head.ptr_space = word[1:]
        elif word in _VECTORS:
            head.vector = _VECTORS[word]
        elif word in ELEMENT_BYTES and not head.type:
            head.type = word[1:]
        else:
            cursor.fail(f"expected a type or a name, found {word!r}", back=1)
    if not head.type:
        cursor.fail_expected("a type such as '.b32'")
    return head


def _align(cursor: Cursor) -> int:
    value = integer(cursor, "an alignment in bytes")
    if not 1 <= value <= _LARGEST_ALIGN or value & value - 1:
        cursor.fail(f"expected an alignment that is a power of two, found {value}", back=1)
    return value


def attributes(cursor: Cursor) -> tuple[str, ...]:
    """``.attribute(.managed, .unified(1, 2))``."""
    cursor.expect(DIRECTIVE)
    cursor.expect("(")
    found = []
    while True:
        name = cursor.expect(DIRECTIVE, "an attribute such as '.managed'")[1:]
        if cursor.skip("("):
            values = [str(integer(cursor, "a number"))]
            while cursor.skip(","):
                values.append(str(integer(cursor, "a number")))
            cursor.expect(")")
            name += f"({', '.join(values)})"
        found.append(name)
        if not cursor.skip(","):
            cursor.expect(")", "',' or ')'")
            return tuple(found)


# -- registers --------------------------------------------------------------------------------------------


def register_declaration(cursor: Cursor, names: Names) -> ptx.RegisterDecl:
    """``.reg .v2 .b32 %r<5>, x;``."""
    line = cursor.line()
    cursor.index += 1
    head = _head(cursor)
    if head.is_ptr or head.attributes:
        cursor.fail_expected("a register without '.ptr' or '.attribute'")
    declared: list[tuple[str, int | None]] = []
    while True:
        name = cursor.expect_name("the name of a register")
        count = _count(cursor)
        names.declare_register(name, count)
        declared.append((name, count))
        if not cursor.skip(","):
            cursor.expect(";", "',' or ';'")
            return ptx.RegisterDecl(head.type, tuple(declared), head.vector, line)


def _count(cursor: Cursor) -> int | None:
    """Read a count such as ``<5>``. Return None if there is no count."""
    if not cursor.skip("<"):
        return None
    # Not an expression: the '>' would be an operator of it.
    start = cursor.starts[cursor.index]
    word = cursor.take()
    if not (word.isascii() and word.isdecimal() and len(word) <= 10):
        cursor.fail_at(start, f"expected how many, found {word[:60]!r}")
    cursor.expect(">")
    return int(word)


# -- variables --------------------------------------------------------------------------------------------


def variables(cursor: Cursor, names: Names, linkage: str = "") -> list[ptx.Variable]:
    """``.global .align 4 .b8 name[16] = {…}, other;``, the linkage being read."""
    line = cursor.line()
    space = cursor.take()[1:]
    head = _head(cursor)
    found: list[ptx.Variable] = []
    while True:
        name = cursor.expect_name("the name of a variable")
        count = _count(cursor)
        if count is not None:
            found += _numbered(cursor, names, space, head, name, count, linkage, line)
        else:
            shape = _shape(cursor)
            _declare(names, head, name, shape)
            initializer = _initial_value(cursor, names) if cursor.skip("=") else None
            if shape[:1] == (0,) and isinstance(initializer, ptx.Initializer):
                shape = (len(initializer.items), *shape[1:])  # as many as there are
            found.append(_variable(space, head, name, shape, linkage, initializer, line))
        if not cursor.skip(","):
            cursor.expect(";", "',' or ';'")
            return found


def _numbered(
    cursor: Cursor, names: Names, space: str, head: _Head, prefix: str, count: int, linkage: str, line: int
) -> list[ptx.Variable]:
    """``.shared .b32 name<3>``: ``name0``, ``name1``, ``name2``."""
    if count > _MOST_NUMBERED:
        cursor.fail(f"expected at most {_MOST_NUMBERED} variables in one declaration, found {count}", back=2)
    found = []
    for number in range(count):
        name = f"{prefix}{number}"
        _declare(names, head, name, ())
        found.append(_variable(space, head, name, (), linkage, None, line))
    return found


def _declare(names: Names, head: _Head, name: str, shape: tuple[int, ...]) -> None:
    element_bytes = ELEMENT_BYTES["." + head.type] * head.vector
    names.declare_symbol(name, element_bytes if len(shape) == 1 else None)


def _variable(
    space: str,
    head: _Head,
    name: str,
    shape: tuple[int, ...],
    linkage: str,
    initializer: ptx.InitValue | None,
    line: int,
) -> ptx.Variable:
    return ptx.Variable(
        space,
        head.type,
        name,
        shape,
        head.align,
        head.vector,
        linkage,
        initializer,
        head.is_ptr,
        head.ptr_space,
        head.ptr_align,
        head.attributes,
        line,
    )


def _shape(cursor: Cursor) -> tuple[int, ...]:
    """Read array dimensions such as ``[4][2]`` or ``[]``. Return an empty tuple if there are none."""
    sizes: list[int] = []
    while cursor.skip("["):
        if len(sizes) == _MOST_DIMENSIONS:
            cursor.fail(f"expected at most {_MOST_DIMENSIONS} dimensions", back=1)
        if cursor.skip("]"):
            sizes.append(0)
            continue
        size = integer(cursor, "the number of elements")
        if size < 0:
            cursor.fail(f"expected the number of elements, found {size}", back=1)
        sizes.append(size)
        cursor.expect("]")
    return tuple(sizes)


def parameter_list(cursor: Cursor, names: Names | None, *, of_entry: bool = False) -> tuple[ptx.Variable, ...]:
    """Read ``(.param .u64 .ptr .global .align 1 a, .param .align 8 .b8 b[24], .reg .u32 %c)``.

    The names are declared in ``names``, if given. Parameters of an entry may be ``.hidden .param``.
    """
    cursor.expect("(")
    found: list[ptx.Variable] = []
    if cursor.skip(")"):
        return ()
    while True:
        line = cursor.line()
        linkage = "hidden" * (of_entry and cursor.skip_word(".hidden"))
        if cursor.words[cursor.index] not in (".param", ".reg")[: 1 if linkage else 2]:
            cursor.fail_expected("'.param'" if linkage else "'.param' or '.reg'")
        space = cursor.take()[1:]
        head = _head(cursor)
        name = cursor.expect_name("the name of a parameter")
        shape = _shape(cursor)
        if names is not None and space == "reg":
            names.declare_register(name)
        elif names is not None:
            _declare(names, head, name, shape)
        found.append(_variable(space, head, name, shape, linkage, None, line))
        if not cursor.skip(","):
            cursor.expect(")", "',' or ')'")
            return tuple(found)


# -- initial values ---------------------------------------------------------------------------------------


def _initial_value(cursor: Cursor, names: Names) -> ptx.InitValue:
    """``{…}`` or one item."""
    if cursor.at(NUMBERS):
        found = numbers(cursor.words[cursor.index])
        if found is not None:
            cursor.index += 1
            return ptx.Initializer(found)
        cursor.open_numbers()  # One of them is odd, and an error points at it.
    return _braced(cursor, names, 0) if cursor.at("{") else _init_item(cursor, names)


def _braced(cursor: Cursor, names: Names, depth: int) -> ptx.Initializer:
    """``{item, {item, item}, …}``."""
    if depth == _DEEPEST_INITIALIZER:
        cursor.fail(f"expected at most {_DEEPEST_INITIALIZER} levels of braces")
    cursor.index += 1
    found: list[ptx.InitItem] = []
    while not cursor.skip("}"):
        if found:
            cursor.expect(",", "',' or '}'")
        found.append(_braced(cursor, names, depth + 1) if cursor.at("{") else _init_item(cursor, names))
    return ptx.Initializer(tuple(found))


def _init_item(cursor: Cursor, names: Names) -> ptx.InitValue:
    """``5``, ``0f3F800000``, ``symbol+4``, ``generic(symbol)+4``, ``0xFF(symbol)``, ``mode = linear``."""
    if cursor.at(STRING):
        cursor.fail_expected("a constant or a name: PTX has no strings in initial values")
    if cursor.at(NAME) and not cursor.at_word("WARP_SZ"):
        if cursor.kinds[cursor.index + 1] == "=":
            return _property(cursor)
        return _symbol_item(cursor, names)
    value = constant_expression(cursor, "a constant or a name")
    if not cursor.skip("("):
        return value
    if not isinstance(value, ptx.Immediate):
        cursor.fail("expected an integer as the byte mask", back=1)
    item = _symbol_item(cursor, names)
    cursor.expect(")")
    if isinstance(item, ptx.Generic):
        return ptx.Generic(item.symbol, True, value.value)
    return ptx.Generic(item, False, value.value)


def _property(cursor: Cursor) -> ptx.Property:
    """``addr_mode_0 = clamp_to_edge``: in the initial value of a sampler or texture."""
    name = cursor.expect_name("a property")
    cursor.expect("=")
    if cursor.at(NAME):
        return ptx.Property(name, cursor.expect_name("the value of the property"))
    return ptx.Property(name, str(integer(cursor, "the value of the property")))


def _symbol_item(cursor: Cursor, names: Names) -> ptx.SymbolRef | ptx.Generic:
    """``symbol``, ``symbol+4``, ``symbol[2]``, ``generic(symbol)``, ``generic(symbol)+4``."""
    name = cursor.expect_name("the name of a variable or function")
    if name != "generic" or not cursor.skip("("):
        return symbol_offset(cursor, names, ptx.SymbolRef(name))
    inner = symbol_offset(cursor, names, ptx.SymbolRef(cursor.expect_name("the name of a variable or function")))
    cursor.expect(")")
    outer = symbol_offset(cursor, names, ptx.SymbolRef(inner.name))
    return ptx.Generic(ptx.SymbolRef(inner.name, inner.offset + outer.offset))
