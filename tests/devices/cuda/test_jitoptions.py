from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cujit.devices.cuda.driver_options import JitLogs, driver_options
from cujit.devices.jit_options import JitOptions
from cujit.errors import OptionError
from cujit.loading import load
from cujit.toolchain.driver import Driver
from raising import raises


def test_options_are_read_from_a_mapping() -> None:
    given = {"max_registers": 32, "opt_level": 3, "line_info": True, "cache_mode": "cg", "assembler": "driver"}
    assert JitOptions.of(given) == JitOptions(32, 3, True, False, "cg", "driver")
    assert JitOptions.of(None) == JitOptions() == JitOptions.of(JitOptions())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_registers": 0}, "from 1 to 255, not 0"),
        ({"max_registers": True}, "not True"),
        ({"max_registers": "32"}, "not '32'"),
        ({"opt_level": 5}, "from 0 to 4, not 5"),
        ({"line_info": 1}, "line_info must be True or False"),
        ({"cache_mode": "l2"}, "expected none, ca, cg"),
        ({"max_threads": 2048}, "from 1 to 1024, not 2048"),
        ({"min_blocks": 2}, "max_threads is not set"),
        ({"override_directives": 1}, "override_directives must be True or False"),
        ({"split_compile": -1}, "from 0 to 1024, not -1"),
        ({"assembler": "ptxas"}, "expected auto, driver, nvjitlink"),
        ({"max_register": 3}, "did you mean 'max_registers'?"),
        ({"": 3}, "there are max_registers"),
        (3, "a mapping, not int"),
    ],
)
def test_wrong_option_is_refused_with_valid_values(given: Any, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        JitOptions.of(given)
    assert message in str(caught.value)


def test_nvjitlink_gets_the_options_in_its_spelling() -> None:
    said = JitOptions(max_registers=40, opt_level=4, line_info=True, debug=True, cache_mode="ca")
    assert said.nvjitlink_arguments == ("-maxrregcount=40", "-O3", "-lineinfo", "-g", "-Xptxas=-dlcm=ca")
    assert JitOptions(opt_level=0).nvjitlink_arguments == ("-O0",)
    bounds = JitOptions(max_threads=512, min_blocks=2, override_directives=True)
    assert bounds.nvjitlink_arguments == tuple(
        f"-Xptxas=--{word}" for word in ("maxntid=512", "minnctapersm=2", "override-directive-values")
    )
    assert JitOptions(split_compile=0).nvjitlink_arguments == ("-split-compile=0",)
    assert JitOptions().nvjitlink_arguments == ()


def test_driver_gets_the_options_in_its_spelling() -> None:
    bindings = pytest.importorskip("cuda.bindings.driver")
    option, logs = bindings.CUjit_option, JitLogs()
    if not hasattr(option, "CU_JIT_SPLIT_COMPILE"):
        pytest.skip("bindings of 12.9 lack an option")
    said = JitOptions(40, 2, True, True, "cg", "driver", 512, 2, True, 4)
    assert None not in vars(said).values(), "every field is said here"
    told = driver_options(Driver(bindings, (13, 0)), said, logs)
    plain = driver_options(Driver(bindings, (13, 0)), JitOptions(), logs)
    assert {key: value for key, value in told.items() if key not in plain} == {
        option.CU_JIT_MAX_REGISTERS: 40,
        option.CU_JIT_OPTIMIZATION_LEVEL: 2,
        option.CU_JIT_GENERATE_LINE_INFO: 1,
        option.CU_JIT_GENERATE_DEBUG_INFO: 1,
        option.CU_JIT_CACHE_MODE: bindings.CUjit_cacheMode.CU_JIT_CACHE_OPTION_CG,
        option.CU_JIT_MAX_THREADS_PER_BLOCK: 512,
        option.CU_JIT_MIN_CTA_PER_SM: 2,
        option.CU_JIT_OVERRIDE_DIRECTIVE_VALUES: 1,
        option.CU_JIT_SPLIT_COMPILE: 4,
    }


def test_bindings_without_an_option_are_reported_and_work() -> None:
    bindings = pytest.importorskip("cuda.bindings.driver")
    without = {n: m for n, m in bindings.CUjit_option.__members__.items() if n != "CU_JIT_SPLIT_COMPILE"}
    older = SimpleNamespace(CUjit_option=SimpleNamespace(**without), CUjit_cacheMode=bindings.CUjit_cacheMode)
    driver: Any = SimpleNamespace(bindings=older)
    assert driver_options(driver, JitOptions(max_registers=40), JitLogs())
    with raises(OptionError, "option-rejected", "CU_JIT_SPLIT_COMPILE", "cuda-bindings>=13"):
        driver_options(driver, JitOptions(split_compile=4), JitLogs())


def test_load_accepts_options_on_every_device() -> None:
    text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n"
    module = load(text, "cpu", jit={"max_registers": 32})
    assert list(module) == ["k"]
    assert 0 < module.load_s < 60
    with pytest.raises(OptionError):
        load(text, "cpu", jit={"registers": 32})
