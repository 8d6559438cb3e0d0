"""The names that the launcher's IR uses for what is in this process, and what is put in their place.

``@PyLong_AsDouble`` is a function of CPython, ``$None`` an object: both become symbols, so that the code is the same in
every process. ``#state.alive`` is the offset in bytes of a field, and becomes a number. C has its own spelling of these
(``native/launcher.h``): ``cujit_object_None`` is such a symbol, ``cujit_place_type`` such a number.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from cujit.devices.arguments.pointers import Pointer
from cujit.devices.arrays.array import DeviceArray
from cujit.devices.launcher.cpython import address_of, object_type_offset, slot_offset
from cujit.devices.launcher.scalars import scalar_offset
from cujit.devices.launcher.state import KeepsLaunches, LaunchCache, LaunchState, place

_FUNCTION = re.compile(r"@(Py\w+)")
_OBJECT = re.compile(r"\$(\w+)")
_PLACE = re.compile(r"#([a-z_]+(?:\.[a-z_]+)?)")

_OBJECTS: Mapping[str, object] = {
    "None": None,
    "True": True,
    "False": False,
    "zero": 0,
    "int": int,
    "float": float,
    "str": str,
    "tuple": tuple,
    "dict": dict,
    "fix": "_fix",
    "dtype": "dtype",
    "DeviceArray": DeviceArray,
    "Pointer": Pointer,
}
"""All live as long as the process. CPython has one object for each int from -5 to 256.

Source: CPython manual, "Integer Objects", ``PyLong_FromLong``.
"""


_SYMBOL = "cujit_object_"


def link_names(text: str) -> str:
    """Replace the names in IR, and declare the symbols."""
    places = _places()
    symbols: dict[str, None] = {}

    def symbol(name: str) -> str:
        symbols[name] = None
        return f"@{name}"

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
        "cujit_place_scalar": scalar_offset(),
        "cujit_place_kernel_cache": slot_offset(KeepsLaunches, "_cache"),
        **{f"cujit_place_cache_{name}": slot_offset(LaunchCache, name) for name in ("launches", "last", "last_shape")},
        "cujit_place_pointer_address": slot_offset(Pointer, "address"),
        **{f"cujit_place_array_{name}": slot_offset(DeviceArray, f"_{name}") for name in ("address", "allocation")},
        **{f"cujit_place_array_{name}": slot_offset(DeviceArray, name) for name in ("device", "dtype", "nbytes")},
    }


@functools.cache
def _places() -> Mapping[str, int]:
    return {f"state.{name}": place(name) for name, *_ in LaunchState._fields_}
