"""A serving worker, which reads orders from standard input and answers each until the input ends."""

from __future__ import annotations

import os
import queue
import resource
import sys
from collections.abc import Callable
from typing import Any

from cujit.threads import start
from cujit.workers.messages import read_message, write_message


def serve(answers: int, answer: Callable[[Any], object]) -> None:
    """Answer orders forever. The process ends when the parent closes the input, whatever it is doing.

    Args:
        answers: the descriptor to write to.
        answer: function that returns the answer to an order and raises nothing.
    """
    orders = sys.stdin.buffer
    file = os.fdopen(answers, "wb")
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))  # whoever starts a worker expects its death
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def read() -> None:
        while (order := read_message(orders, is_order=True)) is not None:
            waiting.put(order)
        os._exit(0)  # whoever asked is gone, and whatever is done here is for nobody

    start(read, name="cujit-orders", daemon=True)
    while True:
        write_message(file, answer(waiting.get()))
