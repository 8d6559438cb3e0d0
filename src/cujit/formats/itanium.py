"""The grammar of lowered C++ names, as far as kernels and their parameters use it.

Source: Itanium C++ ABI, chapter 5.1 "External Names (a.k.a. Mangling)". Each method names its production. Operators,
constructors, and dependent expressions are not supported. They raise FormatError, like malformed names.
"""

from __future__ import annotations

import re
import struct

from cujit.errors import FormatError, spell
from cujit.formats.cxx_types import BUILTINS, CxxType, PackExpansion, Term, TypeShape, each, flat, pointer_to, qualified
from cujit.formats.expressions import float_literal, integer_literal
from cujit.signature import ParameterClass

_MAX_NAME_CHARS = 1 << 16
_MAX_TEXT_CHARS = 1 << 22  # all text built for one name: substitutions may double at every step
_MAX_DEPTH = 100  # the deepest names take four Python frames for each
_NUMBER_ = re.compile(r"[0-9]{0,9}_")
_SEQ_ID = re.compile(r"[0-9A-Z]{0,6}_")
_LENGTH = re.compile(r"[1-9][0-9]{0,5}")
_VALUE = re.compile(r"n?[0-9a-f]{0,64}")
_DISCRIMINATOR = re.compile(r"_[0-9]|__[0-9]{1,9}_")
_IDENTIFIER_CHARS = re.compile(r"[A-Za-z0-9_.$\x80-\U0010ffff]*")


_STANDARD = {
    "a": "std::allocator",
    "b": "std::basic_string",
    "s": "std::string",
    "i": "std::istream",
    "o": "std::ostream",
    "d": "std::iostream",
}
_QUALIFIERS = {"r": "__restrict__", "V": "volatile", "K": "const"}
_POINTERS = {"P": "*", "R": "&", "O": "&&"}


def _argument_list(types: tuple[CxxType, ...]) -> str:
    return f"<{', '.join(map(str, types))}>"


