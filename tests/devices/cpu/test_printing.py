"""What kernels print: every format, in order, whole, and not lost in a fault."""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cujit.devices.cpu.native.library import address_of
from cujit.devices.cpu.native.structures import FaultKind
from cujit.devices.cpu.run.faults import take_printed
from cujit.devices.cpu.run.grid import settle
from cujit.devices.cpu.run.launch import Launch
from cujit.devices.cpu.run.site import FaultSite
from cujit.devices.device import Device
from cujit.devices.shapes import Dim3
from cujit.errors import KernelFaultError
from cujit.loading import Module, jit
from raising import raises

_LANES = ctypes.c_uint64 * 32
_RESULTS = ctypes.c_int32 * 32
_VPRINTF = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, *[ctypes.c_void_p] * 3, ctypes.c_uint64, ctypes.c_uint32
)


def packed(kinds: str, *values: object) -> bytes:
    """Lay arguments out as a kernel does: ``i`` (4 bytes), ``q``, ``Q``, ``d`` (8), at multiples of their size."""
    data = b""
    for kind, value in zip(kinds, values, strict=True):
        data += bytes(-len(data) % struct.calcsize(kind))
        data += struct.pack(f"<{kind}", value)
    return data


class Kernel:
    """Prints as machine code does; ``launch`` collects."""

    def __init__(self) -> None:
        self.launch = Launch(grid_x=100, grid_y=1)
        self._keep: list[object] = []

    def address(self, data: bytes) -> int:
        buffer = ctypes.create_string_buffer(data + b"\0", len(data) + 1)
        self._keep.append(buffer)
        return ctypes.addressof(buffer)

    def print(self, format_: bytes | None, arguments: bytes = b"", block: int = 0, lanes: int = 1) -> list[int]:
        formats = _LANES(*[0 if format_ is None else self.address(format_)] * 32)
        data, results = _LANES(*[self.address(arguments)] * 32), _RESULTS()
        where = [ctypes.addressof(x) for x in (formats, data, results)]
        _VPRINTF(address_of("cujit_vprintf"))(ctypes.addressof(self.launch), lanes, *where, block, 64)
        return list(results)

    def text(self) -> str:
        return b"".join(text for *_, text in take_printed(self.launch)).decode()


def printed(format_: str, kinds: str = "", *values: object) -> str:
    kernel = Kernel()
    kernel.print(format_.encode(), packed(kinds, *values))
    return kernel.text()


# -- formats ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format_", "kinds", "values"),
    [
        ("%d|%i", "ii", (-5, 7)),
        ("%u %o %x %X", "iiii", (42, 42, 48879, 48879)),
        ("%5d|%-5d|%05d|%+d|% d|%#x", "iiiiii", (1, 2, 3, 4, 5, 255)),
        ("%c%c", "ii", (72, 105)),
        ("%5c|%-3c|", "ii", (65, 66)),
        ("%f %.2f %10.3f %-10.1f|%+f", "ddddd", (1.5, math.pi, math.e, -2.25, 3.0)),
        ("%e %E %.0e", "ddd", (12345.678, 1e-300, 5.5)),
        ("%g %G %.3g %#g", "dddd", (0.0001, 1e20, 123456.0, 1.0)),
        ("%f %F %e", "ddd", (math.inf, -math.inf, math.inf)),
        ("%*d|%-*d|%.*f|%*.*f", "iiiiidiid", (6, 42, 6, 42, 2, math.pi, 9, 3, math.e)),
        ("100%% of %d", "i", (3,)),
        ("no arguments", "", ()),
        ("", "", ()),
    ],
)
def test_formats_match_those_of_c(format_: str, kinds: str, values: tuple[object, ...]) -> None:
    assert printed(format_, kinds, *values) == format_.replace("%i", "%d") % values


@pytest.mark.parametrize(
    ("format_", "kinds", "values", "text"),
    [
        ("%hhd %hd %d", "iii", (0x1FF, 0x1FFFF, -1), "-1 -1 -1"),
        ("%hhu %hu", "ii", (0x1FF, 0x1FFFF), "255 65535"),
        ("%u", "i", (-1,), "4294967295"),
        ("%ld %lld %lx", "qqq", (-1, -(1 << 63), (1 << 63) - 1), "-1 -9223372036854775808 7fffffffffffffff"),
        ("%zu %jd %td %llu", "qqqq", (7, -7, -1, -1), "7 -7 -1 18446744073709551615"),
        ("%d %lld %d %f", "iqid", (1, 2, 3, 4.0), "1 2 3 4.000000"),
        ("%lf %Lf", "dd", (1.0, 2.0), "1.000000 2.000000"),
        ("%p %p", "qq", (0x7F00_1234, 0), "0x7f001234 (nil)"),
        ("%a %A %.1a", "ddd", (1.0, 1.0, 0.1), "0x1p+0 0X1P+0 0x1.ap-4"),
        ("%a", "d", (math.nan,), "nan"),
        ("%*d|%.*f", "iiid", (-6, 42, -1, 0.5), "42    |0.500000"),
        ("[%.0d]", "i", (0,), "[]"),
        ("%#o %.5d %+.2d", "iii", (8, 42, 7), "010 00042 +07"),
        ("[%.d]", "i", (0,), "[]"),
    ],
)
def test_sizes_decide_how_wide_an_argument_is(format_: str, kinds: str, values: tuple[object, ...], text: str) -> None:
    assert printed(format_, kinds, *values) == text


