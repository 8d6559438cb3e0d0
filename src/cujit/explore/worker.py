"""The worker process of an explorer, which compiles scenes, launches kernels in a separate process, and writes lines.

It may be killed at any moment, and it ends with the server. The server itself never compiles, so a compiler can't end
the server or keep it busy.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any, BinaryIO

from cujit.errors import CujitError
from cujit.explore.analyzer import analyze
from cujit.explore.scene import Scene
from cujit.report.page import fitted
from cujit.reproducer.sandbox import end_with_parent, limit

MOST_RECORD_BYTES = 2_000_000


def main(answers: int, parent: int, memory_mib: int) -> None:
    """Answer every line of standard input with lines on a file descriptor. The last line is ``done`` or ``failed``."""
    end_with_parent(parent)
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_AS, memory_mib << 20)
    file = os.fdopen(answers, "wb")
    for line in sys.stdin.buffer:
        _answer(file, json.loads(line))


def _answer(answers: BinaryIO, request: dict[str, Any]) -> None:
    def say(stage: str, **more: object) -> None:
        answers.write(json.dumps({"stage": stage, **more}, separators=(",", ":")).encode() + b"\n")
        answers.flush()

    try:
        seen = analyze(Scene.of(request.pop("scene")), say=say, **request)
        record = fitted(seen.record(), MOST_RECORD_BYTES)
    except CujitError as e:
        say("failed", message=e.message, help=e.help)
    except MemoryError:
        say("failed", message="there isn't enough memory to compile the source and create the report", help=None)
    except Exception as e:
        say("failed", message=f"internal error in cujit: {e!r}", help=None)
    else:
        answers.write(b'{"stage":"done","record":' + record.encode() + b"}\n")
        answers.flush()