class Demangler:
    """Reader of one lowered name, from left to right.

    ``anonymous`` is the text for an unnamed namespace. If it is "", the namespace is omitted, as in source code.
    """

    def __init__(self, name: str, *, anonymous: str = "") -> None:
        if len(name) > _MAX_NAME_CHARS or _IDENTIFIER_CHARS.fullmatch(name) is None:
            raise FormatError(f"{spell(name[:60])} is not a lowered name")
        self._text = name
        self._at = 0
        self._depth = 0
        self._spent = 0
        self._anonymous = anonymous
        self._seen: list[Term] = []  # the substitution candidates S_, S0_, …
        self._template_arguments: list[Term] = []  # what T_, T0_, … stand for

    # -- reading ----------------------------------------------------------------------------------------

    def fail(self, why: str = "malformed or unsupported") -> FormatError:
        """Return the error for the current position."""
        return FormatError(f"the lowered name {self._text[:120]!r} is invalid: {why}", offset=self._at)

    @property
    def rest(self) -> str:
        """The part of the name that has not been read yet."""
        return self._text[self._at :]

    @property
    def _ended(self) -> bool:
        return self._at >= len(self._text)

    def _next(self, *choices: str) -> bool:
        return self._text.startswith(choices, self._at)

    def _take(self, token: str) -> bool:
        if not self._text.startswith(token, self._at):
            return False
        self._at += len(token)
        return True

    def expect(self, token: str) -> None:
        """Read exactly ``token``.

        Raises:
            FormatError: the next characters are different.
        """
        if not self._take(token):
            raise self.fail(f"expected {spell(token)}")

    def _match(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise self.fail()
        self._at = match.end()
        return match[0]

    def _remember(self, term: Term) -> Term:
        items = term.items if isinstance(term, PackExpansion) else (term,)
        self._spend(sum(len(t.left) + len(t.right) for t in items))
        self._seen.append(term)
        return term

    def _spend(self, chars: int) -> None:
        self._spent += chars + 1
        if self._spent > _MAX_TEXT_CHARS:
            raise self.fail("its expansion is too long")

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self.fail("it is nested too deeply")

    # -- names ------------------------------------------------------------------------------------------

    def encoding(self) -> str:
        """Read ``<encoding> ::= <name> [<bare-function-type>]`` and spell it whole.

        Raises:
            FormatError: it is malformed or outside of the subset.
        """
        return self._named_encoding()[1]

    def template_entity(self) -> tuple[str, list[Term]]:
        """Read ``<unscoped-template-name> <template-args>``, and return the name and the arguments.

        Raises:
            FormatError: the name is malformed or not supported.
        """
        name = self._unqualified_name()
        self._remember(CxxType(name))
        return name, self.template_arguments()

    def _named_encoding(self) -> tuple[str, str]:
        """Read an encoding, and return its name and its full text."""
        self._enter()
        outer = self._template_arguments
        name, is_template = self.name()
        text = name
        if not self._ended and not self._next("E", ".", "$"):
            result = self._type() if is_template else None
            parameters = self._parameters(end=("E", ".", "$"))
            text = f"{name}({', '.join(map(str, parameters))})"
            if isinstance(result, CxxType):
                space = " " if result.shape is not TypeShape.FUNCTION else ""
                text = f"{result.left}{space}{text}{result.right}"
        self._template_arguments = outer
        self._depth -= 1
        self._spend(len(text))
        return name, text

    def name(self) -> tuple[str, bool]:
        """Read ``<name>``: its spelling, and whether it ends in template arguments.

        Raises:
            FormatError: it is malformed or outside of the subset.
        """
        if self._next("N"):
            return self._nested_name()
        if self._next("Z"):
            return self._local_name()
        if self._next("S") and not self._next("St"):
            text = self._single(self._substitution())
        else:
            scope = "std" if self._take("St") else ""
            text = self._join(scope, self._unqualified_name())
            if self._next("I"):
                self._remember(CxxType(text))
        if not self._next("I"):
            return text, False
        arguments = self.template_arguments()
        self._template_arguments = arguments
        return text + _argument_list(flat(arguments)), True

    def _nested_name(self) -> tuple[str, bool]:
        """``N [<CV-qualifiers>] [<ref-qualifier>] <prefix> <unqualified-name> [<template-args>] E``."""
        self.expect("N")
        while self._next("r", "V", "K", "R", "O"):
            self._at += 1
        text, remembered, is_template = "", False, False
        while not self._take("E"):
            remembered, is_template = True, False
            if self._next("St"):
                self.expect("St")
                text, remembered = "std", False
            elif self._next("S"):
                text, remembered = self._single(self._substitution()), False
            elif self._next("I"):
                arguments = self.template_arguments()
                self._template_arguments = arguments
                text += _argument_list(flat(arguments))
                is_template = True
            elif self._next("T"):
                text = self._single(self._template_parameter())
            else:
                text = self._join(text, self._unqualified_name())
            if remembered:
                self._remember(CxxType(text))
        if remembered:
            self._seen.pop()  # the whole is no prefix; where it is a type, the type remembers it
        if not text:
            raise self.fail("a nested name is empty")
        return text, is_template

    def _local_name(self) -> tuple[str, bool]:
        """``Z <function encoding> E (s | d [<n>] _ <name> | <name>) [<discriminator>]``."""
        self.expect("Z")
        function = self.encoding()
        self.expect("E")
        if self._take("s"):
            text, is_template = "string literal", False
        else:
            if self._take("d"):
                self._match(_NUMBER_)
            text, is_template = self.name()
        if self._next("_"):
            self._match(_DISCRIMINATOR)
        return f"{function}::{text}", is_template

    def _unqualified_name(self) -> str:
        """``<source-name>``, ``<unnamed-type-name>`` or a lambda, with ``<abi-tags>``; no operators."""
        self._take("L")  # internal linkage
        if self._take("Ut"):
            return f"{{unnamed#{self._ordinal()}}}"
        if self._take("Ul"):
            parameters = self._parameters(end=("E",))
            self.expect("E")
            return f"{{lambda({', '.join(map(str, parameters))})#{self._ordinal()}}}"
        text = self._source_name()
        while self._take("B"):
            text += f"[abi:{self._source_name()}]"
        if text.startswith("_GLOBAL__N_"):
            return self._anonymous
        # NVCC puts entities of internal linkage into a namespace of this name when it compiles with -rdc.
        return "" if text.startswith("_INTERNAL_") else text

    def _ordinal(self) -> int:
        digits = self._match(_NUMBER_)[:-1]
        return int(digits) + 2 if digits else 1

    def _source_name(self) -> str:
        """``<positive length number> <identifier>``."""
        length = int(self._match(_LENGTH))
        text = self._text[self._at : self._at + length]
        if len(text) != length:
            raise self.fail(f"an identifier of {length} characters is truncated")
        self._at += length
        return text

    def _join(self, scope: str, name: str) -> str:
        return f"{scope}::{name}" if scope and name else scope or name

    def _single(self, term: Term) -> str:
        if isinstance(term, PackExpansion):
            raise self.fail("expected one type, not a pack")
        return str(term)

    # -- substitutions and templates --------------------------------------------------------------------

    def _substitution(self) -> Term:
        """``S <seq-id> _``, ``S_`` and the standard abbreviations."""
        self.expect("S")
        for code, text in _STANDARD.items():
            if self._take(code):
                return CxxType(text)
        digits = self._match(_SEQ_ID)[:-1]
        index = int(digits, 36) + 1 if digits else 0
        if index >= len(self._seen):
            raise self.fail("a substitution refers to nothing")
        return self._seen[index]

    def _template_parameter(self) -> Term:
        """``T <number> _`` and ``T_``."""
        self.expect("T")
        digits = self._match(_NUMBER_)[:-1]
        index = int(digits) + 1 if digits else 0
        if index >= len(self._template_arguments):
            raise self.fail("a template parameter has no argument")
        return self._template_arguments[index]

    def template_arguments(self) -> list[Term]:
        """Read ``<template-args> ::= I <template-arg>* E``; a pack is one argument.

        Raises:
            FormatError: an argument is malformed or outside of the subset.
        """
        self._enter()
        self.expect("I")
        arguments: list[Term] = []
        while not self._take("E"):
            argument = self._template_argument()
            self._spend(sum(len(str(t)) for t in flat([argument])))
            arguments.append(argument)
        self._depth -= 1
        return arguments

    def _template_argument(self) -> Term:
        """``<type> | L <literal> E | X <expression> E | J <template-arg>* E``."""
        if self._take("J"):
            items: list[Term] = []
            while not self._take("E"):
                self._enter()
                items.append(self._template_argument())
                self._depth -= 1
            return PackExpansion(flat(items))
        if self._next("L"):
            return self._literal()
        if self._take("X"):
            value = self._expression()
            self.expect("E")
            return value
        at = self._at
        term = self._type()
        if isinstance(term, PackExpansion) and not self._text.startswith("Dp", at):
            raise self.fail("a pack is nested inside a pattern")
        return term

    def _expression(self) -> Term:
        """Read a literal, a template parameter, or the address of an entity. Other expressions are not supported."""
        if self._take("ad"):
            return CxxType(f"&{self._literal()}", shape=TypeShape.VALUE)
        if self._next("L"):
            return self._literal()
        if self._next("T"):
            return self._template_parameter()
        raise self.fail("an expression")

    def _literal(self) -> CxxType:
        """``<expr-primary> ::= L <type> <value> E | L _Z <encoding> E``."""
        self.expect("L")
        if self._take("_Z"):
            text, _ = self._named_encoding()
            self.expect("E")
            return CxxType(text, shape=TypeShape.VALUE)
        term = self._type()
        if isinstance(term, PackExpansion):
            raise self.fail("expected one type, not a pack")
        value = self._match(_VALUE)
        self.expect("E")
        return CxxType(self._value_text(term, value), shape=TypeShape.VALUE)

    def _value_text(self, kind: CxxType, value: str) -> str:
        builtin = kind.builtin
        number = "-" + value[1:] if value.startswith("n") else value
        if builtin is None:
            return f"({kind}){number}"
        if builtin.spelling == "std::nullptr_t":
            return "nullptr"
        if builtin.kind is ParameterClass.BOOL:
            return {"0": "false", "1": "true"}.get(value, number)
        if builtin.kind is ParameterClass.FLOAT:
            layout = {8: ">f", 16: ">d"}.get(len(value))
            if layout is None or builtin.size * 2 != len(value):
                raise self.fail("a floating-point value is malformed")
            return float_literal(struct.unpack(layout, bytes.fromhex(value))[0], builtin.spelling)
        if not number.lstrip("-").isdecimal():
            raise self.fail("an integer value is malformed")
        return integer_literal(int(number), builtin.spelling)

    # -- types ------------------------------------------------------------------------------------------

    def type(self) -> CxxType:
        """Read one ``<type>``.

        Raises:
            FormatError: it is malformed or outside of the subset.
        """
        term = self._type()
        if isinstance(term, PackExpansion):
            raise self.fail("expected one type, not a pack")
        return term

    def _type(self) -> Term:
        self._enter()
        try:
            return self._type_inside()
        finally:
            self._depth -= 1

    def _type_inside(self) -> Term:
        if self._next(*_QUALIFIERS):
            words: list[str] = []
            while self._next(*_QUALIFIERS):
                words.insert(0, _QUALIFIERS[self._text[self._at]])
                self._at += 1
            text = " ".join(words)
            return self._remember(each(self._type(), lambda t: qualified(text, t)))
        for length in (1, 2):
            builtin = BUILTINS.get(self._text[self._at : self._at + length])
            if builtin is not None:
                self._at += length
                return CxxType(builtin.spelling, shape=TypeShape.BUILTIN, builtin=builtin)
        for code, operator in _POINTERS.items():
            if self._take(code):
                inner = self._type()
                return self._remember(each(inner, lambda t, op=operator: pointer_to(op, t)))  # type: ignore[misc]
        if self._next("F", "DoF"):
            return self._remember(self._function())
        if self._take("A"):
            return self._remember(self._array())
        if self._take("M"):
            return self._remember(self._member_pointer())
        if self._take("Dp"):
            return self._remember(self._type())
        return self._named()

    def _named(self) -> Term:
        """``<class-enum-type> | <template-param> | <substitution>``, with template arguments."""
        if self._next("T") and not self._next("Ts", "Tu", "Te"):
            term = self._remember(self._template_parameter())
        elif self._next("S") and not self._next("St"):
            term = self._substitution()
        else:
            if self._next("Ts", "Tu", "Te"):
                self._at += 2
            elif not self._next("N", "Z", "S", "u") and not self._next(*"123456789"):
                raise self.fail()
            self._take("u")  # a vendor's built-in type is spelled as a name
            outer = self._template_arguments
            text, _ = self.name()
            self._template_arguments = outer
            return self._remember(CxxType(text))
        if self._next("I"):
            text = self._single(term) + _argument_list(flat(self.template_arguments()))
            return self._remember(CxxType(text))
        return term

    def _function(self) -> CxxType:
        """``<function-type> ::= [Do] F [Y] <return type> <parameter type>+ [<ref-qualifier>] E``."""
        suffix = " noexcept" if self._take("Do") else ""
        self.expect("F")
        self._take("Y")
        result = self.type()
        parameters = self._parameters(end=("E", "RE", "OE"))
        suffix = (" &" if self._take("R") else " &&" if self._take("O") else "") + suffix
        self.expect("E")
        space = "" if result.right else " "
        right = f"({', '.join(map(str, parameters))}){suffix}{result.right}"
        return CxxType(result.left + space, right, TypeShape.FUNCTION, result, parameters)

    def _parameters(self, *, end: tuple[str, ...]) -> tuple[CxxType, ...]:
        """``<bare-function-type>`` without the result; a lone ``void`` is no parameter."""
        terms: list[Term] = []
        while not self._ended and not self._next(*end):
            terms.append(self._type())
        if not terms:
            raise self.fail("a function has no parameter types")
        types = flat(terms)
        self._spend(sum(len(str(t)) for t in types))
        return () if [str(t) for t in types] == ["void"] else types

    def _array(self) -> CxxType:
        """``<array-type> ::= A [<number>] _ <element type>``."""
        bound = self._match(_NUMBER_)[:-1]
        element = self.type()
        left = element.left if element.shape is TypeShape.ARRAY else element.left + " "
        return CxxType(left, f"[{bound}]{element.right}", TypeShape.ARRAY, element)

    def _member_pointer(self) -> CxxType:
        """``<pointer-to-member-type> ::= M <class type> <member type>``."""
        owner, member = self.type(), self.type()
        text = pointer_to(f"{owner}::*", member)
        space = "" if member.shape is TypeShape.FUNCTION or member.shape is TypeShape.ARRAY else " "
        left = text.left if not space else f"{member.left} {owner}::*"
        return CxxType(left, text.right, TypeShape.MEMBER_POINTER, member)
