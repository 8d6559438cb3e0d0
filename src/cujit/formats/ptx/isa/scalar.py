"""The instructions of one thread's arithmetic: integer, floating point, comparison, logic, video.

Source: PTX ISA manual 9.1, sections 9.7.1 to 9.7.8, 9.7.18 and 9.7.19. ``table.py`` says
how far they were checked.
"""

from __future__ import annotations

from cujit.formats.ptx.isa.sets import Forms

_INTEGER = (
    Forms("9.7.1.1", "1.0", 10, "add .INT", "add {.sat} .s32"),
    Forms("9.7.1.1", "8.0", 90, "add .u16x2|s16x2"),
    Forms("9.7.1.1", "9.2", "120f 107f", "add {.sat} .u8x4|s8x4", "add .sat .u16x2|s16x2|u32"),
    Forms("9.7.1.2", "1.0", 10, "sub .INT", "sub {.sat} .s32"),
    Forms("9.7.1.2", "9.2", "120f 107f", "sub {.sat} .u8x4|s8x4"),
    Forms("9.7.1.3", "1.0", 10, "mul .hi|lo .INT", "mul .wide .u16|u32|s16|s32"),
    Forms("9.7.1.4", "1.0", 10, "mad .hi|lo .INT", "mad .wide .u16|u32|s16|s32", "mad .hi .sat .s32"),
    Forms("9.7.1", "9.3", 80, "clmad .lo|hi .u64|s64"),
    Forms("9.7.1.5", "1.0", 10, "mul24 .hi|lo .INT32"),
    Forms("9.7.1.6", "1.0", 10, "mad24 .hi|lo .INT32", "mad24 .hi .sat .s32"),
    Forms("9.7.1.7", "1.0", 10, "sad .INT"),
    Forms("9.7.1.8", "1.0", 10, "div .INT"),
    Forms("9.7.1.9", "1.0", 10, "rem .INT"),
    Forms("9.7.1.10", "1.0", 10, "abs .s16|s32|s64"),
    Forms("9.7.1.11", "1.0", 10, "neg .s16|s32|s64"),
    Forms("9.7.1.11", "9.2", "120f 107f", "neg .s8x4"),
    Forms("9.7.1.12", "1.0", 10, "min .INT"),
    Forms("9.7.1.12", "8.0", 90, "min .u16x2|s16x2", "min .relu .s16x2|s32"),
    Forms("9.7.1.12", "9.2", "120f 107f", "min .u8x4|s8x4", "min .relu .s8x4"),
    Forms("9.7.1.13", "1.0", 10, "max .INT"),
    Forms("9.7.1.13", "8.0", 90, "max .u16x2|s16x2", "max .relu .s16x2|s32"),
    Forms("9.7.1.13", "9.2", "120f 107f", "max .u8x4|s8x4", "max .relu .s8x4"),
    Forms("9.7.1.14", "2.0", 20, "popc .b32|b64"),
    Forms("9.7.1.15", "2.0", 20, "clz .b32|b64"),
    Forms("9.7.1.16", "2.0", 20, "bfind {.shiftamt} .u32|u64|s32|s64"),
    Forms("9.7.1.17", "5.1", 30, "fns .b32"),
    Forms("9.7.1.18", "2.0", 20, "brev .b32|b64"),
    Forms("9.7.1.19", "2.0", 20, "bfe .u32|u64|s32|s64"),
    Forms("9.7.1.20", "2.0", 20, "bfi .b32|b64"),
    Forms("9.7.1.21", "7.6", 70, "szext .clamp|wrap .INT32"),
    Forms("9.7.1.22", "7.6", 70, "bmsk .clamp|wrap .b32"),
    Forms("9.7.1.23", "5.0", 61, "dp4a .INT32 .INT32"),
    Forms("9.7.1.24", "5.0", 61, "dp2a .lo|hi .INT32 .INT32"),
)
_CARRY = (
    Forms("9.7.2.1", "1.2", 10, "add .cc .INT32"),
    Forms("9.7.2.1", "4.3", 20, "add .cc .INT64"),
    Forms("9.7.2.2", "1.2", 10, "addc {.cc} .INT32"),
    Forms("9.7.2.2", "3.1", 20, "addc .INT64"),
    Forms("9.7.2.2", "4.3", 20, "addc .cc .INT64"),
    Forms("9.7.2.3", "1.2", 10, "sub .cc .INT32"),
    Forms("9.7.2.3", "4.3", 20, "sub .cc .INT64"),
    Forms("9.7.2.4", "1.2", 10, "subc {.cc} .INT32"),
    Forms("9.7.2.4", "3.1", 20, "subc .INT64"),
    Forms("9.7.2.4", "4.3", 20, "subc .cc .INT64"),
    Forms("9.7.2.5", "3.0", 20, "mad .hi|lo .cc .INT32"),
    Forms("9.7.2.5", "4.3", 20, "mad .hi|lo .cc .INT64"),
    Forms("9.7.2.6", "3.0", 20, "madc .hi|lo {.cc} .INT32"),
    Forms("9.7.2.6", "3.1", 20, "madc .hi|lo .INT64"),
    Forms("9.7.2.6", "4.3", 20, "madc .hi|lo .cc .INT64"),
)
_FLOAT = (
    Forms("9.7.3.1", "2.0", 20, "testp .finite|infinite|number|notanumber|normal|subnormal .f32|f64"),
    Forms("9.7.3.2", "2.0", 20, "copysign .f32|f64"),
    Forms("9.7.3.3", "1.0", 10, "add {.RND} {.ftz} {.sat} .f32"),
    Forms("9.7.3.3", "1.0", 13, "add {.RND} .f64"),
    Forms("9.7.3.3", "8.6", 100, "add {.RND} {.ftz} .f32x2"),
    Forms("9.7.3.4", "1.0", 10, "sub {.RND} {.ftz} {.sat} .f32"),
    Forms("9.7.3.4", "1.0", 13, "sub {.RND} .f64"),
    Forms("9.7.3.4", "8.6", 100, "sub {.RND} {.ftz} .f32x2"),
    Forms("9.7.3.5", "1.0", 10, "mul {.RND} {.ftz} {.sat} .f32"),
    Forms("9.7.3.5", "1.0", 13, "mul {.RND} .f64"),
    Forms("9.7.3.5", "8.6", 100, "mul {.RND} {.ftz} .f32x2"),
    Forms("9.7.3.6", "1.4", 13, "fma .RND .f64"),
    Forms("9.7.3.6", "2.0", 20, "fma .RND {.ftz} {.sat} .f32"),
    Forms("9.7.3.6", "8.6", 100, "fma .RND {.ftz} .f32x2"),
    Forms("9.7.3.7", "1.0", 10, "mad {.ftz} {.sat} .f32"),
    Forms("9.7.3.7", "2.0", 20, "mad .RND {.ftz} {.sat} .f32"),
    Forms("9.7.3.7", "1.0", 13, "mad .f64"),
    Forms("9.7.3.7", "1.4", 13, "mad .RND .f64"),
    Forms("9.7.3.8", "1.0", 10, "div .f32"),
    Forms("9.7.3.8", "1.0", 13, "div .f64"),
    Forms("9.7.3.8", "1.4", 10, "div .approx|full {.ftz} .f32"),
    Forms("9.7.3.8", "1.4", 13, "div .RND .f64"),
    Forms("9.7.3.8", "2.0", 20, "div .RND {.ftz} .f32"),
    Forms("9.7.3.9", "1.0", 10, "abs {.ftz} .f32"),
    Forms("9.7.3.9", "1.0", 13, "abs .f64"),
    Forms("9.7.3.10", "1.0", 10, "neg {.ftz} .f32"),
    Forms("9.7.3.10", "1.0", 13, "neg .f64"),
    Forms("9.7.3.11", "1.0", 10, "min {.ftz} .f32"),
    Forms("9.7.3.11", "7.0", 80, "min {.ftz} .NaN .f32"),
    Forms("9.7.3.11", "7.2", 86, "min {.ftz} {.NaN} .xorsign .abs .f32"),
    Forms("9.7.3.11", "8.8", 100, "min {.ftz} {.NaN} .abs .f32"),
    Forms("9.7.3.11", "1.0", 13, "min .f64"),
    Forms("9.7.3.12", "1.0", 10, "max {.ftz} .f32"),
    Forms("9.7.3.12", "7.0", 80, "max {.ftz} .NaN .f32"),
    Forms("9.7.3.12", "7.2", 86, "max {.ftz} {.NaN} .xorsign .abs .f32"),
    Forms("9.7.3.12", "8.8", 100, "max {.ftz} {.NaN} .abs .f32"),
    Forms("9.7.3.12", "1.0", 13, "max .f64"),
    Forms("9.7.3.13", "1.0", 10, "rcp .f32", "rcp .approx {.ftz} .f32"),
    Forms("9.7.3.13", "1.0", 13, "rcp .f64"),
    Forms("9.7.3.13", "1.4", 13, "rcp .RND .f64"),
    Forms("9.7.3.13", "2.0", 20, "rcp .RND {.ftz} .f32"),
    Forms("9.7.3.14", "2.1", 20, "rcp .approx .ftz .f64"),
    Forms("9.7.3.15", "1.0", 10, "sqrt .f32", "sqrt .approx {.ftz} .f32"),
    Forms("9.7.3.15", "1.0", 13, "sqrt .f64"),
    Forms("9.7.3.15", "1.4", 13, "sqrt .RND .f64"),
    Forms("9.7.3.15", "2.0", 20, "sqrt .RND {.ftz} .f32"),
    Forms("9.7.3.16", "1.0", 10, "rsqrt .f32", "rsqrt .approx {.ftz} .f32"),
    Forms("9.7.3.16", "1.0", 13, "rsqrt .f64"),
    Forms("9.7.3.16", "1.4", 13, "rsqrt .approx .f64"),
    Forms("9.7.3.17", "4.0", 20, "rsqrt .approx .ftz .f64"),
    Forms("9.7.3.18", "1.0", 10, "sin .f32", "sin .approx {.ftz} .f32"),
    Forms("9.7.3.19", "1.0", 10, "cos .f32", "cos .approx {.ftz} .f32"),
    Forms("9.7.3.19", "9.5", 10, "sin .approx .ftz .2pi .f32", "cos .approx .ftz .2pi .f32"),
    Forms("9.7.3.20", "1.0", 10, "lg2 .f32", "lg2 .approx {.ftz} .f32"),
    Forms("9.7.3.21", "1.0", 10, "ex2 .f32", "ex2 .approx {.ftz} .f32"),
    Forms("9.7.3.22", "7.0", 75, "tanh .approx .f32"),
)
_HALF = (
    Forms("9.7.4.1", "4.2", 53, "add {.rn} {.ftz} {.sat} .f16|f16x2"),
    Forms("9.7.4.1", "7.8", 90, "add {.rn} .bf16|bf16x2"),
    Forms("9.7.4.2", "4.2", 53, "sub {.rn} {.ftz} {.sat} .f16|f16x2"),
    Forms("9.7.4.2", "7.8", 90, "sub {.rn} .bf16|bf16x2"),
    Forms("9.7.4.3", "4.2", 53, "mul {.rn} {.ftz} {.sat} .f16|f16x2"),
    Forms("9.7.4.3", "7.8", 90, "mul {.rn} .bf16|bf16x2"),
    Forms("9.7.4.4", "4.2", 53, "fma .rn {.ftz} {.sat} .f16|f16x2"),
    Forms("9.7.4.4", "7.0", 80, "fma .rn {.ftz} .relu .f16|f16x2", "fma .rn {.relu} .bf16|bf16x2"),
    Forms(
        "9.7.4.4", "4.2", "53= 60= 61= 62= 70= 72= 75= 80= 86= 87= 89= 90=@7.8 90a@8.0 100", "fma .rn .oob .f16|f16x2"
    ),
    Forms(
        "9.7.4.4",
        "7.0",
        "80= 86= 87= 89= 90=@7.8 90a@8.0 100",
        "fma .rn .oob .relu .f16|f16x2",
        "fma .rn .oob {.relu} .bf16|bf16x2",
    ),
    Forms("9.7.4.5", "5.1", 53, "neg {.ftz} .f16|f16x2"),
    Forms("9.7.4.5", "7.0", 80, "neg .bf16|bf16x2"),
    Forms("9.7.4.6", "6.5", 53, "abs {.ftz} .f16|f16x2"),
    Forms("9.7.4.6", "7.0", 80, "abs .bf16|bf16x2"),
    Forms("9.7.4.7", "7.0", 80, "min {.ftz} {.NaN} .f16|f16x2"),
    Forms("9.7.4.7", "7.2", 86, "min {.ftz} {.NaN} .xorsign .abs .f16|f16x2"),
    Forms("9.7.4.7", "7.0", 80, "min {.NaN} .bf16|bf16x2"),
    Forms("9.7.4.7", "7.2", 86, "min {.NaN} .xorsign .abs .bf16|bf16x2"),
    Forms("9.7.4.8", "7.0", 80, "max {.ftz} {.NaN} .f16|f16x2"),
    Forms("9.7.4.8", "7.2", 86, "max {.ftz} {.NaN} .xorsign .abs .f16|f16x2"),
    Forms("9.7.4.8", "7.0", 80, "max {.NaN} .bf16|bf16x2"),
    Forms("9.7.4.8", "7.2", 86, "max {.NaN} .xorsign .abs .bf16|bf16x2"),
    Forms("9.7.4.9", "7.0", 75, "tanh .approx .f16|f16x2"),
    Forms("9.7.4.9", "7.8", 90, "tanh .approx .bf16|bf16x2"),
    Forms("9.7.4.10", "7.0", 75, "ex2 .approx .f16|f16x2"),
    Forms("9.7.4.10", "7.8", 90, "ex2 .approx .ftz .bf16|bf16x2"),
    Forms("9.7.5.1", "8.6", 100, "add {.RND} {.sat} .f32 .f16|bf16"),
    Forms("9.7.5.2", "8.6", 100, "sub {.RND} {.sat} .f32 .f16|bf16"),
    Forms("9.7.5.3", "8.6", 100, "fma .RND {.sat} .f32 .f16|bf16"),
    Forms(
        "9.7.5",
        "9.4",
        "107f",
        *(f"{name} {{.RND}} .f32x2 .f16x2|bf16x2 .f32x2" for name in ("add", "sub")),
        "fma .RND .f32x2 .f16x2|bf16x2 .f32x2 .f32x2",
        *(f"{name} {{.rz}} {narrow} .f32x2 .f32x2" for name in ("add", "sub") for narrow in (".ftz .f16x2", ".bf16x2")),
        *(f"mul .rz {narrow} .f32x2 .f32x2" for narrow in (".ftz .f16x2", ".bf16x2")),
        "mul .bf16x2 .bf16x2 .f16x2",
        "mul .f16x2 .f16x2 .bf16x2",
    ),
)
_SET = "u32|s32|f32"


