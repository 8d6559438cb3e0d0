"""Loops over lanes in native code."""

from __future__ import annotations

import re

__all__ = ["with_lanes"]

_HEAD = re.compile(r"^each lane, from ([\w.]+), again from ([\w.]+):$", re.MULTILINE)

_EACH = r"""each:
  %left = phi i32 [ %lanes, %\1 ], [ %left.next, %\2 ]
  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 false)
  %less = sub i32 %left, 1
  %left.next = and i32 %left, %less"""


def with_lanes(text: str) -> str:
    """Replace ``each lane, from entry, again from next:`` by the head of a loop over the bits of ``%lanes``.

    It is the block ``each``, which comes from those two others; ``%lane`` is the lane, ``%left.next`` those after it.
    """
    return _HEAD.sub(_EACH, text)
