"""Try what cujit, cuda.core, CuPy, numba-cuda and Warp can do on a machine without a GPU.

``python benchmarks/peers.py`` prints a table, ``--write`` keeps it in ``benchmarks/peers.json``, from which
``docs/performance.md`` and the README have it. It needs an environment with all of them::

    pip install -e '.[cu13]' cuda-core cupy-cuda13x 'numba-cuda[cu13]' warp-lang

Each probe runs in a process of its own and prints its answer: "yes", "no", or what it found. An exception is a "no";
``--verbose`` prints it.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

RECORD = Path(__file__).parent / "peers.json"

TOOLS = {
    "cujit": "cujit",
    "cuda.core": "cuda-core",
    "CuPy": "cupy-cuda13x",
    "numba-cuda": "numba-cuda",
    "Warp": "warp-lang",
}
"""What each tool is called, and its distribution."""

_CODE = """
CODE = '''#include "offset.h"
template <typename T> __global__ void add(T *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += T(OFFSET);
}'''
from pathlib import Path
Path("offset.h").exists() or Path("offset.h").write_text("#define OFFSET 1\\n")
"""

_CUJIT = _CODE + "import cujit\n"
_CORE = _CODE + (
    "from cuda.core import Program, ProgramOptions\n"
    "def compiled(kind, **more):\n"
    "    options = ProgramOptions(arch='sm_90', std='c++17', include_path='.')\n"
    "    return Program(CODE, 'c++', options).compile(kind, name_expressions=('add<float>',), **more)\n"
)
_CUPY = _CODE + "import cupy\n"
_NUMBA = (
    "from numba import cuda, float32, int32\ndef add(x, n):\n    i = cuda.grid(1)\n    if i < n:\n        x[i] += 1\n"
)
_WARP = (
    "import warp as wp\n"
    "wp.config.quiet = True\n"
    "@wp.kernel\n"
    "def add(x: wp.array(dtype=float), n: int):\n"
    "    i = wp.tid()\n"
    "    if i < n:\n"
    "        x[i] = x[i] + 1.0\n"
)

_RAW = "cupy.RawModule(code=CODE, name_expressions=['add<float>'], options=('-I.',)).compile()\nprint('yes')"
_FILE = "cupy.RawModule(code=CODE, name_expressions=['add<float>'], options=('-I.',)).get_function('add<float>')\n"

_PLAIN_CORE = (
    _CORE.replace(", name_expressions=('add<float>',)", "")
    .replace("template <typename T> ", "")
    .replace("(T *x", "(float *x")
    .replace("T(OFFSET)", "float(OFFSET)")
)
"""The same with a kernel that is no template."""


def _without_headers(program: str) -> str:
    """Write the macro into the source: cuda.core caches no source with a directory of headers."""
    return program.replace('#include "offset.h"', "#define OFFSET 1").replace(", include_path='.'", "")


PROBES: dict[str, dict[str, str]] = {
    "Compile to a cubin without a GPU or driver": {
        "cujit": _CUJIT
        + "image = cujit.compile(CODE, arch='sm_90', to='cubin', names=['add<float>'], include=['.'])\n"
        + "print('yes' if image.data[:4] == b'\\x7fELF' else 'no')",
        "cuda.core": _CORE + "print('yes' if compiled('cubin').code[:4] == b'\\x7fELF' else 'no')",
        "CuPy": _CUPY + _RAW,
        "numba-cuda": _NUMBA
        + "code, _ = cuda.compile(add, (float32[:], int32), cc=(9, 0), output='ltoir')\n"
        + "print('no (LTO-IR only)' if code else 'no')",
        "Warp": _WARP
        + "import sys\n"
        + "wp.compile_aot_module(sys.modules['__main__'], device=None, arch=90, module_dir='aot', use_ptx=False)\n"
        + "from pathlib import Path\nprint('yes' if [*Path('aot').glob('*.cubin')] else 'no')",
    },
    "Compile to PTX without a GPU or driver": {
        "cujit": _CUJIT
        + "image = cujit.compile(CODE, arch='compute_90', names=['add<float>'], include=['.'])\n"
        + "print('yes' if '.target' in image.text else 'no')",
        "cuda.core": _CORE + "print('yes' if b'.target' in compiled('ptx').code else 'no')",
        "CuPy": _CUPY + _RAW,
        "numba-cuda": _NUMBA
        + "text, _ = cuda.compile_ptx(add, (float32[:], int32), cc=(9, 0))\n"
        + "print('yes' if '.target' in text else 'no')",
        "Warp": _WARP
        + "import sys\n"
        + "wp.compile_aot_module(sys.modules['__main__'], device=None, arch=90, module_dir='aot', use_ptx=True)\n"
        + "from pathlib import Path\nprint('yes' if [*Path('aot').glob('*.ptx')] else 'no')",
    },
    "Run the kernel on the CPU": {
        "cujit": _CUJIT
        + "import numpy as np\nx = np.zeros(8, np.float32)\n"
        + "cujit.jit(CODE, names=['add<float>'], include=['.'], device='cpu')['add<float>'].over(8)(x, 8)\n"
        + "print('yes' if x.tolist() == [1.0] * 8 else 'no')",
        "cuda.core": _CORE + "from cuda.core import Device\nDevice()\nprint('yes')",
        "CuPy": _CUPY + _FILE + "print('yes')",
        "numba-cuda": "import os\nos.environ['NUMBA_ENABLE_CUDASIM'] = '1'\n"
        + _NUMBA
        + "import numpy as np\nx = np.zeros(8, np.float32)\ncuda.jit(add)[1, 32](x, 8)\n"
        + "print('only in a Python simulator' if x.tolist() == [1.0] * 8 else 'no')",
        "Warp": _WARP
        + "import numpy as np\nx = wp.zeros(8, dtype=float, device='cpu')\n"
        + "wp.launch(add, dim=8, inputs=[x, 8], device='cpu')\n"
        + "print('yes' if x.numpy().tolist() == [1.0] * 8 else 'no')",
    },
    "Cache compiled kernels on disk": {
        "cujit": _CUJIT
        + "import os, subprocess, sys\n"
        + "image = cujit.compile(CODE, arch='sm_90', names=['add<float>'], include=['.'])\n"
        + "if 'AGAIN' in os.environ:\n"
        + "    print('yes' if image.provenance.is_hit else 'no')\n"
        + "else:\n"
        + "    subprocess.run([sys.executable, sys.argv[0]], env={**os.environ, 'AGAIN': '1'}, check=True)\n",
        "cuda.core": _without_headers(_PLAIN_CORE)
        + "from cuda.core.utils import FileStreamProgramCache\n"
        + "with FileStreamProgramCache('cache') as cache:\n    compiled('cubin', cache=cache)\n"
        + _without_headers(_CORE)
        + "try:\n    with FileStreamProgramCache('cache') as cache:\n        compiled('cubin', cache=cache)\n"
        + "    print('yes')\nexcept Exception:\n    print('partly (no templates)')",
    },
    "Notice edited headers automatically": {
        "cujit": _CUJIT
        + "def made():\n"
        + "    return cujit.compile(CODE, arch='sm_90', names=['add<float>'], include=['.'])\n"
        + "made()\nbefore = made()\nPath('offset.h').write_text('#define OFFSET 2\\n')\nafter = made()\n"
        + "print('yes' if before.provenance.is_hit and after.data != before.data else 'no')",
        "cuda.core": _PLAIN_CORE
        + "from cuda.core.utils import FileStreamProgramCache\n"
        + "with FileStreamProgramCache('cache') as cache:\n    before = compiled('cubin', cache=cache).code\n"
        + "Path('offset.h').write_text('#define OFFSET 2\\n')\n"
        + "with FileStreamProgramCache('cache') as cache:\n    after = compiled('cubin', cache=cache).code\n"
        + "print('yes' if after != before else 'no')",
    },
}
"""Programs by what they try and by tool; a tool without one has not been tried."""


def answer(program: str) -> tuple[str, str]:
    """Run a program in an empty folder with an empty cache; return its last line, and why it failed."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "probe.py"
        script.write_text(program)
        caches = dict.fromkeys(("XDG_CACHE_HOME", "CUPY_CACHE_DIR", "WARP_CACHE_PATH", "HOME"), f"{folder}/caches")
        done = subprocess.run(
            [sys.executable, str(script)],
            cwd=folder,
            env={**os.environ, **caches, "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    lines = done.stdout.strip().splitlines()
    return (lines[-1], "") if done.returncode == 0 and lines else ("no", done.stderr.strip()[-600:])


def main() -> None:
    """Try everything, print it, and keep it if asked."""
    found: dict[str, dict[str, str]] = {}
    for what, programs in PROBES.items():
        found[what] = {}
        for tool, program in programs.items():
            said, why = answer(program)
            found[what][tool] = said
            print(f"{what:55} {tool:12} {said}", flush=True)
            if why and "--verbose" in sys.argv:
                print(why)
    if "--write" in sys.argv:
        record = json.loads(RECORD.read_text())
        versions = {tool: importlib.metadata.version(name) for tool, name in TOOLS.items()}
        record["without a GPU"] = {"date": f"{datetime.date.today()}", "versions": versions, "rows": found}
        RECORD.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
