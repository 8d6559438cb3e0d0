"""Recipes: a compile written down beside its result, so that the source can be looked at and the compile repeated.

A recipe holds what the user said; headers in files and the tools themselves are taken as they are when it is followed.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from typing import Any

from cujit.arch import Arch, ArchKind
from cujit.artifact import ImageKind
from cujit.compiler.inputs.source import NvvmModule, Source
from cujit.compiler.options.values import Options
from cujit.compiler.request import Request
from cujit.errors import CujitError, FormatError
from cujit.values import attributes

_MOST_BYTES = 1 << 20
_SCHEMA = 1


def write_recipe(request: Request) -> bytes:
    """Serialize a request as JSON, compressed by zlib. Return nothing if the JSON has more than 1 MiB.

    Relative include directories become absolute.
    """
    text = json.dumps({"schema": _SCHEMA, **recipe_of(request)})
    return zlib.compress(text.encode(), 1) if len(text) <= _MOST_BYTES else b""


def recipe_of(request: Request) -> dict[str, Any]:
    """Write a request as JSON has it."""
    source = request.source
    return {
        "kind": request.kind.value,
        "arch": [request.arch.kind.value, request.arch.number, request.arch.suffix],
        "names": request.names,
        "options": {name: _value(name, request.options[name]) for name in request.options},
        "extra": request.options.extra,
        "language": source.language,
        "text": "" if source.modules else source.text,
        **attributes(source, "name path headers include define"),
        "modules": [[module.name, base64.b64encode(module.data).decode()] for module in source.modules],
        "libdevice": source.libdevice,
        **({"kernels": source.kernels} if source.kernels else {}),
    }


def _value(name: str, given: object) -> object:
    if name == "include" and isinstance(given, tuple):
        return [os.path.abspath(directory) for directory in given]
    return dict(given) if isinstance(given, dict) or hasattr(given, "keys") else given  # type: ignore[call-overload]


def read_recipe(data: bytes) -> Request:
    """Read the request that a recipe holds.

    Raises:
        FormatError: the bytes are no recipe.
    """
    try:
        packed = zlib.decompressobj()
        text = packed.decompress(data, _MOST_BYTES)
        if not packed.eof:
            raise FormatError(f"the recipe is truncated, or larger than {_MOST_BYTES} bytes")
        recipe = json.loads(text)
        if recipe["schema"] != _SCHEMA:
            raise FormatError(f"the recipe has schema {recipe['schema']}, but this cujit reads schema {_SCHEMA}")
    except (zlib.error, KeyError, TypeError, ValueError, RecursionError) as e:
        raise FormatError(f"the data is not a recipe: {e}") from e
    return request_of(recipe)


def request_of(recipe: dict[str, Any]) -> Request:
    """Read the output of ``recipe_of``.

    Raises:
        FormatError: the data is not a request.
    """
    try:
        return _request(recipe)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, CujitError) as e:
        raise FormatError(f"the data is not a recipe: {e}") from e


def _request(recipe: dict[str, Any]) -> Request:
    modules = tuple(NvvmModule(str(name), base64.b64decode(data, validate=True)) for name, data in recipe["modules"])
    is_text = len(modules) == 1 and recipe["language"] == "nvvm"
    text = (modules[0].text or "") if is_text else str(recipe["text"])
    source = Source(
        text,
        str(recipe["name"]),
        tuple((str(name), str(header)) for name, header in recipe["headers"]),
        tuple(map(str, recipe["include"])),
        tuple((str(name), None if value is None else str(value)) for name, value in recipe["define"]),
        str(recipe["path"]),
        str(recipe["language"]),
        modules,
        bool(recipe["libdevice"]),
        tuple((str(expression), str(lowered)) for expression, lowered in recipe.get("kernels", ())),
    )
    kind, number, suffix = recipe["arch"]
    arch = Arch(ArchKind(kind), int(number), str(suffix))
    options = Options.of(recipe["options"], {"extra": recipe["extra"]})
    return Request(source, ImageKind(recipe["kind"]), arch, options, tuple(map(str, recipe["names"])))
