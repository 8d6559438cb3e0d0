"""The operands of an instruction. Each function's docstring is the grammar rule that it reads."""

from __future__ import annotations

from cujit.formats.ptx import syntax as ptx
from cujit.formats.ptx.constants import WARP_SIZE, constant_expression, integer
from cujit.formats.ptx.register_names import Names
from cujit.formats.ptx.tokens import NAME, Cursor


def operands(cursor: Cursor, names: Names) -> tuple[ptx.Operand, ...]:
    """``operand, operand, …`` up to the ``;``, which stays."""
    kinds, words, known = cursor.kinds, cursor.words, names.known
    if kinds[cursor.index] == ";":
        return ()
    found: list[ptx.Operand] = []
    while True:
        index = cursor.index
        following = kinds[index + 1] if kinds[index] == NAME else ""
        if following == "," or following == ";":  # Nearly every operand is one name: no call for it.
            word = words[index]
            found.append(known.get(word) or _name(word, names))
            cursor.index = index + 1
        else:
            found.append(_operand(cursor, names))
            following = kinds[cursor.index]
        if following == ",":
            cursor.index += 1
        elif following == ";":
            return tuple(found)
        else:
            cursor.fail_expected("',' or ';'")


def _name(word: str, names: Names) -> ptx.Operand:
    return WARP_SIZE if word == "WARP_SZ" else names.find(word)


def _operand(cursor: Cursor, names: Names) -> ptx.Operand:
    """``[address]``, ``{vector}``, ``!name``, ``-name``, ``name+4``, ``name[3]``, ``constant``, ``first|second``."""
    kind = cursor.kinds[cursor.index]
    first: ptx.Operand
    if kind == "[":
        first = address(cursor, names)
    elif kind == "{":
        first = _vector(cursor, names)
    elif kind == "!" and cursor.kinds[cursor.index + 1] == NAME:
        cursor.index += 1
        first = ptx.Negated(names.find(cursor.take()))
    elif kind == "-" and cursor.kinds[cursor.index + 1] == NAME and cursor.words[cursor.index + 1] != "WARP_SZ":
        cursor.index += 1
        first = ptx.Minus(names.find(cursor.take()))
    elif kind == NAME and not cursor.at_word("WARP_SZ"):
        first = _named(cursor, names)
    else:
        return constant_expression(cursor, "an operand")
    if cursor.skip("|"):
        negated = cursor.skip("!")
        second = names.find(cursor.expect(NAME, "a register after '|'"))
        return ptx.PairOperand(first, ptx.Negated(second) if negated else second)
    return first


def _named(cursor: Cursor, names: Names) -> ptx.Operand:
    """``name``, ``symbol+4``, ``symbol-4``, ``symbol[3]``, ``register+4``."""
    found = names.find(cursor.take())
    if isinstance(found, ptx.SymbolRef):
        return symbol_offset(cursor, names, found)
    if isinstance(found, ptx.Register) and cursor.at("+"):
        return ptx.RegisterSum(found, _offset(cursor))
    return found


def symbol_offset(cursor: Cursor, names: Names, symbol: ptx.SymbolRef) -> ptx.SymbolRef:
    """Read ``+4``, ``-4``, or ``[3]`` after a symbol, if present, and return the symbol with its offset."""
    if cursor.kinds[cursor.index] in "+-":
        return ptx.SymbolRef(symbol.name, _offset(cursor))
    if cursor.at("["):
        return ptx.SymbolRef(symbol.name, _element_offset(cursor, names, symbol.name))
    return symbol


def _offset(cursor: Cursor) -> int:
    """``+4``, ``-4``, ``+-4``, ``+4*2``: in bytes."""
    cursor.skip("+")
    return integer(cursor, "a byte offset")


def _element_offset(cursor: Cursor, names: Names, symbol: str) -> int:
    """``[3]`` after the name of an array: in bytes."""
    element_bytes = names.element_bytes(symbol)
    if element_bytes is None:
        cursor.fail(f"expected the end of the operand: {symbol!r} is not an array of one dimension")
    cursor.index += 1
    index = integer(cursor, "the number of an element")
    cursor.expect("]")
    return index * element_bytes


def _vector(cursor: Cursor, names: Names) -> ptx.VectorOperand:
    """``{operand, operand, …}``."""
    return ptx.VectorOperand(_listed(cursor, names, "}"))


def _listed(cursor: Cursor, names: Names, close: str) -> tuple[ptx.Operand, ...]:
    """The operands between brackets; the opening one is the next word."""
    cursor.index += 1
    found: list[ptx.Operand] = []
    if cursor.skip(close):
        return ()
    while True:
        if cursor.at("{") or cursor.at("["):
            cursor.fail_expected("a register or a constant")
        found.append(_operand(cursor, names))
        if cursor.skip(close):
            return tuple(found)
        if not cursor.skip(","):
            cursor.fail_expected(f"',' or {close!r}")


def address(cursor: Cursor, names: Names) -> ptx.Address:
    """``[base]``, ``[base+4]``, ``[1234]``, ``[texture, {x, y}]``, ``[base].unified``."""
    cursor.expect("[")
    base: ptx.Register | ptx.SymbolRef | None = None
    offset = 0
    if cursor.at(NAME) and not cursor.at_word("WARP_SZ"):
        found = names.find(cursor.take())
        if not isinstance(found, (ptx.Register, ptx.SymbolRef)):
            cursor.fail("expected a whole register or a variable as the base of the address", back=1)
        base = found
        if cursor.kinds[cursor.index] in "+-":
            offset = _offset(cursor)
    else:
        offset = integer(cursor, "an address")
    coords: list[ptx.Operand] = []
    while cursor.skip(","):
        coords.append(_operand(cursor, names))
        if isinstance(coords[-1], ptx.Address):
            cursor.fail("expected the coordinates of a texture, found an address", back=1)
    if not cursor.skip("]"):
        cursor.fail_expected("']'" if coords else "'+', ',' or ']'")
    return ptx.Address(base, offset, tuple(coords), cursor.skip_word(".unified"))


def label_operands(cursor: Cursor, names: Names, *, labels_from: int) -> tuple[ptx.Operand, ...]:
    """The operands of ``bra`` and ``brx``: names from position ``labels_from`` on are labels."""
    found: list[ptx.Operand] = []
    while not cursor.at(";"):
        if found:
            cursor.expect(",", "',' or ';'")
        if len(found) >= labels_from:
            found.append(ptx.LabelRef(cursor.expect_name("a label")))
        else:
            found.append(_operand(cursor, names))
    return tuple(found)


def call_operands(cursor: Cursor, names: Names) -> tuple[ptx.Operand, ...]:
    """``(results), function, (arguments), prototype``: all but the function may be missing."""
    found: list[ptx.Operand] = []
    named = False
    while True:
        if cursor.at("("):
            found.append(ptx.RegisterList(_listed(cursor, names, ")")))
        elif named:
            found.append(ptx.LabelRef(cursor.expect_name("a list of arguments or the name of a prototype")))
        else:
            target = names.find(cursor.expect_name("a function"))
            if isinstance(target, ptx.ComponentOperand):
                cursor.fail("expected a function, or a register with the address of one", back=1)
            found.append(target)
            named = True
        if not cursor.skip(","):
            break
    if not named:
        cursor.fail_expected("',' and the function to call")
    return tuple(found)
