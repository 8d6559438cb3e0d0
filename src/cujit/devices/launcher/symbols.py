"""The names that the launcher's IR uses for what is in this process, and what is put in their place.

``@PyLong_AsDouble`` is a function of CPython, ``@run.integer`` one of ``runtime.py``, ``$None`` an object: all three
become symbols, so that the code is the same in every process. ``#state.alive`` is the offset in bytes of a field or of
an attribute, and becomes a number. C says ``cujit_object_None`` and ``cujit_place_type`` (``native/launcher.h``).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from cujit.devices.arguments.cupy_arrays import CupyInterface
from cujit.devices.arguments.pointers import Pointer
from cujit.devices.arguments.tensors import TensorInterface
from cujit.devices.arrays.array import DeviceArray
from cujit.devices.launcher.cpython import address_of, object_type_offset, slot_offset
from cujit.devices.launcher.state import LaunchState, place

__all__ = ["address_of_symbol", "link_names", "places_in_objects"]

_FUNCTION = re.compile(r"@(Py\w+)")
_OURS = re.compile(r"@run\.(\w+)")
_OBJECT = re.compile(r"\$(\w+)")
_PLACE = re.compile(r"#([a-z_]+(?:\.[a-z_]+)?)")

_OBJECTS: Mapping[str, object] = {
    "None": None,
    "True": True,
    "False": False,
    "zero": 0,
    "int": int,
    "float": float,
    "DeviceArray": DeviceArray,
    "Pointer": Pointer,
}
"""All live as long as the process. CPython has one object for each int from -5 to 256.

Source: CPython manual, "Integer Objects", ``PyLong_FromLong``.
"""


_SYMBOL = "cujit_object_"


def link_names(text: str, state_offset: int = 0, functions: Mapping[str, str] | None = None) -> str:
    """Replace the names in IR, and declare the symbols.

    ``state_offset`` is where a callable has the address of its state, in bytes, ``functions`` are the symbols for
    ``@run.<name>``.
    """
    places = {**_places(), "state": state_offset}
    symbols: dict[str, None] = {}

    def symbol(name: str) -> str:
        symbols[name] = None
        return f"@{name}"

    if functions is not None:
        text = _OURS.sub(lambda m: symbol(functions[m[1]]), text)
    text = _FUNCTION.sub(lambda m: symbol(m[1]), text)
    text = _OBJECT.sub(lambda m: symbol(_SYMBOL + m[1]), text)
    text = _PLACE.sub(lambda m: str(places[m[1]]), text)
    return "\n".join([*(f"@{name} = external global i8" for name in symbols), text])


def address_of_symbol(name: str) -> int | None:
    """Give what a symbol of ``link_names`` stands for in this process; None for functions of ours and of the system."""
    if name.startswith(_SYMBOL):
        return id(_OBJECTS[name.removeprefix(_SYMBOL)])
    return address_of(name) if _FUNCTION.fullmatch(f"@{name}") else None


@functools.cache
def places_in_objects() -> Mapping[str, int]:
    """Give the numbers that C declares: where objects have their type and attributes, in bytes."""
    return {
        "cujit_place_type": object_type_offset(),
        "cujit_place_pointer_address": slot_offset(Pointer, "address"),
        **{f"cujit_place_array_{name}": slot_offset(DeviceArray, f"_{name}") for name in ("address", "allocation")},
        **{f"cujit_place_array_{name}": slot_offset(DeviceArray, name) for name in ("device", "dtype", "nbytes")},
    }


@functools.cache
def _places() -> Mapping[str, int]:
    return {
        "type": object_type_offset(),
        **{f"tensors.{name}": int(getattr(TensorInterface, name).offset) for name, *_ in TensorInterface._fields_},
        **{f"cupy.{name}": int(getattr(CupyInterface, name).offset) for name, *_ in CupyInterface._fields_},
        **{f"state.{name}": place(name) for name, *_ in LaunchState._fields_},
    }
