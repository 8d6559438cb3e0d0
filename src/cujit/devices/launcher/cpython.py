"""The facts about CPython that machine code needs: function addresses, offsets in objects, and a callable type.

No fact depends on the CPython version. The functions, the structures of the type's specification, and the numbers in
them are in the stable ABI. Offsets in objects are measured once, in an object.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, TypeVar

from cujit.errors import spell
from cujit.forks import single_flight_cache
from cujit.values import dataclass

_T = TypeVar("_T")

_WORD = 8

VERSIONS = ((3, 10), (3, 11), (3, 12), (3, 13), (3, 14))
"""Versions of CPython that the tests have launched with; in others launches run in Python."""


def is_supported() -> bool:
    """Return whether this interpreter supports machine code: a 64-bit CPython that was tested, with its one lock.

    Without the lock, reading an attribute of an array while another thread closes it is not safe.
    """
    return (
        sys.implementation.name == "cpython"
        and sys.version_info[:2] in VERSIONS
        and ctypes.sizeof(ctypes.c_void_p) == _WORD
        and sys.byteorder == "little"
        and "t" not in sys.abiflags  # PEP 703: a build without the lock
        and not hasattr(sys, "gettotalrefcount")  # a debug build may check more than it says
    )


@functools.cache
def address_of(function: str) -> int:
    """Return the address of a function of CPython's C API."""
    return int(ctypes.cast(getattr(ctypes.pythonapi, function), ctypes.c_void_p).value or 0)


def _words(value: object, size: int) -> list[int]:
    """Read an object's memory of ``size`` bytes as words."""
    return list((ctypes.c_uint64 * (size // _WORD)).from_address(id(value)))


@functools.cache
def object_type_offset() -> int:
    """Find where an object has its type, in bytes from its address."""
    return _words(object(), object.__basicsize__).index(id(object)) * _WORD


BYTES = bytes.__basicsize__ - 1
"""Where an object of bytes has them, from its address; after them is a zero, which its size counts.

Source: CPython, Include/cpython/bytesobject.h; ``PyBytes_AsString`` gives the same place.
"""


@functools.cache
def basic_size_offset() -> int:
    """Find where a type has the size of its objects (``__basicsize__``), in bytes from its address."""
    types = [type("Sized", (), {"__slots__": [f"slot{i}" for i in range(count)]}) for count in (23, 37, 61)]
    size: int = type.__dict__["__basicsize__"].__get__(type)
    rows = [_words(each, size) for each in types]
    sizes = [each.__basicsize__ for each in types]
    (index,) = (i for i, row in enumerate(zip(*rows, strict=True)) if list(row) == sizes)
    return index * _WORD


@functools.cache
def slot_offset(cls: type, name: str) -> int:
    """Find where an instance of a class has the attribute that its ``__slots__`` name, in bytes from its address."""
    instance: object = object.__new__(cls)
    mark = object()
    cls.__dict__[name].__set__(instance, mark)
    (index,) = (i for i, word in enumerate(_words(instance, cls.__basicsize__)) if word == id(mark))
    return index * _WORD


# -- a type whose instances carry the machine code that a call runs -----------------------------------------

# Source: CPython 3.10 to 3.14, Include/typeslots.h, Include/object.h and Include/structmember.h (stable ABI).
_TP_MEMBERS = 72
_TPFLAGS_DEFAULT = 1 << 18
_TPFLAGS_HAVE_VECTORCALL = 1 << 11
_T_PYSSIZET = 19
_READONLY = 1


class _Member(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("offset", ctypes.c_ssize_t),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _Slot(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int), ("value", ctypes.c_void_p))


class _Spec(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(_Slot)),
    )


class _Method(ctypes.Structure):
    """``PyMethodDef``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_METH_O, _METH_FASTCALL = 8, 128  # Source: CPython, Include/methodobject.h (stable ABI)


@single_flight_cache()
def index_by(cls: Any, function: int, index: str) -> _Method:
    """Make ``instance[index]`` of a class run machine code, ``object *function(object *instance, object *index)``."""
    doc = f"__getitem__($self, {index}, /)\n--\n\n{cls.__getitem__.__doc__}"
    method = _Method(b"__getitem__", function, _METH_O, doc.encode())
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.POINTER(_Method))(
        ("PyDescr_NewMethod", ctypes.pythonapi)
    )
    cls.__getitem__ = make(cls, ctypes.byref(method))
    return method  # the descriptor refers to it


class NativeCall:
    """A function that runs native code. ``keep`` must live as long as ``call``."""

    def __init__(self, call: Any, keep: object) -> None:
        self.call, self.keep = call, keep


def native_function(name: str, address: int, owner: object, *, is_fast: bool = False) -> NativeCall:
    """Return a Python function that runs native code with ``owner`` as the first argument. It accepts one more
    argument, or several with ``is_fast``.
    """
    method = _Method(name.encode(), address, _METH_FASTCALL if is_fast else _METH_O, None)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.POINTER(_Method), ctypes.py_object, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    return NativeCall(make(ctypes.byref(method), owner, None), method)


@dataclass(frozen=True)
class Callables:
    """A type of callable instances, each with separate machine code. ``offset`` is the offset of the code's address in
    an instance.

    The next word is the last word of the instance. There, the machine code finds its state.
    """

    type: Any
    offset: int
    specification: object

    @property
    def state_offset(self) -> int:
        """Where an instance has the address of its state, in bytes."""
        return self.offset + _WORD

    def attach(self, instance: object, code: int, state: int) -> None:
        """Set the machine code and the state of an instance, both by address. The instance must keep both alive."""
        if type(instance) is not self.type:
            raise TypeError(f"{spell(instance)} can't hold native code")
        ctypes.c_uint64.from_address(id(instance) + self.state_offset).value = state
        ctypes.c_uint64.from_address(id(instance) + self.offset).value = code


@single_flight_cache()
def native_type(base: type[Any]) -> Callables:
    """Return the final subclass of ``base`` with instances that are called by vectorcall (PEP 590), without Python
    code.

    A call of an instance without attached machine code calls ``base.__call__``. ``base`` has ``__slots__`` and no
    ``__dict__``. Source: PEP 590: where the pointer is null, ``tp_call`` is called, which is inherited here.
    """
    offset = base.__basicsize__
    members = (_Member * 2)(_Member(b"__vectorcalloffset__", _T_PYSSIZET, offset, _READONLY, None))
    slots = (_Slot * 4)(_Slot(_TP_MEMBERS, ctypes.addressof(members)))
    name = f"{base.__module__}.{base.__qualname__}".encode()
    flags = _TPFLAGS_DEFAULT | _TPFLAGS_HAVE_VECTORCALL
    spec = _Spec(name, offset + 2 * _WORD, 0, flags, ctypes.cast(slots, ctypes.POINTER(_Slot)))
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.POINTER(_Spec), ctypes.py_object)(
        ("PyType_FromSpecWithBases", ctypes.pythonapi)
    )
    made = make(ctypes.byref(spec), (base,))
    made.__doc__ = base.__doc__
    return Callables(made, offset, (spec, slots, members, name))
