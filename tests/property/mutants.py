"""Invalid PTX, mutated from valid PTX by tokens; and what the CPU device may say to it.

``python tests/property/mutants.py SECONDS [SEED]`` looks for texts that it answers wrongly, and prints them.

A text that kills the process stays in ``.fuzz/last.ptx``.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import cujit
from cujit.devices.device import Device
from cujit.errors import CujitError
from cujit.signature import Parameter, ParameterClass

__all__ = ["CALLS", "corpus", "mutant", "tokens_of", "wrong_answer"]

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
CALLS = (
    HEAD
    + """.global .align 4 .u32 table[4] = {1, 2, 3, 4};
.global .align 8 .u64 where = generic(table);
.extern .shared .align 16 .b8 dynamic[];
.func (.param .b32 r) twice(.param .b32 x);
.func (.reg .u32 r) plus(.reg .u32 x, .reg .u32 y) { add.u32 r, x, y; ret; }
.func (.param .b32 r) twice(.param .b32 x) {
    .reg .b32 %r<4>; .reg .pred %p<2>; ld.param.b32 %r1, [x]; setp.gt.s32 %p1, %r1, 9; @%p1 bra L1;
    shl.b32 %r1, %r1, 1; L1: st.param.b32 [r], %r1; ret;
}
.visible .entry k(.param .u64 out, .param .align 8 .b8 s[16], .param .f32 x) .maxntid 64, 1, 1 {
    .reg .b32 %r<16>; .reg .b64 %a<8>; .reg .pred %p<4>; .reg .v2 .b32 v; .local .align 4 .b8 kept[64];
    .shared .align 8 .b64 bar; .reg .f32 %f<4>; .reg .b16 %h<4>;
    ld.param.u64 %a1, [out]; ld.param.v2.u32 {%r1, %r2}, [s]; ld.param.f32 %f1, [x+0];
    cvta.to.global.u64 %a2, %a1; mov.u32 %r3, %tid.x; mad.wide.u32 %a3, %r3, 4, %a2; mov.v2.b32 v, {%r1, %r2};
    add.u32 %r4, v.x, v.y; call.uni (%r5), plus, (%r4, %r3);
    { .param .b32 p0; .param .b32 p1; st.param.b32 [p0], %r5; call (p1), twice, (p0); ld.param.b32 %r6, [p1]; }
    mov.u64 %a4, twice;
    { .param .b32 p0; .param .b32 p1; st.param.b32 [p0], %r6;
      proto: .callprototype (.param .b32 _) _ (.param .b32 _); call (p1), %a4, (p0), proto; ld.param.b32 %r7, [p1]; }
    and.b32 %r8, %r3, 1; T: .branchtargets L2, L3; brx.idx %r8, T;
L2: cvt.rn.f16.f32 %h1, %f1; mov.b32 %r9, {%h1, %h1}; add.u32 %r7, %r7, %r9; bra.uni L4;
L3: setp.lt.and.f32 %p1|%p2, %f1, 0f3F800000, %p3; selp.b32 %r7, 1, %r7, %p1;
L4: mov.u64 %a5, kept; cvta.local.u64 %a6, %a5; st.u32 [%a6+4], %r7; ld.local.u32 %r10, [kept+4];
    ld.global.u32 %r11, [table+8]; shfl.sync.bfly.b32 %r12|%p1, %r11, 1, 31, -1; bar.sync 0;
    @!%p1 atom.global.add.u32 %r13, [%a2], %r12; vadd.u32.u32.u32 %r14.b0, %r10.b1, %r12.h0, %r13;
    st.global.u32 [%a3], %r14; ret;
}
"""
)
_TOKEN = re.compile(r"//[^\n]*|\s+|[.%$\w:]+|\S", re.ASCII)
_NUMBERS = (
    "0 1 -1 7 31 32 33 64 255 256 65536 2147483648 4294967295 4294967296 9223372036854775808 18446744073709551616 "
    "0x1p3 0f7F800000 0d0 1.5 -0"
)
_TYPES = (
    ".pred .b8 .b16 .b32 .b64 .b128 .u8 .u16 .u32 .u64 .s8 .s16 .s32 .s64 .f16 .f16x2 .bf16 .bf16x2 .tf32 .f32 .f64 "
    ".e4m3x2"
)
_PLACES = (
    ".global .shared .local .param .const .reg .v2 .v4 .volatile .relaxed .gpu .cta .sat .ftz .rn .rz .wide .lo .hi .cc"
)
_WORDS = _PLACES + " .sync .aligned .uni .func .entry .extern .visible .weak .align .loc .file .pragma .alias .noreturn"
_FROM_THE_START = " { .reg .pred %_; .reg .b32 %__; mov.u32 %__, %nctaid.z; setp.ne.u32 %_, %__, 0; @%_ ret; } "


def corpus(*texts: str) -> list[str]:
    """Give valid texts: one with calls and declarations, ``texts``, and what Triton wrote."""
    written = sorted((Path(__file__).parents[1] / "goldens" / "triton").glob("*.ptx"))
    return [CALLS, *texts, *(path.read_text() for path in written)]


def tokens_of(text: str) -> list[str]:
    """Cut a text into its tokens, without what is between them."""
    return [token for token in _TOKEN.findall(text) if not token.isspace()]


def mutant(text: str, rng: random.Random, words: Sequence[str]) -> str:
    """Change one to three tokens of a text; ``words`` are tokens of other texts."""
    tokens = _TOKEN.findall(text)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = [k for k, token in enumerate(tokens) if not token.isspace()]
        _change(tokens, rng.choice(at), rng, words, at)
    return "".join(tokens)


def _change(tokens: list[str], k: int, rng: random.Random, words: Sequence[str], at: list[int]) -> None:
    kind = rng.randrange(8)
    token = tokens[k]
    if kind == 0:
        del tokens[k]
    elif kind == 1:
        tokens.insert(k, token + " ")
    elif kind == 2:
        other = rng.choice(at)
        tokens[k], tokens[other] = tokens[other], tokens[k]
    elif kind == 3:
        tokens[k] = rng.choice(words)
    elif kind == 4 and any(map(str.isdigit, tokens)):
        tokens[rng.choice([i for i, each in enumerate(tokens) if each.isdigit()])] = rng.choice(_NUMBERS.split())
    elif "." in token[1:]:
        head, *modifiers = token.split(".")
        place = rng.randrange(len(modifiers))
        new = rng.choice((_TYPES if kind < 6 else _WORDS).split())[1:]
        modifiers[place : place + (kind != 7)] = [] if rng.random() < 0.2 else [new]
        tokens[k] = ".".join((head, *modifiers))
    elif token.startswith("."):
        tokens[k] = rng.choice((_TYPES if kind < 6 else _WORDS).split())
    else:
        like = [i for i in at if tokens[i][0] == token[0]]
        tokens[k] = tokens[rng.choice(like)]


def _argument(parameter: Parameter, device: Device) -> object:
    if parameter.kind is ParameterClass.AGGREGATE:
        return bytes(parameter.size)
    if parameter.kind is ParameterClass.POINTER:
        return device.zeros(1, "u1")
    return 0.0 if parameter.kind is ParameterClass.FLOAT else 0


def wrong_answer(text: str, device: Device) -> str:
    """Load a text, and make code of its kernels, whose threads all return at once; tell what went wrong, if it did."""
    text = re.sub(r"(\.entry\b[^{]*\{)", lambda found: found[1] + _FROM_THE_START, text)
    try:
        module = cujit.load(text.encode(), device)
        for kernel in module.values():
            kernel[1, 32](*(_argument(parameter, device) for parameter in kernel.signature))
    except CujitError as error:
        told = str(error)
        return told if "cujit made" in told or "fault of cujit" in told else ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    """Mutate until the time is over."""
    from instructions.scene import every_scene

    deadline = time.monotonic() + float(sys.argv[1])
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns())
    texts = corpus(*(scene.ptx for scene in every_scene().values()))
    words = [token for text in texts for token in tokens_of(text)]
    device = cujit.cpu()
    count, found, last = 0, dict[str, str](), Path(".fuzz") / "last.ptx"
    last.parent.mkdir(exist_ok=True)
    while time.monotonic() < deadline:
        text = mutant(rng.choice(texts), rng, words)
        count += 1
        last.write_text(text)  # what is left there killed the process
        answer = wrong_answer(text, device)
        if answer and answer[:80] not in found:
            found[answer[:80]] = text
            print(f"{'=' * 80}\n{answer}\n{'-' * 80}\n{text}", flush=True)
    print(f"{count} texts, {len(found)} wrong answers")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
