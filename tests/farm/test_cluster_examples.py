"""The manifests and scripts of examples/cluster: valid, and what they run, run here with the paths of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from cujit.cache.pack import open_verified
from cujit.remote import push_pack
from pages import shell
from remote.registries import Registry, registry
from remote.serving import farm_in

__all__ = ["registry"]

EXAMPLES = Path(__file__).parents[2] / "examples" / "cluster"
CODE = "template <int N> __global__ void scale(float *x) { x[threadIdx.x] *= N; }"


def manifests(name: str) -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


def run(command: list[str], directory: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "CUJIT_CACHE_DIR": str(directory / "cache"), **variables}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


def listed(directory: Path) -> None:
    """Write a worklist of five kernels."""
    declared = f"declare('mylib.scale', {CODE!r}, names='scale<{{n}}>', over={{'n': range(5)}})"
    (directory / "mylib.py").write_text(f"from cujit.warmup import declare\n{declared}\n")
    command = [sys.executable, "-m", "cujit", "worklist", "declare", "mylib", "--arch", "sm_90", "-o", "kernels.jsonl"]
    done = run(command, directory, PYTHONPATH=str(directory))
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(find_spec("kubernetes_validate") is None, reason="kubernetes-validate is not installed")
@pytest.mark.parametrize("name", ["pods.yaml", "farm.yaml"])
def test_kubernetes_accepts_the_manifests(name: str) -> None:
    import kubernetes_validate

    for manifest in manifests(name):
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate({**manifest, "unknown": 1}, kubernetes_validate.latest_version(), strict=True)


def test_job_and_array_shards_form_one_pack(tmp_path: Path) -> None:
    listed(tmp_path)
    (job,) = manifests("farm.yaml")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    command = [word.replace("/shared", str(tmp_path)) for word in container["command"]]
    count = job["spec"]["completions"]
    for index in range(count):
        assert run(command, tmp_path, JOB_COMPLETION_INDEX=str(index)).returncode == 0
    shell(f"cujit farm merge {tmp_path / 'parts'} -o {tmp_path / 'job.pack'}")
    for part in (tmp_path / "parts").iterdir():
        part.unlink()
    script = (EXAMPLES / "farm.sh").read_text()
    assert f"#SBATCH --array=1-{count}\n" in script
    for number in range(1, count + 1):
        tasks = {"SLURM_ARRAY_TASK_ID": str(number), "SLURM_ARRAY_TASK_COUNT": str(count)}
        assert run(["sh", str(EXAMPLES / "farm.sh")], tmp_path, **tasks).returncode == 0
    shell(f"cujit farm merge {tmp_path / 'parts'} -o {tmp_path / 'array.pack'}")
    assert open_verified(tmp_path / "job.pack").stats().records == 5
    assert (tmp_path / "job.pack").read_bytes() == (tmp_path / "array.pack").read_bytes()


def test_pod_pulls_its_pack_and_compiles_nothing(registry: Registry, tmp_path: Path) -> None:
    listed(tmp_path)
    shell(f"cujit pack build {tmp_path / 'kernels.jsonl'} -o {tmp_path / 'kernels.pack'}")
    farm = farm_in(tmp_path)
    push_pack(f"{registry.url}:v1", tmp_path / "kernels.pack", farm.signer)
    _, deployment = manifests("pods.yaml")
    pod = deployment["spec"]["template"]["spec"]
    (init,), (service,) = pod["initContainers"], pod["containers"]
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o777)  # as an emptyDir is
    paths = {
        "oci://registry.example": f"oci://127.0.0.1:{registry.port}",
        "/etc/cujit/believed.json": str(farm.trust),
        "/kernels/": f"{volume}/",
        "chmod 755 /kernels": f"chmod 755 {volume}",
    }

    def here(text: str) -> str:
        for there, path in paths.items():
            text = text.replace(there, path)
        return text

    variables = {variable["name"]: here(variable["value"]) for variable in service["env"]}
    asked = f"import cujit; cujit.compile({CODE!r}, names=['scale<3>'], arch='sm_90'); print('had')"
    command = [sys.executable, "-W", "ignore", "-c", asked]
    done = run([here(word) for word in init["command"]], tmp_path)
    assert done.returncode == 0, done.stderr
    own = {"CUJIT_CACHE_DIR": str(tmp_path / "empty"), "CUJIT_COMPILE": "never"}
    assert run(command, tmp_path, **{**variables, **own}).stdout == "had\n"
    volume.chmod(0o777)
    assert "NotCompiledError" in run(command, tmp_path, **{**variables, **own}).stderr
