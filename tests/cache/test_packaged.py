"""Packs of installed distributions: found without an import, held against RECORD, and the best of them is taken."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cujit
from cujit.arch import Arch
from cujit.cache.cache import Cache
from cujit.cache.pack import write_pack
from cujit.cache.packaged import packs_of
from cujit.cache.provenance import Provenance
from cujit.emulator.versions import VERSION
from cujit.errors import CacheWarning, MissingError, NotCompiledError, OptionError
from cujit.events import Fallback, Happening, subscribe
from emulator.programs import python
from installed import install
from processes import printed
from raising import raises

CODE = 'extern "C" __global__ void k(float *x) { x[threadIdx.x] = 3; }\n'
BOOM = b"raise AssertionError('imported')"

Packs = Callable[..., bytes]


@pytest.fixture(scope="module")
def pack_of(tmp_path_factory: pytest.TempPathFactory) -> Packs:
    """Write packs of the kernel for some architectures."""
    folder = tmp_path_factory.mktemp("packaged")
    cache = Cache(folder / "cache")

    def pack(*arches: str) -> bytes:
        keys = []
        for arch in arches:
            known = cujit.compile(CODE, arch=arch, cache=cache).provenance
            assert isinstance(known, Provenance)
            assert known.key is not None
            keys.append(known.key.digest)
        write_pack(folder / "k.pack", cache.stores, wanted=keys)
        return (folder / "k.pack").read_bytes()

    return pack


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "own"))
    return tmp_path / "site"


def root_of(image: cujit.Artifact) -> Path | None:
    assert isinstance(image.provenance, Provenance)
    return image.provenance.root


def test_distribution_packs_answer_without_importing_it(site: Path, pack_of: Packs) -> None:
    install(site, "my-lib", {"my_lib/__init__.py": BOOM, "my_lib/_kernels/k.pack": pack_of("sm_90")})
    cache = Cache.packaged("my-lib")
    found = cujit.compile(CODE, arch="sm_90", cache=cache)
    assert root_of(found) == site / "my_lib/_kernels/k.pack"
    assert "my_lib" not in sys.modules
    made = cujit.compile(CODE, arch="sm_80", cache=cache)
    assert root_of(made) == site.parent / "own", "what was not shipped is compiled, and kept as always"
    assert Cache.packaged("my-lib") is cache
    assert Cache.packaged("My_Lib").distribution == "My_Lib"


def test_other_wheels_bring_packs_for_a_distribution(site: Path, pack_of: Packs) -> None:
    install(site, "my-lib", {"my_lib/__init__.py": b""})
    assert Cache.packaged("my-lib").stores == (Cache.packaged("my-lib").store,), "it works without"
    for family in ("80", "90"):
        package = f"my_lib_sm{family}"
        files = {f"{package}/__init__.py": BOOM, f"{package}/k.pack": pack_of(f"sm_{family}"), "other/k.pack": b"no"}
        install(site, f"my-lib-sm{family}", files, points=f"[cujit.packs]\nmy_lib = {package}\n")
    install(
        site,
        "stranger",
        {"stranger/k.pack": b"no"},
        points="[cujit.packs]\nyour-lib = stranger\nmy.lib = ?!\n\n[x]\nmy-lib = stranger\n",
    )
    found = packs_of("my-lib")
    assert sorted((pack.path.parent.name, pack.distribution, pack.is_own) for pack in found) == [
        ("my_lib_sm80", "my_lib_sm80", False),
        ("my_lib_sm90", "my_lib_sm90", False),
    ]
    cache = Cache.packaged("my-lib", compile="never")
    assert {root_of(cujit.compile(CODE, arch=f"sm_{n}", cache=cache)).parent.name for n in (80, 90)} == {  # type: ignore[union-attr]
        "my_lib_sm80",
        "my_lib_sm90",
    }


def test_pack_that_differs_from_record_is_refused(site: Path, pack_of: Packs) -> None:
    install(site, "mylib", {"mylib/k.pack": pack_of("sm_80")})
    (site / "mylib/k.pack").write_bytes(pack_of("sm_90"))
    with pytest.warns(
        CacheWarning, match=r"mylib/k\.pack: the SHA-256 differs from the one in the RECORD file of mylib"
    ):
        made = cujit.compile(CODE, arch="sm_90", cache=Cache.packaged("mylib"))
    assert root_of(made) == site.parent / "own"


def test_full_verification_of_a_pack_is_noted_until_it_changes(
    site: Path, pack_of: Packs, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "mylib", {"mylib/k.pack": pack_of("sm_80")})
    cujit.compile(CODE, arch="sm_80", cache=Cache.packaged("mylib"))
    noted = [hint.name for hint in (site.parent / "own/hints").iterdir() if hint.name.startswith("pack-")]
    assert len(noted) == 1
    monkeypatch.setattr("cujit.cache.packaged._CHUNK_BYTES", 0)  # whoever reads it again fails
    monkeypatch.setenv("CUJIT_CACHE_ROOTS", str(site))  # other settings: another Cache
    assert root_of(cujit.compile(CODE, arch="sm_80", cache=Cache.packaged("mylib"))) == site / "mylib/k.pack"
    os.utime(site / "mylib/k.pack", ns=(1, 1))
    monkeypatch.setenv("CUJIT_CACHE_ROOTS", str(site / "mylib"))
    with pytest.raises(ValueError, match="must not be zero"):
        cujit.compile(CODE, arch="sm_80", cache=Cache.packaged("mylib"))


def test_openssl_is_loaded_only_for_unverified_packs(site: Path, pack_of: Packs) -> None:
    install(site, "mylib", {"mylib/k.pack": pack_of("sm_80")})
    code = """
        import sys
        import cujit
        from cujit.devices.launcher.library import library
        is_native = library().digest.call() is not None
        found = cujit.compile(sys.argv[1], arch="sm_80", cache=cujit.Cache.packaged("mylib"))
        loaded = {"_hashlib", "base64"} & {*sys.modules}
        print(found.provenance.root.name, *(sorted(loaded) if is_native else ()))
        """
    assert printed(code, CODE).split()[0] == "k.pack"
    assert printed(code, CODE).split() == ["k.pack"]


def test_pack_is_trusted_as_the_code_next_to_it(site: Path, pack_of: Packs) -> None:
    install(site, "mylib", {"mylib/k.pack": pack_of("sm_80")}, is_hashed=False)
    os.chmod(site / "mylib", 0o777)
    os.chmod(site / "mylib/k.pack", 0o666)
    os.rename(site / "mylib/k.pack", site / "stored")
    os.symlink(site / "stored", site / "mylib/k.pack")  # as some installers do
    assert root_of(cujit.compile(CODE, arch="sm_80", cache=Cache.packaged("mylib"))) == site / "stored"


def test_nothing_is_written_next_to_a_pack(site: Path, pack_of: Packs) -> None:
    install(site, "mylib", {"mylib/k.pack": pack_of("sm_80")})
    before = {path: path.stat().st_mtime_ns for path in site.rglob("*")}
    cujit.jit(CODE, device="cpu", cache=Cache.packaged("mylib"))
    assert {path: path.stat().st_mtime_ns for path in site.rglob("*")} == before


def test_distribution_packs_work_if_the_cache_is_off(
    site: Path, pack_of: Packs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUJIT_CACHE", "0")
    install(site, "mylib", {"mylib/k.pack": pack_of("sm_80")})
    cache = Cache.packaged("mylib")
    assert root_of(cujit.compile(CODE, arch="sm_80", cache=cache)) == site / "mylib/k.pack"
    assert cujit.compile(CODE, arch="sm_90", cache=cache).provenance.outcome.value == "uncached"  # type: ignore[union-attr]


def test_pack_in_an_archive_is_ignored(site: Path, pack_of: Packs, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "mylib", {"mylib/k.pack": pack_of("sm_80")})
    shutil.make_archive(str(site), "zip", site)
    shutil.rmtree(site)
    monkeypatch.syspath_prepend(f"{site}.zip")
    assert packs_of("mylib") == ()
    with pytest.raises(NotCompiledError):
        cujit.compile(CODE, arch="sm_80", cache=Cache.packaged("mylib", compile="never"))


def test_odd_distributions_raise_errors_or_have_no_packs(site: Path) -> None:
    with raises(MissingError, "missing", "nothing-of-that-name"):
        Cache.packaged("nothing-of-that-name")
    for name in ("", "../x", "a b", 5):
        with raises(OptionError, "option", "distribution"):
            Cache.packaged(name)  # type: ignore[arg-type]
    metadata = install(site, "mylib", {"mylib/k.pack": b"not a pack"})
    (metadata / "RECORD").write_text('mylib/k.pack,sha256=?,3\n"mylib/k.pack\n,,\n\nmylib/other.pack\n')
    assert {pack.sha256 for pack in packs_of("mylib")} <= {"", "f"}
    (metadata / "RECORD").write_text("mylib/a.pack\nmylib/b.pack,md5=q80,3\nmylib/c.pack,sha256=q80\n")
    assert [pack.sha256 for pack in packs_of("mylib")] == ["", "", "abcd"], "a row may end early"
    (metadata / "RECORD").unlink()
    assert packs_of("mylib") == ()


# -- what is taken where there is not just that ------------------------------------------------------------


@pytest.mark.parametrize(
    ("shipped", "taken"),
    [
        (("compute_80", "compute_90", "compute_100"), "compute_90"),
        (("compute_80", "compute_75"), "compute_80"),
        (("compute_100", "sm_90"), "compute_100"),
    ],
)
def test_cpu_device_uses_the_available_ptx(site: Path, pack_of: Packs, shipped: tuple[str, ...], taken: str) -> None:
    install(site, "mylib", {"mylib/k.pack": pack_of(*shipped)})
    seen: list[Happening] = []
    with subscribe(seen.append, Fallback):
        module = cujit.jit(CODE, device="cpu", cache=Cache.packaged("mylib", compile="never"))
    assert (str(module.artifact.arch), root_of(module.artifact)) == (taken, site / "mylib/k.pack")
    assert module._image.portable is not None
    assert module._image.portable().arch == module.artifact.arch, "what is saved of it is of the same architecture"
    x = cujit.cpu().zeros(4, "float32")
    module["k"][1, 4](x)
    assert x.numpy().tolist() == [3] * 4
    reason = module.artifact.provenance.reason  # type: ignore[union-attr]
    assert reason == ("" if taken == "compute_90" else f"there is none for compute_90a, and {taken} runs on cpu")
    ways = [(event.way, event.why) for event in seen if isinstance(event, Fallback)]
    assert ways == [(f"code for {taken}", reason)] * (taken != "compute_90")


def test_unsuitable_images_are_compiled_or_listed_in_an_error(site: Path, pack_of: Packs) -> None:
    install(site, "mylib", {"mylib/k.pack": pack_of("sm_90")})
    assert str(cujit.jit(CODE, device="cpu", cache=Cache.packaged("mylib")).artifact.arch) == "compute_90a"
    with pytest.raises(NotCompiledError) as missed:
        cujit.jit(CODE + " ", device="cpu", cache=Cache.packaged("mylib", compile="never"))
    assert str(site / "mylib/k.pack") in missed.value.searched
    assert "nor is there anything else that runs here (cpu, sm_90): compute_90a, compute_90, compute_89" in str(
        missed.value
    )
    with raises(NotCompiledError, "not-compiled", "source.cu", "compute_89"):
        cujit.jit(CODE, device="cpu", arch="compute_89", cache=Cache.packaged("mylib", compile="never"))


def test_error_for_a_gpu_names_its_driver_too(tmp_path: Path) -> None:
    said = python(f"""
    import pathlib
    import cujit

    cache = cujit.Cache(pathlib.Path({str(tmp_path)!r}), compile="never")
    try:
        cujit.jit({CODE!r}, cache=cache)
    except cujit.errors.NotCompiledError as e:
        print(e)
    """)
    place = f"cuda:0, sm_90, driver of CUDA {VERSION // 1000}.{VERSION % 1000 // 10}"
    assert f"nor is there anything else that runs here ({place}): sm_90a, sm_90, " in said


def test_images_for_an_architecture_come_best_first() -> None:
    names = [str(arch) for arch in Arch.parse("sm_121").served_by()]
    assert names[:5] == ["sm_121a", "sm_121f", "sm_121", "sm_120f", "sm_120"]
    assert names[5:10] == ["compute_121a", "compute_121f", "compute_121", "compute_120f", "compute_120"]
    assert names[-1] == "compute_50"
    assert "compute_120a" not in names
    assert [str(arch) for arch in Arch.parse("sm_89").served_by()][:5] == [
        "sm_89",
        "sm_86",
        "sm_80",
        "compute_89",
        "compute_88",
    ]
    assert str(Arch.of_capability(13, 0).served_by()[1]) == "compute_130"
