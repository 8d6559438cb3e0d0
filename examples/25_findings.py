"""Write the findings of a command as SARIF for code scanning and as JUnit XML for test reports."""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

RACE = """\
extern "C" __global__ void turned(const float *x, float *y) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = tile[63 - threadIdx.x];
}
"""
LAUNCH = ["--grid", "1", "--block", "64", "--arg", "ones:f32:64", "--arg", "zeros:f32:64"]
CHECK = ["--device", "cpu", "--check", "race", "-O", "lineinfo"]


def check(folder: str, source: str, findings: str) -> int:
    """Run the kernel with the race check, and write what the check finds to a file; return the exit status."""
    Path(folder, "turned.cu").write_text(source)
    command = [sys.executable, "-m", "cujit", "run", "turned.cu", "-k", "turned", *LAUNCH, *CHECK]
    command += ["--findings", findings]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode


with TemporaryDirectory() as folder:
    assert check(folder, RACE, "race.sarif") == 1
    (result,) = json.loads(Path(folder, "race.sarif").read_text())["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    print(f"{place['artifactLocation']['uri']}:{place['region']['startLine']}: {result['ruleId']}")
    assert (result["ruleId"], place["region"]["startLine"]) == ("fault-race", 3)

    fixed = RACE.replace("    y[", "    __syncthreads();\n    y[")
    assert check(folder, fixed, "fixed.xml") == 0
    assert not list(ElementTree.parse(Path(folder, "fixed.xml")).iter("failure"))
