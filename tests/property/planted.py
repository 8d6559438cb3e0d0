"""Random kernels with mistakes in them, and what the checks of the CPU device find: thread, line, address and words.

``python tests/property/planted.py FILE SEED...`` writes what each seed's kernel ends with to a file of JSON. Two trees
are compared by the files that they write; ``tests/goldens/checks.json`` is what the checks found when every access of
every lane was looked at alone, and since then what is added where a loaded value that nobody wrote decides a branch.
It was written with ``CUJIT_CPU_OPTIMIZE=0``.
"""

from __future__ import annotations

import functools
import json
import random
import re
import sys
import zlib
from pathlib import Path

import numpy as np

import cujit
from cujit.devices.device import Device
from cujit.devices.process import process_devices
from cujit.errors import KernelFaultError

__all__ = ["CHECKS", "finding", "kernel_of"]

CHECKS = ("memory", "race", "init", "sync", "all")
SHARED, GLOBAL, LOCAL = 2048, 8192, 64
"""Bytes of what the kernels access."""

_TYPES = {1: ("u8", "u32"), 2: ("u16", "u32"), 4: ("b32", "u32"), 8: ("b64", "u64"), 16: ("v4.b32", "")}
_ROWS = ((32, 1), (64, 1), (96, 1), (128, 1), (256, 1), (16, 4), (8, 8), (16, 16), (40, 1), (20, 3))
_HEAD = """.version 9.1
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) {{
.reg .b32 t, l, w, a, b, v<4>, c<4>; .reg .b64 d, x, y, z, dl, el; .reg .pred p, q, r;
.shared .align 16 .b8 s[{shared}];
.local .align 16 .b8 loc[{local}];
ld.param.u64 x, [in]; ld.param.u64 y, [out];
mov.u32 l, %tid.y; mov.u32 w, %ntid.x; mov.u32 t, %tid.x; mad.lo.u32 t, l, w, t; shr.u32 w, t, 5; and.b32 l, t, 31;
mov.u32 v0, t; mov.u32 v1, 1; mov.u32 v2, w; mov.u32 v3, l; mov.u64 dl, 7; mov.u64 z, loc;"""


