"""The assembler of the installed nvJitLink, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

__all__ = ["Assembler"]

_PROGRAM = """
import json, sys
import cujit
for line in sys.stdin:
    arch, text = json.loads(line)
    try:
        cujit.link([cujit.Artifact(cujit.ImageKind.PTX, text.encode(), name="x")], arch=arch, cache=False)
        log = ""
    except cujit.errors.LinkError as error:
        log = error.log
    print(json.dumps(log), flush=True)
"""


class Assembler:
    """nvJitLink in a process of its own, since it dies of some texts."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def complain(self, text: str, arch: str) -> str | None:
        """Give what it writes about a text, nothing if it takes it; None where it died."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([arch, text]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self.close()
            return None
        answer: str = json.loads(line)
        return answer

    def close(self) -> None:
        """End its process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