def test_strings_are_copied_when_they_are_printed() -> None:
    kernel = Kernel()
    text = ctypes.create_string_buffer(b"before")
    arguments = packed("iQiQ", 1, ctypes.addressof(text), 2, 0)
    kernel.print(b"%d %s %d %s;", arguments)
    text.value = b"after"
    kernel.print("%d %8.3s| %d %-8s;ü".encode(), arguments)
    assert kernel.text() == "1 before 2 (null);1      aft| 2 (null)  ;ü"


def test_string_with_a_precision_needs_no_terminator() -> None:
    kernel = Kernel()
    text = np.frombuffer(b"abcdefgh", np.uint8).copy()
    kernel.print(b"%.3s|%.*s|%.0s|", packed("QiQQ", text.ctypes.data, 5, text.ctypes.data, text.ctypes.data))
    assert kernel.text() == "abc|abcde||"


@pytest.mark.parametrize("format_", ["%", "%d %", "%-", "%5", "%d %y %d", "%d % d", "%d %.2-f %d", "%ll"])
def test_unknown_formats_are_printed_verbatim(format_: str) -> None:
    text = printed(format_, "iid", 1, 2, 3.0)
    assert text.startswith(format_.replace("%d", "1", 1)[:2].rstrip("%") or format_[:1])
    assert "%" in text or format_ == "%d % d"


def test_wide_field_is_narrowed() -> None:
    assert len(printed("%*d|", "ii", (1 << 31) - 1, 5)) == (1 << 20) + 1
    assert len(printed("%999999999d|", "i", 5)) == (1 << 20) + 1
    assert len(printed("%300d|", "i", 5)) == 301


# What C and Python print alike: Python fills no strings with zeros, and knows neither unsigned numbers nor ``%+x``.
_FLAGS = {"d": "-+ 0", "lld": "-+ 0", "f": "-+ 0", "e": "-+ 0", "g": "-+ 0", "x": "-0", "u": "-0", "s": "-", "c": "-"}


@st.composite
def specifications(draw: st.DrawFn) -> tuple[str, int]:
    """A specification and a number to print by it."""
    kind = draw(st.sampled_from(sorted(_FLAGS)))
    flags = draw(st.text(_FLAGS[kind], max_size=2))
    width = draw(st.sampled_from(["", "7", "12"]))
    precision = draw(st.sampled_from(["", ".0", ".3"])) if kind in "fegs" else ""
    return f"%{flags}{width}{precision}{kind}", draw(st.integers(0, 2**31 - 1))


@given(st.lists(specifications(), max_size=8), st.text("ab %\n", max_size=5))
def test_any_format_string_prints_as_in_python(rows: list[tuple[str, int]], between: str) -> None:
    kernel = Kernel()
    arguments: list[tuple[str, object]] = []
    expected = []
    for text, number in rows:
        shown = text.replace("ll", "")
        if text[-1] == "s":
            arguments.append(("Q", kernel.address(b"<%d>" % number)))
            expected.append(shown % f"<{number}>")
        elif text[-1] in "feg":
            arguments.append(("d", number / 8))
            expected.append(shown % (number / 8))
        else:
            value = number % 26 + 65 if text[-1] == "c" else number
            arguments.append(("q" if "ll" in text else "i", value))
            expected.append(shown % value)
    kinds, values = "".join(kind for kind, _ in arguments), [value for _, value in arguments]
    glue = between.replace("%", "%%")
    kernel.print(glue.join(text for text, _ in rows).encode(), packed(kinds, *values))
    assert kernel.text() == between.join(expected)


@given(st.binary(max_size=40).filter(lambda b: b"s" not in b))
def test_no_format_crashes(format_: bytes) -> None:
    kernel = Kernel()
    kernel.print(format_, bytes(400))
    assert len(take_printed(kernel.launch)) == 1


# -- results and order ------------------------------------------------------------------------------------


