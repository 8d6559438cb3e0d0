"""Work that is asked to end: who is called for it, and what comes of work that ends soon."""

from __future__ import annotations

import time

import pytest

from cujit.toolchain import stopping
from cujit.toolchain.stopping import Stop, finish


def test_stop_callback_runs_at_once_if_already_stopped() -> None:
    stop, called = Stop(), []
    with stop.by(lambda: called.append("during")):
        assert not called
        stop.ask()
        assert called == ["during"]
    with stop.by(lambda: called.append("before")):
        assert called == ["during", "before"]


def test_work_that_ends_soon_after_its_time_gives_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "_GRACE_S", 60.0)  # a machine that does other things too
    stop = Stop()

    def work() -> str:
        with stop.changed:
            while not stop.is_requested:
                assert stop.changed.wait(60)
        return "done"

    assert finish(work, stop, until=time.monotonic()) == "done"
