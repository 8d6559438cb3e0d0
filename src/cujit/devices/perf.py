"""Whether profilers and debuggers hear of machine code; ``perf_files`` tells them."""

from __future__ import annotations

import os

from cujit.errors import OptionError, spell

PERF_VARIABLE = "CUJIT_PERF"

_VALUES = {"": "", "0": "", "1": "source", "ptx": "ptx"}


def wanted_lines() -> str:
    """Return which lines code needs: "source" (if the PTX names it), "ptx", or "" if none are requested.

    Raises:
        OptionError: the variable of the environment has another value.
    """
    setting = os.environ.get(PERF_VARIABLE, "")
    if setting not in _VALUES:
        raise OptionError(
            f"{PERF_VARIABLE} is {spell(setting)}, expected 0, 1 or ptx",
            help=f"unset {PERF_VARIABLE}",
            code="environment-value",
        )
    return _VALUES[setting]