def test_result_is_the_number_of_arguments() -> None:
    kernel = Kernel()
    assert kernel.print(b"%d %% %*d %f %s\n", packed("iiidQ", 1, 2, 3, 4.0, 0))[0] == 5
    assert kernel.print(b"none")[0] == 0
    assert kernel.print(None)[0] == -1


def test_active_lanes_print_in_order() -> None:
    kernel = Kernel()
    assert kernel.print(b"%d", packed("i", 5), block=3, lanes=0b1010_0001)[:8] == [1, 0, 0, 0, 0, 1, 0, 1]
    assert take_printed(kernel.launch) == [(3, 64, b"5"), (3, 69, b"5"), (3, 71, b"5")]
    assert kernel.launch.output == 0


def test_blocks_print_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = Kernel()
    for round_ in range(3):
        for block in (2, 0, 1):
            kernel.print(b"%d:%d ", packed("ii", block, round_), block=block)
    settle(kernel.launch)
    assert capsys.readouterr().out == "0:0 0:1 0:2 1:0 1:1 1:2 2:0 2:1 2:2 "


def test_cooperating_blocks_print_in_order_of_arrival(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = Kernel()
    kernel.launch.together = 3
    for round_ in range(2):
        for block in (2, 0, 1):
            kernel.print(b"%d:%d ", packed("ii", block, round_), block=block)
    settle(kernel.launch)
    assert capsys.readouterr().out == "2:0 0:0 1:0 2:1 0:1 1:1 "


def test_fault_keeps_earlier_output(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = Kernel()
    kernel.print(b"last words\n")
    kernel.launch.fault_kind = FaultKind.TRAP
    with pytest.raises(KernelFaultError):
        settle(kernel.launch, FaultSite("k", Dim3(32)))
    assert capsys.readouterr().out == "last words\n"


def test_process_without_standard_output_prints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel()
    kernel.print(b"unheard")
    monkeypatch.setattr(sys, "stdout", None)
    settle(kernel.launch)
    assert kernel.launch.output == 0


# -- kernels of CUDA C++ ----------------------------------------------------------------------------------

Maker = Callable[[str], Module]


@pytest.fixture
def made(cpu: Device) -> Maker:
    def make(body: str) -> Module:
        return jit(f'extern "C" __global__ void k(int *out, const char *s, int n) {{ {body} }}', device=cpu)

    return make


def test_kernel_prints_every_kind(cpu: Device, made: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    module = made(
        'out[threadIdx.x] = printf("%d %u %5.2f %s %c %lld %p %%\\n", '
        "n, threadIdx.x, n / 4.0f, s, 'A' + threadIdx.x, 1ll << 40, (void *)16);"
    )
    out, text = cpu.array(np.zeros(4, np.int32)), cpu.array(np.frombuffer(b"hello\0", np.int8))
    module["k"][1, 4](out, text, -3)
    lines = [f"-3 {t} -0.75 hello {chr(65 + t)} {1 << 40} 0x10 %" for t in range(4)]
    assert capsys.readouterr().out.splitlines() == lines
    assert out.numpy().tolist() == [7] * 4


def test_threads_of_many_blocks_print_whole_lines_in_order(
    cpu: Device, made: Maker, capsys: pytest.CaptureFixture[str]
) -> None:
    module = made(
        'for (int i = 0; i < n; i++) if (threadIdx.x % 3 < 2) printf("%d %d %d\\n", blockIdx.x, threadIdx.x, i);'
    )
    out = cpu.array(np.zeros(1, np.int32))
    module["k"][64, 40](out, None, 3)
    lines = [tuple(map(int, line.split())) for line in capsys.readouterr().out.splitlines()]
    assert sorted(lines) == [(b, t, i) for b in range(64) for t in range(40) if t % 3 < 2 for i in range(3)]
    assert [b for b, _, _ in lines] == sorted(b for b, _, _ in lines)
    for thread in range(40):
        assert [i for b, t, i in lines if (b, t) == (7, thread)] == ([0, 1, 2] if thread % 3 < 2 else [])


def test_output_before_a_trap_is_printed(cpu: Device, made: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    module = made('printf("%d\\n", threadIdx.x); if (threadIdx.x == 3) __trap(); printf("after\\n");')
    with pytest.raises(KernelFaultError):
        module["k"][1, 4](cpu.array(np.zeros(1, np.int32)), None, 0)
    assert capsys.readouterr().out == "0\n1\n2\n3\n"


def test_wild_string_is_a_fault(cpu: Device, made: Maker) -> None:
    module = made('printf("%s", (const char *)(64 + (long long)n));')
    with raises(KernelFaultError, "fault-illegal-address", "0x48"):
        module["k"][1, 1](cpu.array(np.zeros(1, np.int32)), None, 8)
