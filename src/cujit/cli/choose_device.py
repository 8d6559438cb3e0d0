"""Choosing the device, and saying why it was that one."""

from __future__ import annotations

import click

from cujit.devices.device import Device
from cujit.devices.process import is_device_name, process_devices
from cujit.errors import MissingError, spell
from cujit.machine import cpu, gpu


def _device_name(ctx: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    """Reject an invalid device name as a usage error, in contrast to a missing device."""
    if name is not None and not is_device_name(name):
        raise click.BadParameter(f"unknown device {spell(name)}: expected cpu, cuda:0, cuda:1, …", ctx, parameter)
    return name


device_option = click.option(
    "--device",
    "device_name",
    metavar="NAME",
    callback=_device_name,
    help="Device to run on, such as cpu, cuda:0 or cuda:1. Default: the first GPU, or the CPU device if there is no "
    "GPU.",
)


def choose_device(name: str | None) -> tuple[Device, str]:
    """Return the device called ``name``, otherwise the first GPU, otherwise the CPU device, and the reason.

    Raises:
        DriverNotFoundError: a GPU was requested, but there is no driver.
        DeviceNotFoundError: no device has this name.
    """
    if name is not None:
        return process_devices().named(name), "asked for"
    try:
        return gpu(), "the first GPU"
    except MissingError as e:
        return cpu(), e.message.partition(": ")[0]
