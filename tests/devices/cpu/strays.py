"""Accesses far beyond shared, local and global memory of the CPU device, in a process of their own.

Each line is a case and what came of it. The process has to reach its end: an access of a kernel that corrupts the host,
or ends it, is what ``test_windows.py`` looks for.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np

import cujit
from cujit.errors import CujitError

_HEAD = ".version 8.6\n.target sm_90\n.address_size 64\n"
_TOUCHES = {
    "read": "ld{S}.u32 r1, [{A}];",
    "write": "st{S}.u32 [{A}], r1;",
    "vector": "st{S}.v4.u32 [{A}], {{r1, r1, r1, r1}};",
    "atomic": "atom{S}.add.u32 r1, [{A}], 1;",
    "byte": "ld{S}.u8 r1, [{A}];",
}
_BASES = {
    "static": (".shared .align 16 .b8 s[256];", "s", ".shared", 0),
    "dynamic": (".extern .shared .align 16 .b8 s[];", "s", ".shared", 4096),
    "no dynamic": (".extern .shared .align 16 .b8 s[];", "s", ".shared", 0),
    "generic": (".shared .align 16 .b8 s[256];", "s", "", 0),
    "local": (".local .align 16 .b8 s[64];", "s", ".local", 0),
}
_FAR = (8192, 65536, 1 << 20, (1 << 24) - 65536, -65536, -(1 << 20))
_WIDE = (1 << 28, -(1 << 28), (1 << 30) + 4096)


def _kernel(base: str, touch: str, each: int) -> tuple[str, int]:
    declared, symbol, space, dynamic = _BASES[base]
    if space == ".local" and touch == "atomic":
        touch = "write"
    address = f"mov.u64 d1, {symbol};" + (" cvta.shared.u64 d1, d1;" if not space else "")
    first = f"st{space or '.shared'}.u32 [s], r1;" if base != "no dynamic" else ""
    outside = declared if declared.startswith(".extern") else ""
    inside = "" if outside else declared
    body = (
        f"{inside} mov.u32 r1, %tid.x; {first} {address} mul.wide.u32 d2, r1, {each}; add.s64 d1, d1, d2; "
        f"ld.param.s64 d3, [far]; add.s64 d1, d1, d3; {_TOUCHES[touch].format(S=space, A='d1')} "
        "ld.param.u64 d1, [out]; st.global.u32 [d1], r1;"
    )
    head = f"{_HEAD}{outside}\n.visible .entry k(.param .u64 out, .param .u64 far) {{ .reg .b32 r<4>; .reg .b64 d<4>; "
    return f"{head}{body} ret; }}\n", dynamic


def cases() -> Iterator[tuple[str, str, int, int]]:
    """List base, access, offset and stride of lanes."""
    for base in _BASES:
        for touch in _TOUCHES:
            for far in _FAR + (_WIDE if base != "local" else ()):
                yield base, touch, far, 16
        yield base, "write", _FAR[0], 0


def main() -> None:
    device = cujit.cpu()
    kernels, out = {}, device.zeros(1, np.uint32)
    for base, touch, far, each in cases():
        if base == "no dynamic" and abs(far) < 4096:
            continue
        if (base, touch, each) not in kernels:
            text, dynamic = _kernel(base, touch, each)
            kernels[base, touch, each] = cujit.load(cujit.Artifact.of(text), device)["k"], dynamic
        kernel, dynamic = kernels[base, touch, each]
        try:
            kernel.prepare(2, 64, shared_bytes=dynamic)(out, far)
            said = "nothing"
        except CujitError as e:
            said = f"{type(e).__name__}: {e}".splitlines()[0]
        print(f"{base}, {touch}, {far}, {each}\t{said}")
    taken = [np.ones(k % 5000) for k in range(3000)]
    del taken
    gc.collect()
    print("alive")


if __name__ == "__main__":
    main()
