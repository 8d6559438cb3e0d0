"""Texture and surface instructions of the lanes of a warp, one lane after the other.

The emitted kernel puts what the lanes ask for into an ``Exchange`` and finds the answers there.
"""

from __future__ import annotations

from cujit.devices.cpu.native.exchange import expanded
from cujit.devices.cpu.native.faultkinds import FaultKind
from cujit.devices.cpu.native.fetching import fetching_text
from cujit.devices.cpu.native.sampling import sampling_text
from cujit.devices.cpu.native.surfaces import surfaces_text
from cujit.devices.cpu.program import WARP

__all__ = ["SYMBOLS", "textures_text"]

SYMBOLS = ("cujit_texture", "cujit_surface", "cujit_query")
"""What emitted kernels call."""


def textures_text() -> str:
    """Write the IR; ``cujit_fault`` is another part's."""
    return expanded("\n".join((_FAULTS, sampling_text(), fetching_text(), surfaces_text(), _loops())))


# -- faults -----------------------------------------------------------------------------------------------

# %where names the thread that asks: the launch, its block, the warp's first thread and the line.
_FAULTS = f"""
%texture.where = type {{ ptr, i64, i32, i32 }}

define internal void @texture_fault(ptr %where, i32 %lane, i32 %kind, i64 %address) noreturn noinline cold {{
  %launch = load ptr, ptr %where
  %block.at = getelementptr %texture.where, ptr %where, i32 0, i32 1
  %block = load i64, ptr %block.at
  %first.at = getelementptr %texture.where, ptr %where, i32 0, i32 2
  %first = load i32, ptr %first.at
  %line.at = getelementptr %texture.where, ptr %where, i32 0, i32 3
  %line = load i32, ptr %line.at
  %thread = add i32 %first, %lane
  call void @cujit_fault(ptr %launch, i32 %kind, i64 %block, i32 %thread, i32 %line, i64 %address)
  unreachable
}}

; The descriptor that a handle is the address of.
define internal ptr @texture_described(ptr %where, i32 %lane, i64 %handle, i64 %mark) {{
  %odd = and i64 %handle, 7
  %whole = icmp eq i64 %odd, 0
  %some = icmp ugt i64 %handle, 4095
  %good = and i1 %whole, %some
  br i1 %good, label %look, label %bad
look:
  %d = inttoptr i64 %handle to ptr
  %found = load i64, ptr %d
  %right = icmp eq i64 %found, %mark
  br i1 %right, label %have, label %bad
have:
  ret ptr %d
bad:
  call void @texture_fault(ptr %where, i32 %lane, i32 {int(FaultKind.ILLEGAL_ADDRESS)}, i64 %handle)
  unreachable
}}
"""

# -- all lanes --------------------------------------------------------------------------------------------

_WHERE = "ptr %launch, i64 %block, i32 %first, i32 %line, i32 %mask, ptr %data"

_QUERY = """
define internal void @query_lane(ptr %where, ptr %data, i32 %lane, i64 %mark, i64 %offset) {
  %handle = lane i64 handle
  %d = call ptr @texture_described(ptr %where, i32 %lane, i64 %handle, i64 %mark)
  %at = getelementptr i8, ptr %d, i64 %offset
  %word = load i32, ptr %at
  %wide = zext i32 %word to i64
  call void @texture_answer(ptr %data, i32 %lane, i32 0, i64 %wide)
  ret void
}
"""


def _loops() -> str:
    """The functions that kernels call: each does its work for the lanes of a mask, lowest first."""
    return _QUERY + "".join(
        _loop(name, parameters)
        for name, parameters in (
            ("texture", "i32 %axes, i1 %layered, i1 %cube, i1 %whole, i32 %gather"),
            ("surface", "i32 %operation, i32 %axes, i1 %layered, i32 %unit, i32 %bytes, i32 %count, i32 %bounds"),
            ("query", "i64 %mark, i64 %offset"),
        )
    )


def _loop(name: str, parameters: str) -> str:
    return f"""
define void @cujit_{name}({_WHERE}, {parameters}) {{
entry:
  %where = alloca %texture.where
  %where.0 = insertvalue %texture.where poison, ptr %launch, 0
  %where.1 = insertvalue %texture.where %where.0, i64 %block, 1
  %where.2 = insertvalue %texture.where %where.1, i32 %first, 2
  %where.3 = insertvalue %texture.where %where.2, i32 %line, 3
  store %texture.where %where.3, ptr %where
  br label %each
each:
  %lane = phi i32 [ 0, %entry ], [ %lane.next, %next ]
  %bits = lshr i32 %mask, %lane
  %bit = and i32 %bits, 1
  %runs = icmp ne i32 %bit, 0
  br i1 %runs, label %do, label %next
do:
  call void @{name}_lane(ptr %where, ptr %data, i32 %lane, {parameters})
  br label %next
next:
  %lane.next = add i32 %lane, 1
  %more = icmp ult i32 %lane.next, {WARP}
  br i1 %more, label %each, label %end
end:
  ret void
}}
"""
