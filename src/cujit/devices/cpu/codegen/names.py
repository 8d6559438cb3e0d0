"""What ``frame`` gives every warp's code by name."""

from __future__ import annotations

from cujit.devices.cpu.codegen.nodes import Value

__all__ = ["BLOCK", "FIRST_THREAD", "LAUNCH", "STATE", "WARP_NUMBER"]

LAUNCH = Value("%launch", "ptr")
STATE = Value("%state", "ptr")
"""The block, for warps with stacks of their own."""
BLOCK = Value("%block", "i64")
WARP_NUMBER = Value("%warp", "i32")
FIRST_THREAD = Value("%first.thread", "i32")
