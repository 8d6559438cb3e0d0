"""Fetch the ptxas of every release of the table from its wheel: ``python tests/toolkits/fetch.py DIRECTORY``."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

CUDA_11 = ("11.7", "11.8")
CUDA_12 = ("12.0", "12.1", "12.2", "12.3", "12.4", "12.5", "12.6", "12.8", "12.9")
CUDA_13 = ("13.0", "13.1", "13.2", "13.3", "13.4", "13.5")
WHEELS = {"nvidia-cuda-nvcc-cu11": CUDA_11, "nvidia-cuda-nvcc-cu12": CUDA_12, "nvidia-cuda-nvcc": CUDA_13}
PLATFORMS = ("manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64")


def fetch(requirement: str, target: Path) -> None:
    """Take ptxas out of one wheel; a release that is there already is left alone."""
    if target.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
        for platform in PLATFORMS:
            command += ["--platform", platform]
        subprocess.run([*command, "-d", folder, requirement], check=True)
        wheel = next(Path(folder).glob("*.whl"))
        with zipfile.ZipFile(io.BytesIO(wheel.read_bytes())) as archive:
            member = next(name for name in archive.namelist() if name.endswith("/bin/ptxas"))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(member))
    target.chmod(0o755)


def main() -> None:
    """Fetch every release."""
    for wheel, versions in WHEELS.items():
        for version in versions:
            fetch(f"{wheel}=={version}.*", Path(sys.argv[1]) / version / "ptxas")
            print(version, "ready", flush=True)


if __name__ == "__main__":
    main()
