"""Saved profiles: the output of ``cujit profile --json`` and of ``Profile.to_json``."""

from __future__ import annotations

import json
import os

from cujit.artifact.reading import path_of, read_file
from cujit.devices.cpu.observe.measures import ProfiledKernel
from cujit.errors import FormatError, spell

_SCHEMA = 1


def read_profile(path: str | os.PathLike[str]) -> tuple[ProfiledKernel, ...]:
    """Read the kernels that ``cujit profile --json`` wrote to a file, or a program from ``Profile.to_json``.

    Args:
        path: path of the file.

    Raises:
        FormatError: the value is invalid.
        FileError: the file can't be read.

    Example::

        Path("counts.json").write_text(json.dumps(cujit.profile.Profile().to_json()))
        assert cujit.profile.read_profile("counts.json") == ()
    """
    path = path_of(path)
    try:
        record = json.loads(read_file(path))
        if record.get("schema", _SCHEMA) != _SCHEMA:
            name = spell(os.path.basename(path))
            raise FormatError(f"{name} has schema {spell(record['schema'])}, but this cujit reads schema {_SCHEMA}")
        return tuple(map(ProfiledKernel.from_json, record["kernels"]))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as e:
        if isinstance(e, FormatError):
            raise
        name = spell(os.path.basename(path))
        raise FormatError(
            f"{name} was not written by cujit profile --json",
            help="run cujit profile … --json > FILE to create such a file",
        ) from e
