"""Parser of PTX text into a ``PtxModule``: the statements of a function, functions, and the module.

It accepts the output of NVRTC, nvcc, NVVM, and Triton, and the syntax in the PTX ISA manual. It reads syntax only, and
``isa`` determines whether an instruction exists.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from cujit.formats.ptx import syntax as ptx
from cujit.formats.ptx.constants import integer
from cujit.formats.ptx.parse_declarations import (
    LINKAGES,
    SPACES,
    attributes,
    parameter_list,
    register_declaration,
    variables,
)
from cujit.formats.ptx.parse_operands import call_operands, label_operands, operands
from cujit.formats.ptx.register_names import Names
from cujit.formats.ptx.tokens import DIRECTIVE, DWARF, END, NAME, NUMBER, SOURCE, STRING, Cursor

_THREADS = ("maxntid", "reqntid")
_RIVALS = {
    **dict(zip(_THREADS, reversed(_THREADS), strict=True)),
    "reqnctapercluster": "maxclusterrank", "maxclusterrank": "reqnctapercluster",
}  # fmt: skip
"""Directives of which an entry has one. Source: PTX ISA 9.1, 11.4 and 11.7; ptxas 13.5 refuses both."""

_DEEPEST_SCOPE = 48
_ITEMS = frozenset(
    {*LINKAGES, *SPACES, ".func", ".entry", ".file", ".section", ".alias", ".version", ".target", ".loc"}
)
"""Words that begin the next item of a module where the declaration of a function ends without a ``;``."""
_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})", re.ASCII)


def parse(text: str, *, name: str = "<ptx>") -> ptx.PtxModule:
    """Parse a whole PTX text. ``name`` is the name of the file in errors.

    ``address_size`` is 64 if the text does not specify it, as in ptxas.

    Raises:
        PtxSyntaxError: the text is not PTX. The error contains the line and column of the first problem.
    """
    return _Parser(Cursor(text.rstrip("\0"), name)).module()


class _Parser:
    """One parse: the cursor, the open scopes, and the mnemonics that were already split."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._names = Names()
        self._mnemonics: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._depth = 0

    # -- module ---------------------------------------------------------------------------------------------

    def module(self) -> ptx.PtxModule:
        """``.version 8.5 .target sm_90, debug .address_size 64`` and the items."""
        cursor = self._cursor
        leading: list[ptx.ModuleItem] = []
        while cursor.at(DWARF):
            leading.append(self._dwarf())
        version = self._version()
        if not cursor.skip_word(".target"):
            cursor.fail_expected("'.target'")
        target = self._targets()
        address_size = 64
        if cursor.skip_word(".address_size"):
            address_size = integer(cursor, "32 or 64")
            if address_size not in (32, 64):
                cursor.fail(f"expected 32 or 64, found {address_size}", back=1)
        items = leading
        while not cursor.at(END):
            self._item(items)
        return ptx.PtxModule(version, target, address_size, tuple(items))

    def _version(self) -> tuple[int, int]:
        cursor = self._cursor
        if not cursor.skip_word(".version"):
            cursor.fail_expected("'.version'")
        word = cursor.expect(NUMBER, "a version such as 8.5")
        match = _VERSION.fullmatch(word)
        if match is None:
            cursor.fail(f"expected a version such as 8.5, found {word[:60]!r}", back=1)
        return int(match[1]), int(match[2])

    def _targets(self) -> tuple[str, ...]:
        cursor = self._cursor
        found = [cursor.expect_name("a target such as sm_90")]
        while cursor.skip(","):
            found.append(cursor.expect_name("a target such as sm_90"))
        return tuple(found)

    def _item(self, items: list[ptx.ModuleItem]) -> None:
        """A function, a variable or a directive of the module."""
        cursor = self._cursor
        if cursor.at(DWARF):
            items.append(self._dwarf())
            return
        if cursor.skip(";"):
            return
        if not cursor.at(DIRECTIVE):
            cursor.fail_expected("a function, a variable or a directive")
        line = cursor.line()
        word = cursor.words[cursor.index]
        linkage = ""
        if word in LINKAGES:
            cursor.index += 1
            linkage = word[1:]
            word = cursor.words[cursor.index]
        if word == ".func" or word == ".entry":
            items.append(self._function(linkage, line))
        elif word in SPACES:
            items.extend(variables(cursor, self._names, linkage))
        elif linkage:
            cursor.fail_expected(f"a function or a variable after '.{linkage}'")
        elif word == ".loc":
            items.append(self._location())
        elif word in _MODULE_DIRECTIVES:
            items.append(_MODULE_DIRECTIVES[word](self))
        else:
            cursor.fail_expected("a function, a variable or a directive of a module")

    # -- directives -----------------------------------------------------------------------------------------

    def _dwarf(self) -> ptx.Directive:
        """Read ``@@DWARF …`` up to the end of the line. This debug data of the oldest compilers is kept unchanged."""
        line = self._cursor.line()
        return ptx.Directive("@@DWARF", (self._cursor.take()[len("@@DWARF") :].strip(),), line)

    def _file(self) -> ptx.Directive:
        """``.file 1 "name"`` or ``.file 1 "name", time, size``."""
        cursor = self._cursor
        line = cursor.line()
        cursor.index += 1
        arguments = [str(_integer_word(cursor, "the number of the file")), cursor.expect(STRING)]
        while cursor.skip(","):
            arguments.append(str(_integer_word(cursor, "a number")))
        return ptx.Directive("file", tuple(arguments), line)

    def _section(self) -> ptx.Directive:
        """``.section .debug_info { … }``, the body verbatim."""
        cursor = self._cursor
        line = cursor.line()
        cursor.index += 1
        if not (cursor.at(DIRECTIVE) or cursor.at(NAME)):
            cursor.fail_expected("the name of a section")
        name = cursor.take()
        cursor.expect("{")
        start = cursor.starts[cursor.index - 1] + 1
        while not cursor.at("}"):
            if cursor.at(END) or cursor.at("{"):
                cursor.fail_expected("'}' to end the section")
            cursor.index += 1
        cursor.index += 1
        return ptx.Directive("section", (name, cursor.source[start : cursor.starts[cursor.index - 1]]), line)

    def _intermediate_sources(self) -> ptx.Directive:
        """``.nv_intermediate_source_section { .code_block { .ir_name: "…" .source_begin … .source_end } }``, verbatim.

        Source: PTX ISA 9.4, 11.5.6; what tileiras 13.5 writes.
        """
        cursor = self._cursor
        line = cursor.line()
        cursor.index += 1
        cursor.expect("{")
        start, depth = cursor.starts[cursor.index - 1] + 1, 1
        while depth:
            if cursor.kinds[cursor.index] not in ("{", "}", ":", DIRECTIVE, STRING, NUMBER, SOURCE):
                cursor.fail_expected("'}' to end the section")
            depth += {"{": 1, "}": -1}.get(cursor.take(), 0)
        return ptx.Directive(
            "nv_intermediate_source_section", (cursor.source[start : cursor.starts[cursor.index - 1]],), line
        )

    def _intermediate_location(self) -> ptx.Directive:
        """Read ``.loc_intermediate 2 10 3``: file, line, and column in an intermediate source."""
        cursor = self._cursor
        line = cursor.line()
        cursor.index += 1
        place = [str(_integer_word(cursor, what)) for what in ("the number of a file", "a line", "a column")]
        return ptx.Directive("loc_intermediate", (" ".join(place),), line)

    def _pragma(self) -> ptx.Directive:
        """``.pragma "nounroll", "…";``."""
        cursor = self._cursor
        line = cursor.line()
        cursor.index += 1
        arguments = [cursor.expect(STRING)]
        while cursor.skip(","):
            arguments.append(cursor.expect(STRING))
        cursor.expect(";", "',' or ';'")
        return ptx.Directive("pragma", tuple(arguments), line)

    def _alias(self) -> ptx.Directive:
        """``.alias new, old;``."""
        cursor = self._cursor
        line = cursor.line()
        cursor.index += 1
        new = cursor.expect_name("the name of the alias")
        cursor.expect(",")
        old = cursor.expect_name("the name of a function")
        cursor.expect(";")
        return ptx.Directive("alias", (new, old), line)

    def _target(self) -> ptx.Directive:
        """Read a second ``.target``, which changes the constructs that are allowed after it."""
        line = self._cursor.line()
        self._cursor.index += 1
        return ptx.Directive("target", self._targets(), line)

    def _location(self) -> ptx.Location:
        """``.loc 1 10 3`` with an optional ``, function_name label+4, inlined_at 1 20 5``."""
        cursor = self._cursor
        line = cursor.line()
        cursor.index += 1
        file = _integer_word(cursor, "the number of a file")
        source_line = _integer_word(cursor, "a line")
        column = _integer_word(cursor, "a column")
        rest = ""
        while cursor.skip(","):
            rest += (", " if rest else "") + self._location_part()
        return ptx.Location(file, source_line, column, rest, line)

    def _location_part(self) -> str:
        cursor = self._cursor
        if cursor.skip_word("function_name"):
            label = cursor.expect_name("the label of a name")
            offset = f"+{_integer_word(cursor, 'an offset')}" if cursor.skip("+") else ""
            return f"function_name {label}{offset}"
        if not cursor.skip_word("inlined_at"):
            cursor.fail_expected("'function_name' or 'inlined_at'")
        place = [str(_integer_word(cursor, "a number")) for _ in range(3)]
        return f"inlined_at {' '.join(place)}"

    # -- functions ------------------------------------------------------------------------------------------

    def _function(self, linkage: str, line: int) -> ptx.Function:
        """``.func (results) name (parameters) .directives { … }``, the linkage being read."""
        cursor, names = self._cursor, self._names
        is_entry = cursor.take() == ".entry"
        own: tuple[str, ...] = attributes(cursor) if cursor.at_word(".attribute") else ()
        names.open()
        results = parameter_list(cursor, names) if cursor.at("(") and not is_entry else ()
        name = cursor.expect_name("the name of a function")
        parameters = parameter_list(cursor, names, of_entry=is_entry) if cursor.at("(") else ()
        directives = self._function_directives()
        body: tuple[ptx.Statement, ...] | None = None
        if cursor.at("{"):
            body = self._block()
        elif not cursor.skip(";") and is_entry:  # ptxas takes the declaration of a .func without it
            cursor.fail_expected("'{' or ';'")
        names.close()
        return ptx.Function(name, is_entry, parameters, results, body, linkage, directives, own, line)

    def _function_directives(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """``.maxntid 256, 1, 1 .minnctapersm 2 .noreturn .pragma "…";`` in any order."""
        cursor = self._cursor
        found, directives = [], set()
        while cursor.at(DIRECTIVE) and cursor.words[cursor.index] not in _ITEMS:
            if cursor.at_word(".pragma"):
                found.append(("pragma", self._pragma().arguments))
                continue
            word = cursor.take()[1:]
            rival = _RIVALS.get(word)
            directives.add(word)
            if rival in directives:
                cursor.fail(f".{word} and .{rival} exclude each other", back=1)
            values = self._directive_numbers()
            if word in _THREADS and "0" in values:
                cursor.fail(f"expected .{word} of at least 1", back=1)
            found.append((word, values))
        return tuple(found)

    def _directive_numbers(self) -> tuple[str, ...]:
        cursor = self._cursor
        if not cursor.at(NUMBER):
            return ()
        found = [str(integer(cursor, "a number"))]
        while cursor.skip(","):
            found.append(str(integer(cursor, "a number")))
        return tuple(found)

    # -- statements -----------------------------------------------------------------------------------------

    def _block(self) -> tuple[ptx.Statement, ...]:
        """``{ statement … }``; the scope is opened by the caller."""
        cursor = self._cursor
        cursor.expect("{")
        self._depth += 1
        if self._depth > _DEEPEST_SCOPE:
            cursor.fail(f"expected at most {_DEEPEST_SCOPE} scopes inside each other", back=1)
        kinds, body = cursor.kinds, list[ptx.Statement]()
        while True:
            kind = kinds[cursor.index]
            if kind == NAME:
                if kinds[cursor.index + 1] == ":":
                    body.append(self._labelled())
                else:
                    body.append(self._instruction(None, cursor.line()))
            elif kind == "@":
                body.append(self._predicated())
            elif kind == DIRECTIVE:
                self._declaration(body)
            elif kind == "}":
                cursor.index += 1
                self._depth -= 1
                return tuple(body)
            else:
                self._other_statement(body)

    def _other_statement(self, body: list[ptx.Statement]) -> None:
        """``{ … }`` or a stray ``;``."""
        cursor = self._cursor
        if cursor.skip(";"):
            return
        if not cursor.at("{"):
            cursor.fail_expected("a statement or '}'")
        line = cursor.line()
        self._names.open()
        body.append(ptx.Scope(self._block(), line))
        self._names.close()

    def _predicated(self) -> ptx.Instruction:
        """``@%p instruction`` or ``@!%p instruction``."""
        cursor = self._cursor
        line = cursor.line()
        cursor.index += 1
        negated = cursor.skip("!")
        register = cursor.expect_name("a predicate register")
        if not cursor.at(NAME):
            cursor.fail_expected("an instruction after the predicate")
        return self._instruction(ptx.Predicate(register, negated), line)

    def _instruction(self, predicate: ptx.Predicate | None, line: int) -> ptx.Instruction:
        """``opcode.modifier operand, operand;``."""
        cursor = self._cursor
        word = cursor.words[cursor.index]
        cursor.index += 1
        if cursor.kinds[cursor.index] == DIRECTIVE:  # ``add .s32`` is the same as ``add.s32``.
            while cursor.at(DIRECTIVE):
                word += cursor.take()
        known = self._mnemonics.get(word)
        if known is None:
            known = self._mnemonics[word] = self._mnemonic(word)
        opcode, modifiers = known
        if opcode == "bra":
            found = label_operands(cursor, self._names, labels_from=0)
        elif opcode == "call":
            found = call_operands(cursor, self._names)
        elif opcode == "brx":
            found = label_operands(cursor, self._names, labels_from=1)
        else:
            found = operands(cursor, self._names)
            if opcode in _ADDRESSING:
                found = _with_elements(found)
        if cursor.kinds[cursor.index] != ";":
            cursor.fail_expected("',' or ';'")
        cursor.index += 1
        return ptx.Instruction(opcode, modifiers, found, predicate, line)

    def _mnemonic(self, word: str) -> tuple[str, tuple[str, ...]]:
        opcode, *modifiers = word.split(".")
        if not (opcode.isascii() and opcode.isalnum()):
            self._cursor.fail(f"expected an instruction, found {opcode[:60]!r}", back=1)
        return opcode, tuple(modifiers)

    def _labelled(self) -> ptx.Statement:
        """``name:``, or ``name: .branchtargets a, b;``, or ``name: .callprototype …;``."""
        cursor = self._cursor
        line = cursor.line()
        name = cursor.expect_name("a label")
        cursor.index += 1
        word = cursor.words[cursor.index]
        if word == ".branchtargets" or word == ".calltargets":
            cursor.index += 1
            targets = [cursor.expect_name("a label")]
            while cursor.skip(","):
                targets.append(cursor.expect_name("a label"))
            cursor.expect(";", "',' or ';'")
            return ptx.BranchTargets(name, tuple(targets), word[1:], line)
        if word == ".callprototype":
            return self._prototype(name, line)
        return ptx.Label(name, line)

    def _prototype(self, name: str, line: int) -> ptx.CallPrototype:
        """``.callprototype (results) _ (parameters) .noreturn;``, the label being read."""
        cursor = self._cursor
        cursor.index += 1
        results = parameter_list(cursor, None) if cursor.at("(") else ()
        cursor.expect(NAME, "'_'")
        parameters = parameter_list(cursor, None) if cursor.at("(") else ()
        flags = [" ".join((flag, ", ".join(numbers))).rstrip() for flag, numbers in self._function_directives()]
        cursor.expect(";")
        return ptx.CallPrototype(name, results, parameters, tuple(flags), line)

    def _declaration(self, body: list[ptx.Statement]) -> None:
        """``.reg``, a variable, ``.loc`` or ``.pragma`` inside a function."""
        cursor = self._cursor
        word = cursor.words[cursor.index]
        if word == ".reg":
            body.append(register_declaration(cursor, self._names))
        elif word == ".loc":
            body.append(self._location())
        elif word in SPACES:
            body.extend(variables(cursor, self._names))
        elif word == ".pragma":
            body.append(self._pragma())
        elif word in LINKAGES and cursor.words[cursor.index + 1] in SPACES:
            cursor.index += 1
            body.extend(variables(cursor, self._names, word[1:]))
        elif word in _BODY_DIRECTIVES:
            body.append(_MODULE_DIRECTIVES[word](self))
        else:
            cursor.fail_expected("a statement")


_ADDRESSING = frozenset(("ld", "ldu", "st"))


def _with_elements(found: tuple[ptx.Operand, ...]) -> tuple[ptx.Operand, ...]:
    """Return operands with each ``a[3]`` as an address, for instructions that require addresses."""
    if not any(type(operand) is ptx.SymbolRef for operand in found):
        return found
    return tuple(ptx.Address(ptx.SymbolRef(o.name), o.offset) if isinstance(o, ptx.SymbolRef) else o for o in found)


def _integer_word(cursor: Cursor, expected: str) -> int:
    """Read one integer. It is not an expression, because the next number is a separate argument."""
    word = cursor.words[cursor.index]
    if not cursor.at(NUMBER) or not word.isdecimal() or len(word) > 20:
        cursor.fail_expected(expected)
    cursor.index += 1
    return int(word)


_MODULE_DIRECTIVES: dict[str, Callable[[_Parser], ptx.Directive]] = {
    ".file": _Parser._file,
    ".section": _Parser._section,
    ".pragma": _Parser._pragma,
    ".alias": _Parser._alias,
    ".target": _Parser._target,
    ".nv_intermediate_source_section": _Parser._intermediate_sources,
    ".loc_intermediate": _Parser._intermediate_location,
}
_BODY_DIRECTIVES = frozenset((".file", ".section", ".loc_intermediate"))
