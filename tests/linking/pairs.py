"""Pairs of PTX modules and what linking them makes; how nvJitLink takes them is asked by ``by_nvjitlink``."""

from __future__ import annotations

__all__ = ["ALIAS", "CALLS", "EXTERN", "HEAD", "PAIRS", "READ", "images", "kernel", "shared"]

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
KERNEL = """.visible .entry {name}(.param .u64 p) {{
    .reg .u64 %rd<4>; .reg .u32 %r<4>;
    ld.param.u64 %rd1, [p];
    {body}
    ret;
}}
"""
READ = "ld.global.u32 %r1, [x]; st.global.u32 [%rd1], %r1;"
CALL = "{ .param .b32 a; .param .b32 r; st.param.b32 [a], 4; call (r), f, (a); ld.param.b32 %r1, [r]; }"
CALLS = CALL + " st.global.u32 [%rd1], %r1;"
EXTERN = ".extern .func (.param .b32 r) f(.param .b32 a);\n"
F = ".func (.param .b32 r) f(.param .b32 a) { .reg .u32 %t; ld.param.b32 %t, [a]; add.u32 %t, %t, 1; "
F += "st.param.b32 [r], %t; ret; }\n"
G = F.replace(" f(", " g(")
PROTOTYPE = ".visible .func (.param .b32 r) f(.param .b32 a);\n"
ALIAS = f"{PROTOTYPE}.visible {G}.alias f, g;\n"


SHADOWS = ".visible .entry k(.param .u64 x) { .reg .u64 %rd; ld.param.u64 %rd, [x]; st.global.u32 [%rd], 1; ret; }"


def kernel(body: str = "", name: str = "k") -> str:
    return KERNEL.format(name=name, body=body)


def shared(declaration: str, name: str) -> str:
    return declaration + kernel("st.shared.u32 [s], 1; ld.shared.u32 %r1, [s]; st.global.u32 [%rd1], %r1;", name)


def variables(a: str, b: str) -> tuple[str, str]:
    return f"{a}\n{kernel(READ)}", f"{b}\n{kernel(name='other')}"


