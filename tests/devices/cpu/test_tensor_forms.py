"""Tensor copies in the forms that no GPU has recorded: with more words, and into images, they copy the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cujit.devices.device import Device
from devices.tensor_table import CASES, GOLDENS, Case, run

Array = npt.NDArray[Any]
pytestmark = pytest.mark.usefixtures("unoptimised")

_CASES = {case.name: case for case in CASES}
_SLOT = 2048
"""Bytes of shared memory for each of several copies."""
_WORDS = (
    ("shared::cta", "cta_group::1.L2::cache_hint", "cta_group::2"),
    ("shared::cluster", "cta_group::2.L2::cache_hint", "cta_group::1"),
    ("multicast::cluster", "cta_group::1.L2::cache_hint", "cta_group::2"),
)


def _golden(name: str) -> Array:
    with np.load(GOLDENS) as file:
        return np.asarray(file[name])


def _newer(text: str) -> str:
    """Make it PTX of an architecture that has all words, with a policy for caches."""
    text = text.replace(".version 8.6\n.target sm_90a", ".version 8.8\n.target sm_100a")
    policy = ".reg .b64 policy; createpolicy.fractional.L2::evict_normal.b64 policy, 1.0;"
    return text.replace("mov.b64 m, map;", f"{policy} mov.b64 m, map;")


def _hinted(text: str) -> str:
    """Put ``.L2::cache_hint`` into every tensor copy."""
    return re.sub(r"(cp[.\w]*tensor[^\s]*)(.*?);", r"\1.L2::cache_hint\2, policy;", _newer(text))


def _in_three_ways(second: int) -> Callable[[str], str]:
    """Load a box once into each slot: into shared memory of the block, of the cluster, of several blocks."""

    def change(text: str) -> str:
        found = re.search(r"(cp\.async\.bulk\.tensor\.\dd)\.shared::cluster(\S*) \[s\], (.*?), \[bar\](.*?);", text)
        assert found
        name, rest, source, shifts = found.groups()
        copies = []
        for k, (to, *words) in enumerate(_WORDS):
            more = words[(k + second) % 2]
            several, mask = (f".{to}", ", 1") if to.startswith("multicast") else ("", "")
            space = to if not several else "shared::cluster"
            hint = ", policy" if "hint" in more else ""
            copies.append(f"{name}.{space}{rest}{several}.{more} [s], {source}, [bar]{shifts}{mask}{hint};")
            copies.append(f"add.u32 s, s, {_SLOT};")
        text = text.replace(found[0], "\n".join(copies))
        return _newer(
            text.replace("ld.param.u32 r, [bytes];", f"ld.param.u32 r, [bytes]; mul.lo.u32 r, r, {len(_WORDS)};")
        )

    return change


_LOADS = (*(f"{rank}d over" for rank in range(1, 6)), *(f"im2col {rank}d" for rank in range(3, 6)))


@pytest.mark.parametrize(("name", "second"), [*((name, 0) for name in _LOADS), ("3d over", 1), ("im2col 4d", 1)])
def test_load_is_equal_into_every_kind_of_shared_memory(name: str, second: int, cpu: Device) -> None:
    got, expected = run(cpu, _CASES[name], _in_three_ways(second)), _golden(name)
    for k in range(len(_WORDS)):
        np.testing.assert_array_equal(got[k * _SLOT :][:_SLOT], expected[:_SLOT], _WORDS[k][0])


@pytest.mark.parametrize(
    "name", ["2d store over", "add uint32", "2d prefetch over", "im2col 4d prefetch", "im2col store"]
)
def test_hint_keeps_a_copy_unchanged(name: str, cpu: Device) -> None:
    np.testing.assert_array_equal(run(cpu, _CASES[name], _hinted), _golden(name))


def _inc(old: Array, limit: Array) -> Array:
    return np.where(old >= limit, 0, old + 1)


def _dec(old: Array, limit: Array) -> Array:
    return np.where((old == 0) | (old > limit), limit, old - 1)


_REDUCTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "inc": _inc, "dec": _dec, "or": np.bitwise_or,
    "and": np.bitwise_and, "xor": np.bitwise_xor,
}  # fmt: skip


def _all_reductions(text: str) -> str:
    """Store a box into an image, then reduce the boxes behind it in shared memory into the same place."""
    found = re.search(r"cp\.async\.bulk\.tensor(\S*) (\[m.*?\]), \[s\];", text)
    assert found
    words, place = found.groups()
    copies = [found[0]]
    for operation in _REDUCTIONS:
        name = f"cp.reduce.async.bulk.tensor{words.replace('.im2col', f'.{operation}.im2col')}.L2::cache_hint"
        copies.append("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; add.u32 s, s, 512;")
        copies.append(f"{name} {place}, [s], policy;")
    return _newer(text.replace(found[0], "\n".join(copies)))


_IMAGES = {
    "3d": ((3, 11, 16), ((0,), (-1,)), (0, 3, 4)),
    "5d": ((2, 4, 5, 6, 16), ((0, 1, 0), (-1, 0, 0)), (0, 1, 2, 1, 0)),
}


@pytest.mark.parametrize("name", _IMAGES)
def test_every_reduction_works_on_the_pixels_of_an_image(name: str, cpu: Device) -> None:
    """Which pixels those are, a load from an image of numbers tells."""
    shape, corners, start = _IMAGES[name]
    more: dict[str, Any] = {
        "box": (*[1] * (len(shape) - 1), 8), "offsets": (0,) * (len(shape) - 2), "corners": corners, "pixels": 16,
    }  # fmt: skip
    numbers = np.arange(1, 1 + np.prod(shape), dtype=np.uint32).reshape(shape)
    taken = run(cpu, Case("numbers", shape, start, data=numbers, **more))[:512].view(np.uint32)
    assert len(set(taken.tolist())) == 128
    case = Case("every reduction", shape, start, operation="store", data=numbers % 7, **more)
    expected, boxes = case.array().reshape(-1).copy(), case.shared().reshape(-1, 128)
    expected[taken - 1] = boxes[0]
    for k, operation in enumerate(_REDUCTIONS.values()):
        expected[taken - 1] = operation(expected[taken - 1], boxes[k + 1])
    np.testing.assert_array_equal(run(cpu, case, _all_reductions).view(np.uint32), expected)
