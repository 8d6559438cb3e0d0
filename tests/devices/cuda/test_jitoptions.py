from __future__ import annotations

from typing import Any

import pytest

from cujit.devices.jit_options import JitOptions
from cujit.errors import OptionError
from cujit.loading import load


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
        ({"line_info": 1}, "line_info is True or False"),
        ({"cache_mode": "l2"}, "it takes none, ca, cg"),
        ({"assembler": "ptxas"}, "it takes auto, driver, nvjitlink"),
        ({"max_register": 3}, "did you mean 'max_registers'?"),
        ({"": 3}, "there are max_registers"),
        (3, "a mapping, not int"),
    ],
)
def test_a_wrong_option_is_refused_with_what_it_takes(given: Any, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        JitOptions.of(given)
    assert message in str(caught.value)


def test_nvjitlink_is_told_the_same_in_its_own_words() -> None:
    said = JitOptions(max_registers=40, opt_level=4, line_info=True, debug=True, cache_mode="ca")
    assert said.nvjitlink_arguments == ("-maxrregcount=40", "-O3", "-lineinfo", "-g", "-Xptxas=-dlcm=ca")
    assert JitOptions(opt_level=0).nvjitlink_arguments == ("-O0",)
    assert JitOptions().nvjitlink_arguments == ()


def test_load_takes_them_on_every_device_and_refuses_wrong_ones() -> None:
    text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n"
    module = load(text, "cpu", jit={"max_registers": 32})
    assert list(module) == ["k"]
    assert 0 < module.load_s < 60
    with pytest.raises(OptionError):
        load(text, "cpu", jit={"registers": 32})
