"""Each standard header, and some of the toolkit, compile with no other before; `make test` compiles them together."""

from __future__ import annotations

import os

import pytest

from cujit.toolchain.std_headers import STD_HEADERS
from cujit.toolchain.toolset import Toolchain
from toolchain.including import available, compiles
from toolchain.test_headers import TOOLKIT_HEADERS

pytestmark = [
    pytest.mark.toolkits,
    pytest.mark.skipif(not os.environ.get("CUJIT_TOOLKITS"), reason="CUJIT_TOOLKITS names no toolkits"),
]


@pytest.mark.parametrize("std", ["c++17", "c++20"])
@pytest.mark.parametrize("header", STD_HEADERS)
def test_each_standard_header_compiles_alone(toolchain: Toolchain, header: str, std: str) -> None:
    if not available(toolchain, header):
        pytest.skip("this CCCL does not have it")
    # The front end is all that is asked; an image of nothing would only cost time.
    compiles(toolchain, f"#include <{header}>\n", f"-std={std}", "--fdevice-syntax-only")


@pytest.mark.parametrize("header", TOOLKIT_HEADERS)
def test_each_toolkit_header_compiles_alone(toolchain: Toolchain, header: str) -> None:
    compiles(toolchain, f"#include <{header}>\n__global__ void k() {{}}")
