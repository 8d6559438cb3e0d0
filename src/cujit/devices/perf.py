"""The setting that selects whether ``perf_files`` describes machine code to profilers and debuggers."""

from __future__ import annotations

import os

from cujit.errors import OptionError, spell

PERF_VARIABLE = "CUJIT_PERF"

_VALUES = {"": "", "0": "", "1": "source", "ptx": "ptx"}


def wanted_lines() -> str:
    """Return the requested line information: "source" (source lines, if the PTX contains them), "ptx", or "" for none.

    Raises:
        OptionError: the environment variable has another value.
    """
    setting = os.environ.get(PERF_VARIABLE, "")
    if setting not in _VALUES:
        raise OptionError(
            f"{PERF_VARIABLE} is {spell(setting)}, expected 0, 1 or ptx",
            help=f"unset {PERF_VARIABLE}",
            code="environment-value",
        )
    return _VALUES[setting]
