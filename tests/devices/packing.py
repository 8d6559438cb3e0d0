"""One argument packed, or refused: what the tests of arguments share."""

from __future__ import annotations

import pytest

from cujit.devices.arguments.packer import pack
from cujit.devices.device import Device
from cujit.errors import ArgumentError
from cujit.signature import Parameter, Signature

__all__ = ["packed", "refusal"]


def packed(device: Device, parameter: Parameter, value: object) -> bytes:
    """The bytes of an argument."""
    return pack(Signature((parameter,)), [value], device, "k")


def refusal(device: Device, parameter: Parameter, value: object) -> str:
    """The message with which an argument is refused."""
    with pytest.raises(ArgumentError) as caught:
        packed(device, parameter, value)
    return str(caught.value)
