"""The LLVM IR that starts a kernel once its parameters are in ``%buffer``, for back ends that write some."""

from __future__ import annotations

from collections.abc import Callable

from cujit.devices.backend import Finish


def finish_text(body: Callable[[], list[str]]) -> str:
    """Write ``ptr finish(state, buffer, size, each)`` around a body: it gives what the call returns.

    ``each`` has the address of each parameter, or is null: then the driver gets the buffer.
    """
    head = ["define ptr @finish(ptr %state, ptr %buffer, i64 %size, ptr %each) {", "  %current = alloca ptr"]
    end = ["good:", "  call void @Py_IncRef(ptr $None)", "  ret ptr $None", "fail:", "  ret ptr null", "}"]
    return "\n".join([*head, *body(), *end])


def load(name: str, type_: str = "ptr") -> list[str]:
    """Load a field of the state under its own name."""
    return [
        f"  %{name}.at = getelementptr i8, ptr %state, i64 #state.{name}",
        f"  %{name} = load {type_}, ptr %{name}.at",
    ]


def report(number: str) -> list[str]:
    """Have Python say what a number means, a status or an address: it raises, or gives what the call returns."""
    return [
        f"  %status.object = call ptr @PyLong_FromLong(i64 {number})",
        "  %status.missing = icmp eq ptr %status.object, null",
        "  br i1 %status.missing, label %fail, label %report",
        "report:",
        "  store ptr %status.object, ptr %current",
        *load("failed"),
        "  %answer = call ptr @PyObject_VectorcallDict(ptr %failed, ptr %current, i64 1, ptr null)",
        "  call void @Py_DecRef(ptr %status.object)",
        "  ret ptr %answer",
    ]


COPY = Finish("copy")
"""Nowhere: the buffer is copied to the state's ``sink``. For tests and for the floor of a measurement."""