def _compared(form: str) -> tuple[str, ...]:
    """Return the comparison forms for bits and for integers. ``form`` has the placeholders ``CMP`` and ``TYPE``."""
    kinds = (("eq|ne", "BITS"), ("SIGNEDCMP", "SIGNED"), ("UNSIGNEDCMP", "UNSIGNED"))
    return tuple(form.replace("CMP", compare, 1).replace("TYPE", type_) for compare, type_ in kinds)


_COMPARISON = (
    Forms("9.7.6.1", "1.0", 10, *_compared(f"set .CMP {{.BOOL}} .{_SET} .TYPE")),
    Forms("9.7.6.1", "1.0", 10, f"set .FLOATCMP {{.BOOL}} {{.ftz}} .{_SET} .f32"),
    Forms("9.7.6.1", "1.0", 10, f"set .FLOATCMP {{.BOOL}} .{_SET} .f64"),
    Forms("9.7.6.2", "1.0", 10, *_compared("setp .CMP {.BOOL} .TYPE")),
    Forms("9.7.6.2", "1.0", 10, "setp .FLOATCMP {.BOOL} {.ftz} .f32", "setp .FLOATCMP {.BOOL} .f64"),
    Forms("9.7.6.3", "1.0", 10, "selp .PLAIN"),
    Forms("9.7.6.4", "1.0", 10, "slct .PLAIN .s32", "slct {.ftz} .PLAIN .f32"),
    Forms("9.7.7.1", "4.2", 53, *_compared("set .CMP {.BOOL} .f16 .TYPE")),
    Forms("9.7.7.1", "4.2", 53, "set .FLOATCMP {.BOOL} {.ftz} .f16 .f16|f32", "set .FLOATCMP {.BOOL} .f16 .f64"),
    Forms("9.7.7.1", "4.2", 53, "set .FLOATCMP {.BOOL} {.ftz} .f16x2 .f16x2"),
    Forms("9.7.7.1", "6.5", 53, "set .FLOATCMP {.BOOL} {.ftz} .u16|s16|u32|s32 .f16"),
    Forms("9.7.7.1", "6.5", 53, "set .FLOATCMP {.BOOL} {.ftz} .u32|s32 .f16x2"),
    Forms("9.7.7.1", "7.8", 90, *_compared("set .CMP {.BOOL} .bf16 .TYPE")),
    Forms(
        "9.7.7.1", "7.8", 90, "set .FLOATCMP {.BOOL} .bf16 .bf16|f16|f32|f64", "set .FLOATCMP {.BOOL} .bf16x2 .bf16x2"
    ),
    Forms("9.7.7.1", "7.8", 90, "set .FLOATCMP {.BOOL} .u16|s16|u32|s32 .bf16"),
    Forms("9.7.7.1", "7.8", 90, "set .FLOATCMP {.BOOL} .u32|s32 .bf16x2"),
    Forms("9.7.7.1", "9.4", "107f", "set .SIGNEDCMP .s8x4|s16x2", "set .UNSIGNEDCMP .u8x4|u16x2"),
    Forms("9.7.7.2", "4.2", 53, "setp .FLOATCMP {.BOOL} {.ftz} .f16|f16x2"),
    Forms("9.7.7.2", "7.8", 90, "setp .FLOATCMP {.BOOL} .bf16|bf16x2"),
)
_LOGIC = (
    Forms("9.7.8.1", "1.0", 10, "and .BITSP"),
    Forms("9.7.8.2", "1.0", 10, "or .BITSP"),
    Forms("9.7.8.3", "1.0", 10, "xor .BITSP"),
    Forms("9.7.8.4", "1.0", 10, "not .BITSP"),
    Forms("9.7.8.5", "1.0", 10, "cnot .BITS"),
    Forms("9.7.8.6", "4.3", 50, "lop3 .b32"),
    Forms("9.7.8.6", "8.2", 70, "lop3 .or|and .b32"),
    Forms("9.7.8.7", "3.1", 32, "shf .l|r .clamp|wrap .b32"),
    Forms("9.7.8.8", "1.0", 10, "shl .BITS"),
    Forms("9.7.8.9", "1.0", 10, "shr .BITS|INT"),
)
_SECOND = "add|min|max"
_VIDEO = (
    *(
        Forms("9.7.18.1", "2.0", 20, f"{name} .VIDEO .VIDEO .VIDEO {{.sat}} {{.{_SECOND}}}")
        for name in ("vadd", "vsub", "vabsdiff", "vmin", "vmax")
    ),
    *(
        Forms("9.7.18.2", "2.0", 20, f"{name} .VIDEO .VIDEO .u32 {{.sat}} .clamp|wrap {{.{_SECOND}}}")
        for name in ("vshl", "vshr")
    ),
    Forms("9.7.18.3", "2.0", 20, "vmad .VIDEO .VIDEO .VIDEO {.sat} {.shr7|shr15} {.po}"),
    Forms("9.7.18.4", "2.0", 20, f"vset .VIDEO .VIDEO .SIGNEDCMP {{.{_SECOND}}}"),
    *(
        Forms("9.7.19.1", "3.0", 30, f"{name}2 .VIDEO .VIDEO .VIDEO {{.sat|add}}")
        for name in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax")
    ),
    Forms("9.7.19.2", "3.0", 30, "vset2 .VIDEO .VIDEO .SIGNEDCMP {.add}"),
    *(
        Forms("9.7.19.3", "3.0", 30, f"{name}4 .VIDEO .VIDEO .VIDEO {{.sat|add}}")
        for name in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax")
    ),
    Forms("9.7.19.4", "3.0", 30, "vset4 .VIDEO .VIDEO .SIGNEDCMP {.add}"),
)

SCALAR: tuple[Forms, ...] = (
    *_INTEGER,
    *_CARRY,
    *_FLOAT,
    *_HALF,
    *_COMPARISON,
    *_LOGIC,
    *_VIDEO,
)
"""Every form of the sections above."""
