"""Remake the fatbins, objects and libraries of ``tests/goldens/fatbins``: ``python tests/golden-makers/fatbins.py``.

Every release of the toolkit comes from its wheels into a temporary directory: NVRTC and nvFatbin of CUDA 12 and 13
through their C interface, nvcc of CUDA 13 (the wheels of CUDA 12 bring none) with the host's own gcc. ``made.txt``
names for each file what made it. Linux on x86-64; about a minute and 400 MB on the way.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

GOLDENS = Path(__file__).resolve().parents[1] / "goldens" / "fatbins"
TO_90 = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_90a")
TO_120 = (*TO_90, "sm_100", "sm_100f", "sm_120")
NVCC_ARCHES = tuple(arch for arch in TO_120 if arch != "sm_100f")  # nvcc takes one of sm_100 and sm_100f
PACKED_12 = {"default": (), "plain": ("-compress=false",)}
PACKED_13 = {"default": (), "all": ("-compress-all",), "debug": ("-g", "-compress=false")}
MODES = ("default", "size", "speed", "balance", "none")
# Release -> wheels.
WHEELS = {
    "12.0": ("nvidia-cuda-nvrtc-cu12",),
    "12.4": ("nvidia-cuda-nvrtc-cu12", "nvidia-nvfatbin-cu12"),
    "12.9": ("nvidia-cuda-nvrtc-cu12", "nvidia-nvfatbin-cu12"),
    "13.0": ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-runtime", "nvidia-nvfatbin"),
    "13.5": ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-runtime", "nvidia-cuda-nvrtc"),
}


class Release:
    """The wheels of one release, unpacked."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.folder = root / name
        wanted = [f"{wheel}=={name}.*" for wheel in WHEELS[name]]
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*command, "--target", self.folder, *wanted], check=True)

    def library(self, name: str) -> ctypes.CDLL:
        """Open a library of it."""
        return ctypes.CDLL(str(next(self.folder.glob(f"nvidia/**/{name}.so.1[23]"))))

    def compile(self, source: str, arch: str, what: str = "CUBIN") -> bytes:
        """Compile with NVRTC; ``what`` is CUBIN, PTX or LTOIR."""
        nvrtc, program = self.library("libnvrtc"), ctypes.c_void_p()
        _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None))
        options = [f"-arch={arch}".encode(), *([b"-dlto"] if what == "LTOIR" else [])]
        _check(nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)))
        size = ctypes.c_size_t()
        _check(getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        image = ctypes.create_string_buffer(size.value)
        _check(getattr(nvrtc, f"nvrtcGet{what}")(program, image))
        return image.raw

    def pack(self, images: Iterable[tuple[str, str, bytes]], options: tuple[str, ...]) -> bytes:
        """Bundle ``(kind, number, image)`` with nvFatbin; kind is Cubin, PTX or LTOIR."""
        nvfatbin, handle = self.library("libnvfatbin"), ctypes.c_void_p()
        said = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        _check(nvfatbin.nvFatbinCreate(ctypes.byref(handle), said, ctypes.c_size_t(len(options))))
        for kind, number, image in images:
            texts = [number.encode(), f"kernels.{kind}".encode(), b"-O3"][: 2 if kind == "Cubin" else 3]
            add = getattr(nvfatbin, f"nvFatbinAdd{kind}")
            _check(add(handle, image, ctypes.c_size_t(len(image)), *texts))
        size = ctypes.c_size_t()
        _check(nvfatbin.nvFatbinSize(handle, ctypes.byref(size)))
        fatbin = ctypes.create_string_buffer(size.value)
        _check(nvfatbin.nvFatbinGet(handle, fatbin))
        return fatbin.raw

    def nvcc(self, *arguments: str) -> None:
        """Run nvcc in the directory of the goldens."""
        toolkit = self.folder / "nvidia" / "cu13"
        subprocess.run([toolkit / "bin" / "nvcc", *arguments], cwd=GOLDENS, check=True)


def _check(result: int) -> None:
    if result:
        raise SystemExit(f"NVRTC or nvFatbin answered {result}")


def generated(*targets: str) -> list[str]:
    """nvcc's options for these targets; ``compute_…`` gives PTX, ``lto_…`` LTO-IR."""
    return [
        word for target in targets for word in ("-gencode", f"arch=compute_{target.partition('_')[2]},code={target}")
    ]


def by_nvfatbin(release: Release, compiler: Release, arches: tuple[str, ...], packed: dict[str, tuple[str, ...]],
                note: list[str]) -> None:  # fmt: skip
    """Fatbins of the small source in several packings, and one of the large source."""
    small, large = ((GOLDENS / f"{name}.cu").read_text() for name in ("small", "kernels"))
    few = (arches[0], *arches[3:5], *arches[-2:]) if len(arches) > 5 else arches[2:]
    images = [("Cubin", arch[3:], compiler.compile(small, arch)) for arch in few]
    images.append(("PTX", "80", compiler.compile(small, "compute_80", "PTX")))
    if compiler.name != "12.0":
        images.append(("LTOIR", "80", compiler.compile(small, "compute_80", "LTOIR")))
    files = {f"{mode}": (images, options) for mode, options in packed.items()}
    files["kernels"] = ([("Cubin", arch[3:], compiler.compile(large, arch)) for arch in arches], ("-compress-all",))
    if release.name.startswith("12"):  # it has no -compress-all
        del files["kernels"]
    for name, (content, options) in files.items():
        path = GOLDENS / f"nvrtc-{compiler.name}-nvfatbin-{release.name}-{name}.fatbin"
        path.write_bytes(release.pack(content, options))
        note.append(f"{path.name}: NVRTC {compiler.name}, nvFatbin {release.name} {' '.join(options)}".rstrip())


def by_nvcc(release: Release, note: list[str]) -> None:
    """Fatbins of nvcc and its fatbinary, a host object, an archive and a shared library."""
    few = generated("sm_75", "sm_90a", "sm_100f", "sm_120", "compute_120")
    jobs = {f"mode-{mode}.fatbin": ["-fatbin", "small.cu", *few, f"--compress-mode={mode}"] for mode in MODES}
    jobs |= {
        "plain.fatbin": ["-fatbin", "small.cu", *few, "-no-compress"],
        "all.fatbin": ["-fatbin", "small.cu", *few, "-Xfatbin", "-compress-all"],
        "rdc.fatbin": ["-fatbin", "small.cu", *few, "-rdc=true"],
        "lto.fatbin": ["-fatbin", "small.cu", *generated("sm_86", "lto_90"), "-rdc=true", "-no-compress"],
        "debug.fatbin": ["-fatbin", "small.cu", *generated("sm_80", "compute_90a"), "-G"],
        "lines.fatbin": ["-fatbin", "small.cu", *generated("sm_80"), "-lineinfo"],
        "kernels.fatbin": [
            "-fatbin",
            "kernels.cu",
            *generated(*NVCC_ARCHES, "compute_75"),
            "-Xfatbin",
            "-compress-all",
        ],
        "rdc.o": ["-c", "small.cu", *few, "-rdc=true"],
        "library.so": ["-shared", "-Xcompiler", "-fPIC", "-cudart=none", "small.cu", *few],
    }
    for name, arguments in jobs.items():
        path = f"nvcc-{release.name}-{name}"
        release.nvcc(*arguments, "-o", path)
        note.append(f"{path}: nvcc {release.name} {' '.join(arguments)}")


def main() -> None:
    """Make every file, and the note of what made it."""
    note: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        releases = {name: Release(name, Path(folder)) for name in WHEELS}
        by_nvfatbin(releases["12.4"], releases["12.0"], TO_90, PACKED_12, note)
        by_nvfatbin(releases["12.4"], releases["12.4"], TO_90, PACKED_12, note)
        by_nvfatbin(releases["12.9"], releases["12.9"], TO_120, PACKED_12, note)
        by_nvfatbin(releases["13.0"], releases["12.4"], TO_90, {}, note)
        by_nvfatbin(releases["13.0"], releases["12.9"], TO_120, PACKED_13, note)
        for name in ("13.0", "13.5"):
            by_nvcc(releases[name], note)
    (GOLDENS / "made.txt").write_text("\n".join(note) + "\n")


if __name__ == "__main__":
    main()