class Writer:
    """Writes the kernel of a seed as PTX."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.check = self.rng.choice(CHECKS)
        self.block = self.rng.choice(_ROWS)
        self.threads = self.block[0] * self.block[1]
        self.lines: list[str] = []
        self.labels = 0

    def text(self) -> str:
        """Write it whole."""
        rng = self.rng
        for space in ("shared", "global", "local"):
            if rng.random() < 0.8:
                self._fill(space)
        if rng.random() < 0.9:
            self._barrier()
        for _ in range(rng.randint(2, 9)):
            self._statement(2)
        head = _HEAD.format(shared=SHARED, local=LOCAL)
        return "\n".join([head, *self.lines, "ret; }"])

    def _add(self, text: str) -> None:
        self.lines += text.split("\n")

    # -- statements --------------------------------------------------------------------------------------

    def _statement(self, depth: int) -> None:
        kinds = ["load", "load", "store", "store", "barrier", "warp", "exchange", "atomic", "strong"]
        kinds += ["when", "parted", "loop"] if depth else []
        weights = [5, 5, 4, 4, 6, 2, 1, 1.5, 1, *([2, 2, 2] if depth else [])]
        kind = self.rng.choices(kinds, weights)[0]
        getattr(self, f"_{kind}")(*([depth] if kind in ("parted", "loop") else []))

    def _fill(self, space: str) -> None:
        """Write all of a space; sometimes too little."""
        size = {"shared": SHARED, "global": GLOBAL // 2, "local": LOCAL}[space]
        step = 16 if space == "local" else 16 * self.threads
        short = 16 if self.rng.random() < 0.1 else 0
        base = {"shared": "", "global": "y", "local": "z"}[space]
        for k in range(0, size - short, step):
            self._add("mov.u32 a, 0;" if space == "local" else "shl.b32 a, t, 4;")
            self._add(f"add.u32 a, a, {k}; setp.lt.u32 p, a, {size - short};")
            if base:
                self._add(f"cvt.u64.u32 d, a; add.u64 d, d, {base};")
            else:
                self._add("mov.u32 b, s; add.u32 b, b, a;")
            self._add(f"@p st.{space}.v4.b32 [{'d' if base else 'b'}], {{v1, v1, v1, v1}};")

    def _place(self, space: str, size: int) -> str:
        """Compute an address of every thread, most often within the space."""
        rng = self.rng
        limit = {"shared": SHARED, "global": GLOBAL // 2, "local": LOCAL}[space]
        places = limit // size
        form = rng.choice(["t", "t", "t", "back", "xor", "low", "lane", "warp", "one", "hash", "far"])
        by = rng.choice([1, 1, 1, 2, 3])
        self._add({
            "t": f"mul.lo.u32 a, t, {by};",
            "back": f"mov.u32 a, {self.threads - 1}; sub.u32 a, a, t;",
            "xor": f"xor.b32 a, t, {rng.choice([1, 2, 16, 31, 32])};",
            "low": f"and.b32 a, t, {rng.choice([1, 3, 7, 15, 63])};",
            "lane": f"mul.lo.u32 a, l, {by};",
            "warp": "mov.u32 a, w;",
            "one": f"mov.u32 a, {rng.randrange(places)};",
            "hash": f"mul.lo.u32 a, t, {rng.choice([7, 40503, 12])};",
            "far": f"mad.lo.u32 a, t, {by}, {rng.choice([1, 32, 64])};",
        }[form])  # fmt: skip
        # Without the check of memory, wrong places are those of others.
        wild = self.check in ("memory", "all")
        if not wild or rng.random() < 0.85:
            self._add(f"rem.u32 a, a, {places if not wild or rng.random() < 0.95 else 2 * places};")
        self._add(f"mul.lo.u32 a, a, {size};")
        if wild and rng.random() < 0.05:
            self._add(f"add.u32 a, a, {rng.choice([1, 2, 4, size, limit - size, limit])};")
        if space == "shared":
            self._add("mov.u32 b, s; add.u32 a, a, b;")
            if rng.random() < 0.1:
                self._add("cvt.u64.u32 d, a; cvta.shared.u64 d, d;")
                return "generic"
            return "a"
        self._add(f"cvt.u64.u32 d, a; add.u64 d, d, {'z' if space == 'local' else rng.choice('xyy')};")
        return "d"

    def _guard(self) -> str:
        """Narrow the lanes of the operation that follows, sometimes."""
        rng = self.rng
        if rng.random() < 0.65:
            return ""
        self._add(self._condition("q"))
        return rng.choice(["@q ", "@!q "])

    def _condition(self, name: str) -> str:
        rng = self.rng
        return rng.choice([
            f"setp.lt.u32 {name}, t, {rng.randint(1, self.threads)};",
            f"setp.eq.u32 {name}, w, {rng.randrange(4)};",
            f"and.b32 a, t, {rng.choice([1, 2, 4, 8])}; setp.eq.u32 {name}, a, 0;",
            f"setp.eq.u32 {name}, t, {rng.randrange(self.threads)};",
            f"mov.u32 a, %ctaid.x; setp.eq.u32 {name}, a, {rng.randrange(2)};",
        ])  # fmt: skip

    def _access(self) -> tuple[str, str, int, str]:
        rng = self.rng
        space = rng.choices(["shared", "global", "local"], [6, 3, 1])[0]
        size = rng.choices([1, 2, 4, 8, 16], [1, 1, 8, 1, 1])[0]
        at = self._place(space, size)
        if at == "generic":
            return "", "d", size, self._guard_keeping()
        return f".{space}", at, size, self._guard_keeping()

    def _guard_keeping(self) -> str:
        """Narrow the lanes, without the register of the address."""
        self._add("mov.b32 b, a;")
        guard = self._guard()
        self._add("mov.b32 a, b;")
        return guard

    def _value(self, size: int) -> str:
        if size == 16:
            return "{v0, v1, v2, v3}"
        return "dl" if size == 8 else self.rng.choice(["v0", "v1", "v2", "v3"])

    def _load(self) -> None:
        space, at, size, guard = self._access()
        volatile = ".volatile" if self.rng.random() < 0.03 and size < 16 else ""
        into = {8: "el", 16: "{c0, c1, c2, c3}"}.get(size) or self.rng.choice(["c0", "c1"])
        use = self._use(into, size) if self.check in ("init", "all") else ""
        self._add(f"{guard}ld{volatile}{space}.{_TYPES[size][0]} {into}, [{at}];{use}")

    def _use(self, loaded: str, size: int) -> str:
        """Let what was loaded decide a branch, in the line of the load: else it may be raw without a finding."""
        self.labels += 1
        word, bits = loaded.strip("{}").partition(",")[0], 64 if size == 8 else 32
        return f" setp.eq.b{bits} r, {word}, 0; @r bra USED{self.labels}; USED{self.labels}:"

    def _store(self) -> None:
        space, at, size, guard = self._access()
        self._add(f"{guard}st{space}.{_TYPES[size][0]} [{at}], {self._value(size)};")

    def _atomic(self) -> None:
        space = self.rng.choice(["shared", "shared", "global"])
        at, guard = self._place(space, 4), self._guard_keeping()
        space = "" if at == "generic" else f".{space}"
        at = "d" if at == "generic" else at
        self._add(f"{guard}atom{space}.add.u32 c2, [{at}], v1;")

    def _strong(self) -> None:
        at, guard = self._place("shared", 4), self._guard_keeping()
        space, at = ("", "d") if at == "generic" else (".shared", at)
        if self.rng.random() < 0.5:
            self._add(f"{guard}st.release.cta{space}.u32 [{at}], v1;")
        else:
            self._add(f"{guard}ld.acquire.cta{space}.u32 c3, [{at}];")

    def _barrier(self) -> None:
        rng = self.rng
        warps = -(-self.threads // 32)
        what = rng.choices(["all", "named", "count", "wrong", "arrive", "guarded"], [30, 1, 1, 0.4, 0.6, 0.4])[0]
        if what == "count" and warps > 1:
            count = 32 * rng.randint(1, warps)
            self._add(f"setp.lt.u32 p, t, {count}; @p barrier.sync 2, {count};")
        elif what == "arrive" and warps == 2 and self.threads == 64:
            self._add("setp.eq.u32 p, w, 0; @p barrier.arrive 3, 64; @!p barrier.sync 3, 64;")
        elif what == "wrong":
            self._add("mov.u32 a, 48; bar.sync 1, a;")
        elif what == "guarded":
            self._add(f"{self._condition('p')} @p barrier.sync 0; @!p barrier.sync 0;")
        else:
            self._add(f"{rng.choice(['bar.sync', 'barrier.sync'])} {1 if what == 'named' else 0};")

    def _warp(self) -> None:
        self._add(f"bar.warp.sync {self.rng.choices(['0xffffffff', '0xffff', '0x0000fffe'], [20, 1, 1])[0]};")

    def _exchange(self) -> None:
        mask = self.rng.choices(["0xffffffff", "0x7fffffff"], [12, 1])[0]
        self._add(f"shfl.sync.bfly.b32 c1, v0, {self.rng.choice([1, 16])}, 31, {mask};")

    # -- flow --------------------------------------------------------------------------------------------

    def _when(self) -> None:
        """Let some threads leave."""
        if self.rng.random() < 0.3:
            self._add(f"{self._condition('p')} @p exit;")

    def _parted(self, depth: int) -> None:
        self.labels += 1
        k = self.labels
        self._add(f"{self._condition('p')} @p bra ELSE{k};")
        self._inside(depth)
        self._add(f"bra END{k}; \nELSE{k}:")
        if self.rng.random() < 0.6:
            self._inside(depth)
        self._add(f"END{k}:")

    def _loop(self, depth: int) -> None:
        self.labels += 1
        k = self.labels
        counter = f"n{k}"
        self._add(f".reg .b32 {counter}; mov.u32 {counter}, 0; \nLOOP{k}:")
        for _ in range(self.rng.randint(1, 3)):
            self._statement(depth - 1)
        self._add(
            f"add.u32 {counter}, {counter}, 1; setp.lt.u32 p, {counter}, {self.rng.randint(2, 4)}; @p bra LOOP{k};"
        )

    def _inside(self, depth: int) -> None:
        """Write what a part of the threads does: barriers there are mistakes most often, so that they are rare."""
        for _ in range(self.rng.randint(1, 2)):
            before = len(self.lines)
            self._statement(depth - 1)
            if self.rng.random() < 0.85 and any("bar" in line for line in self.lines[before:]):
                del self.lines[before:]
                self._load()


def kernel_of(seed: int) -> tuple[str, str, tuple[int, int]]:
    """Give the PTX of a seed, the check that it is for, and its block."""
    writer = Writer(seed)
    return writer.text(), writer.check, writer.block


@functools.cache
def _device(check: str) -> Device:
    return process_devices().cpu(1, check=check)


def finding(seed: int) -> str:
    """Run the kernel of a seed, and give what it ends with: a finding in words, or a digest of what it wrote."""
    text, check, block = kernel_of(seed)
    device = _device(check)
    x = device.array(np.arange(GLOBAL, dtype=np.uint8))
    y = device.empty(GLOBAL, np.uint8)
    if check not in ("init", "all"):
        y.fill(0)
    try:
        cujit.load(cujit.Artifact.of(text), device)["k"][2, block](x, y)
        seen = [np.asarray(array).tobytes() for array in (x, y)]
    except KernelFaultError as error:
        address = -1 if error.address is None else error.address - x.address
        apart = y.address - x.address  # which is as it happens
        near = f" x{address:+}" if abs(address) <= GLOBAL and not 0 <= address - apart < GLOBAL else ""
        words = re.sub(
            r"0x[0-9a-f]{6,}(?:: (?!byte |local |PTX ).*)?|:\d+\b|[-+\w/.]+\.py"
            r"|(?<=multiple of \d); .*|(?<=multiple of \d\d); .*",
            "_",
            error.message,
        )
        place = f"{error.kind} {error.block} {error.thread} line {error.line}{near}"
        return error.kind if error.kind == "illegal_address" else f"{place}: {words}"
    return "nothing " + " ".join(f"{zlib.crc32(each):08x}" for each in seen)


def main(target: str, *seeds: str) -> None:
    """Write the findings of seeds, or of a range ``FIRST-LAST``, to a file."""
    numbers = [n for seed in seeds for n in _numbers(seed)]
    found = {str(n): finding(n) for n in numbers}
    Path(target).write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")


def _numbers(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