# What each pair of modules makes: the value that kernel k stores (None where the CPU device has no such), or what is
# told.
PAIRS: dict[str, tuple[tuple[str, str], int | str | None]] = {
    "extern, visible": (variables(".extern .global .u32 x;", ".visible .global .u32 x = 3;"), 3),
    "extern, weak": (variables(".extern .global .u32 x;", ".weak .global .u32 x = 3;"), 3),
    "extern, common": (variables(".extern .global .u32 x;", ".common .global .u32 x;"), 0),
    "extern, float": (variables(".extern .global .u32 x;", ".visible .global .f32 x = 0f40000000;"), 0x40000000),
    "extern without size": (variables(".extern .global .u32 x[];", ".visible .global .u32 x[2] = {5};"), 5),
    "extern, aligned more": (variables(".extern .global .align 16 .u32 x;", ".visible .global .u32 x = 3;"), 3),
    "extern, own": (variables(".extern .global .u32 x;", ".global .u32 x = 3;"), "2:ptx:4"),
    "extern, nothing": (variables(".extern .global .u32 x;", ""), "1:ptx:8: x"),
    "extern, larger": (variables(".extern .global .u32 x;", ".visible .global .u64 x;"), "8 bytes"),
    "extern array, smaller": (variables(".extern .global .u32 x[9];", ".visible .global .u32 x[7];"), "36 bytes"),
    "extern, other space": (variables(".extern .global .u32 x;", ".visible .const .u32 x = 3;"), ".const"),
    "extern, function": (variables(".extern .global .u32 x;", ".visible .func x() { ret; }"), "function"),
    "extern, managed": (
        variables(".extern .global .u32 x;", ".visible .global .attribute(.managed) .u32 x;"),
        ".managed",
    ),
    "common twice": (variables(".common .global .u32 x;", ".common .global .u32 x[4];"), 0),
    "common, visible": (variables(".common .global .u32 x;", ".visible .global .u32 x = 3;"), 3),
    "common, smaller": (variables(".common .global .u32 x[4];", ".visible .global .u32 x = 3;"), "16 bytes"),
    "weak twice": (variables(".weak .global .u32 x = 3;", ".weak .global .u32 x = 4;"), 3),
    "weak, visible": (variables(".weak .global .u32 x = 3;", ".visible .global .u32 x = 4;"), 4),
    "weak twice, sizes": (variables(".weak .global .u32 x = 3;", ".weak .global .u32 x[2] = {4};"), "8 bytes"),
    "weak twice, spaces": (variables(".weak .global .u32 x = 3;", ".weak .const .u32 x = 4;"), ".const"),
    "own, visible": (variables(".global .u32 x = 3;", ".visible .global .u32 x = 4;"), 3),
    "own twice": (variables(".global .u32 x = 3;", ".global .u32 x = 4;"), 3),
    "own twice, and a parameter": (
        (".global .u32 x = 3;" + kernel(READ, "other"), ".global .u32 x = 4;" + kernel(READ, "third") + SHADOWS),
        1,
    ),
    "own, a function": (variables(".global .u32 x = 3;", ".visible .func x() { ret; }"), 3),
    "visible twice": (variables(".visible .global .u32 x = 3;", ".visible .global .u32 x = 4;"), "2:ptx:4: x"),
    "function": ((EXTERN + kernel(CALLS), f".visible {F}"), 5),
    "function, weak": ((EXTERN + kernel(CALLS), f".weak {F}"), 5),
    "function, own": ((EXTERN + kernel(CALLS), F), "2:ptx:4"),
    "function, weak twice": ((f".weak {F}{kernel(CALLS)}", f".weak {F}"), 5),
    "function, weak and visible": ((f".weak {F}{kernel(CALLS)}", ".visible " + F.replace(", 1;", ", 2;")), 6),
    "function, own and visible": ((F + kernel(CALLS), ".visible " + F.replace(", 1;", ", 2;")), 5),
    "function, visible twice": ((f".visible {F}{kernel(CALLS)}", f".visible {F}"), "2:ptx:4: f"),
    "function, own twice": ((F + kernel(CALLS), F.replace(", 1;", ", 2;") + kernel(CALLS, "other")), 5),
    "function, nothing": ((EXTERN + kernel(CALLS), kernel(name="other")), "1:ptx:8: f"),
    "function, unsigned": ((EXTERN + kernel(CALLS), f".visible {F}".replace(".param .b32 a", ".param .u32 a")), 5),
    "function, float": ((EXTERN + kernel(CALLS), f".visible {F}".replace(".param .b32 a", ".param .f32 a")), ".f32"),
    "function, wider": ((EXTERN + kernel(CALLS), f".visible {F}".replace(".param .b32 a", ".param .b64 a")), ".b64"),
    "function, bytes": ((EXTERN + kernel(CALLS), f".visible {F}".replace(".b32 a", ".align 4 .b8 a[4]")), ".b8[4]"),
    "function, more parameters": (
        (EXTERN + kernel(CALLS), f".visible {F}".replace("a)", "a, .param .b32 b)")),
        "(.param .b32, .param .b32)",
    ),
    "function, no result": ((EXTERN + kernel(CALLS), ".visible .func f(.param .b32 a) { ret; }"), "->"),
    "function, not extern": ((PROTOTYPE + kernel(CALLS), f".visible {F}"), ".extern"),
    "function, used by nobody": ((EXTERN + kernel(), kernel(name="other")), 0),
    "alias": ((EXTERN + kernel(CALLS), ALIAS + kernel(CALLS, "other")), 5),
    "alias, again": ((f".visible {F}{kernel(CALLS)}", ALIAS + kernel(CALLS, "other")), "2:ptx:6: f"),
    "kernels": ((kernel(), kernel()), "2:ptx:4: k"),
    "kernels, weak": ((kernel().replace(".visible", ".weak"), kernel().replace(".visible", ".weak")), 0),
    "kernels, own": ((kernel().replace(".visible", ""), kernel().replace(".visible", "")), 0),
    "dynamic shared": ((shared(".extern .shared .b8 s[];", "k"), shared(".extern .shared .f64 s[];", "other")), 1),
    "shared, own": ((shared(".shared .b8 s[4];", "k"), shared(".shared .b8 s[64];", "other")), 1),
    "shared, twice": (
        (shared(".visible .shared .u32 s;", "k"), shared(".visible .shared .u32 s;", "other")),
        "2:ptx:4: s",
    ),
    "shared, extern": ((shared(".extern .shared .u32 s;", "k"), shared(".visible .shared .u32 s;", "other")), 1),
    "shared, nothing": ((shared(".extern .shared .u32 s;", "k"), kernel(name="other")), "1:ptx:7: s"),
    "constants": (variables(".visible .global .u32 x = 3; .const .b8 c[40000];", ".const .b8 c[25536];"), 3),
    "constants, too many": (variables(".global .u32 x = 3; .const .b8 c[40000];", ".const .b8 c[25537];"), "65,537"),
    "texture": (variables(".global .u32 x = 3; .extern .global .texref t;", ".visible .global .texref t;"), None),
    "label like a function": ((kernel("bra f; f: st.global.u32 [%rd1], 7;"), f".visible {F}"), 7),
    "register like a function": ((kernel(".reg .u32 f; mov.u32 f, 7; st.global.u32 [%rd1], f;"), f".visible {F}"), 7),
    "parameter like a variable": ((kernel("st.global.u32 [%rd1], 7;"), ".visible .global .u32 p;"), 7),
    "addresses in a circle": (
        (
            ".extern .global .u64 b[2]; .visible .global .u64 x[2] = {9, b};" + kernel(READ),
            ".extern .global .u64 x[2]; .visible .global .u64 b[2] = {x, x+8};",
        ),
        9,
    ),
    "address of a function": (
        (EXTERN + ".visible .global .u64 t = f;" + kernel("st.global.u32 [%rd1], 7;"), f".visible {F}"),
        7,
    ),
    "older version and target": (
        (".version 6.0\n.target sm_50\n.address_size 64\n" + kernel(), HEAD + kernel(name="other")),
        0,
    ),
}  # fmt: skip


def images(pair: tuple[str, str]) -> list[str]:
    return [text if ".version" in text else HEAD + text for text in pair]
