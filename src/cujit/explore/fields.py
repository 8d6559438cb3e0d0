"""Fields of a page for the arguments of a kernel, made from its signature and its source."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from cujit.devices.arguments.pointers import element_of, without_const
from cujit.devices.arguments.small_floats import FORMATS
from cujit.devices.arguments.vectors import vector_of
from cujit.devices.arguments.written import DTYPES
from cujit.signature import Parameter, ParameterClass, Signature
from cujit.values import attributes, dataclass

_USUAL_COUNT = 1024
_USUAL_ELEMENT = "f32"
"""What a pointer points to, and a word that may be one, if the image does not tell."""
_POINTER_BYTES = 8
_SPACES = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NUMBERS = {
    ParameterClass.SIGNED: str(_USUAL_COUNT),
    ParameterClass.UNSIGNED: str(_USUAL_COUNT),
    ParameterClass.BITS: str(_USUAL_COUNT),
    ParameterClass.FLOAT: "1.0",
}
_SMALL = {"half": "f16", "bfloat16": "bf16", "fp8 e4m3": "e4m3", "fp8 e5m2": "e5m2"}
_WORDS: dict[np.dtype[Any], str] = {np.dtype(code): word for word, code in reversed([*DTYPES.items()])}
"""Words by the dtypes of arrays; of several the first, which is NumPy's own."""
_LARGEST_COUNTER = 4
"""Bytes of an integer that counts 1,024 elements: a smaller one is a character or a flag."""


@dataclass(frozen=True)
class ArgumentField:
    """The page's input field for one argument.

    ``name`` is the parameter's name in the source ("" if unknown), and ``type`` is its C++ type. ``form`` is ``array``,
    ``number``, ``truth``, or ``text``. ``dtype`` is the element type of an array in the spelling of ``--arg``. ``word``
    is an argument that fits.
    """

    name: str
    type: str
    form: str
    dtype: str
    word: str

    @classmethod
    def of(cls, parameter: Parameter, name: str) -> ArgumentField:
        """Make the field of a parameter."""
        kind = parameter.kind
        if kind is ParameterClass.POINTER or (kind is ParameterClass.BITS and parameter.size == _POINTER_BYTES):
            dtype = _element(parameter.pointee) if parameter.pointee else _USUAL_ELEMENT
            return cls(name, str(parameter), "array", dtype, f"zeros:{dtype}:{_USUAL_COUNT}")
        if kind is ParameterClass.BOOL:
            return cls(name, str(parameter), "truth", "", "true")
        if kind in _NUMBERS:
            is_small = kind is not ParameterClass.FLOAT and parameter.size < _LARGEST_COUNTER
            return cls(name, str(parameter), "number", "", "1" if is_small else _NUMBERS[kind])
        return cls(name, str(parameter), "text", "", "")

    def to_json(self) -> dict[str, Any]:
        """Return the field as plain values."""
        return attributes(self, "name type form dtype word")


def fields_of(signature: Signature | None, kernel: str, source: str) -> tuple[ArgumentField, ...]:
    """Return the input fields of a kernel, with parameter names if they can be read from the source."""
    parameters = tuple(signature or ())
    names = parameter_names(source, kernel)
    if len(names) != len(parameters):
        names = ("",) * len(parameters)
    return tuple(map(ArgumentField.of, parameters, names))


def parameter_names(source: str, kernel: str) -> tuple[str, ...]:
    """Return the parameter names of a kernel. Return an empty tuple if the source contains no such declaration."""
    bare = kernel.partition("<")[0].partition("(")[0].rpartition("::")[2]
    text = _SPACES.sub(" ", source)
    found = re.search(rf"__global__\b[^;{{}}]*?\b{re.escape(bare)}\s*\(", text) if bare else None
    parts = _parts(text[found.end() :]) if found is not None else []
    return tuple(_name(part) for part in parts)


def _parts(text: str) -> list[str]:
    """Split the text in parentheses at its commas, up to the closing parenthesis."""
    parts, depth = [""], 0
    for character in text:
        if character in ")" and not depth:
            return [part for part in parts if part.strip()]
        depth += (character in "(<[{") - (character in ")>]}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return []


def _name(parameter: str) -> str:
    words = re.findall(r"[A-Za-z_]\w*", re.sub(r"=.*|\[[^\]]*\]", "", parameter, flags=re.DOTALL))
    return words[-1] if len(words) > 1 else ""


def _element(pointee: str) -> str:
    """Return the element type of a pointer in the spelling of ``--arg``. Return bytes if ``--arg`` has no such type."""
    bare = without_const(pointee)[0]
    if bare in FORMATS:
        return _SMALL[FORMATS[bare].name]
    vector = vector_of(bare)
    return _WORDS[element_of(bare) or (np.dtype("u1") if vector is None else vector[0])]
