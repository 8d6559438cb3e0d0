"""Odd files and odd text at every door that takes them: one kind of error for one mistake, and no waiting for ever."""

from __future__ import annotations

import errno
import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import cujit
from cujit.errors import CompileError, CujitError, FileError, FormatError, OptionError
from llvm_ir import SCALE
from raising import raises

CUDA = "__global__ void k(int* p) { *p = 1; }\n"
PTX = ".version 7.8\n.target sm_75\n.address_size 64\n.visible .entry k()\n{\n\tret;\n}\n"
BUDGET = '[[budget]]\nkernel = "k"\nregisters = 64\n'


class Door(NamedTuple):
    """A function of a path, the ending that it looks at, a text that it takes, and whether it takes that itself."""

    call: Callable[[Any], object]
    ending: str
    text: str
    takes_text: bool = True


DOORS = {
    "compile": Door(lambda given: cujit.compile(given, cache=False), ".cu", CUDA),
    "build": Door(lambda given: cujit.build(given, "compute_90", cache=False), ".cu", CUDA),
    "jit": Door(lambda given: cujit.jit(given, device="cpu", cache=False), ".cu", CUDA),
    "request": Door(cujit.request, ".cu", CUDA),
    "Source.cuda": Door(cujit.Source.cuda, ".cu", CUDA),
    "ModuleSpec": Door(cujit.ModuleSpec, ".cu", CUDA),
    "Source.nvvm": Door(cujit.Source.nvvm, ".ll", SCALE),
    "compile of LLVM IR": Door(lambda given: cujit.compile(given, cache=False), ".ll", SCALE, takes_text=False),
    "link": Door(lambda given: cujit.link([given], arch="sm_90", cache=False), ".ptx", PTX),
    "bundle": Door(lambda given: cujit.bundle([given], cache=False), ".ptx", PTX),
    "load": Door(lambda given: cujit.load(given, "cpu"), ".ptx", PTX),
    "inspect": Door(cujit.inspect, ".ptx", PTX),
    "compare": Door(lambda given: cujit.compare(given, given), ".ptx", PTX),
    "compat": Door(lambda given: cujit.compat(given, driver="13.0"), ".ptx", PTX),
    "Artifact.open": Door(cujit.Artifact.open, ".ptx", PTX, takes_text=False),
    "read_budgets": Door(cujit.budget.read_budgets, ".toml", BUDGET, takes_text=False),
}
MACHINE_CODE: dict[str, Callable[[Any], object]] = {
    "usage": cujit.usage,
    "check": lambda given: cujit.budget.check(given, cujit.budget.Budget(registers=64)),
    "occupancy": lambda given: cujit.occupancy.of(given, block=64, on="sm_90"),
}


def missing(path: Path) -> None:
    del path


def below_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("")


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def directory(path: Path) -> None:
    path.mkdir()


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def unix_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.chdir(here)


def unreadable(path: Path) -> None:
    path.write_text(CUDA)
    path.chmod(0)


ODD: dict[Callable[[Path], None], str] = {
    missing: "No such file or directory",
    below_a_file: "Not a directory",
    fifo: "it is a FIFO",
    device: "it is a device",
    directory: "it is a directory",
    link_to_itself: "symbolic links",
    unix_socket: "it is a socket",
    unreadable: "Permission denied",
}


NUMBERS: dict[Callable[[Path], None], int] = {
    directory: errno.EISDIR,
    fifo: errno.EINVAL,
    device: errno.EINVAL,
    unix_socket: errno.EINVAL,
}


def error_of(call: Callable[[Any], object], given: object) -> Exception | None:
    """What a call raises, or None."""
    try:
        call(given)
    except Exception as e:
        return e
    return None


@pytest.fixture
def place(tmp_path: Path) -> Path:
    inside = tmp_path / "inside"
    inside.mkdir()
    return inside


@pytest.mark.parametrize("make", ODD, ids=[make.__name__ for make in ODD])
def test_nonfile_raises_the_same_error_everywhere(make: Callable[[Path], None], place: Path) -> None:
    if make is unreadable and os.geteuid() == 0:
        pytest.skip("root may read everything")
    doors = {name: (door.call, door.ending) for name, door in DOORS.items()}
    doors |= {name: (call, ".cubin") for name, call in MACHINE_CODE.items()}
    for ending in {ending for _, ending in doors.values()}:
        if place.is_dir():
            make(place / f"odd{ending}")
    wrong = []
    for name, (call, ending) in doors.items():
        path = place / f"odd{ending}"
        for given in (path, str(path), os.fspath(path)):
            e = error_of(call, given)
            is_told = f"can't read {path}: " in str(e) and ODD[make] in str(e)
            is_told &= getattr(e, "errno", None) == NUMBERS.get(make, getattr(e, "errno", None))
            is_told &= ("read it yourself" in str(e)) == (make in (fifo, device, unix_socket))
            if not (isinstance(e, FileError) and is_told and e.filename == str(path)):
                wrong.append(f"{name}({given!r}): {e!r}")
    assert wrong == []


def test_missing_file_names_the_searched_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (cujit.compile, cujit.load):
        with raises(FileError, "file", "No such file or directory") as caught:
            call("nothing.cu")
        assert str(tmp_path) in str(caught.value)
        assert isinstance(caught.value, OSError)


@pytest.mark.parametrize("given", [Path("a\0b.cu"), "a\0b.ptx", Path("\ud800.cu"), 3, None, 1.5, b"x.cu"])
def test_invalid_path_raises_cujits_error(given: Any) -> None:
    for name, door in DOORS.items():
        error = error_of(door.call, given)
        assert isinstance(error, CujitError), name
        assert not isinstance(error, FileError), name


class Like:
    """A path that is no pathlib.Path, of str or of bytes."""

    def __init__(self, path: str | bytes) -> None:
        self.path = path

    def __fspath__(self) -> str | bytes:
        return self.path


def test_every_path_form_and_byte_order_marks_are_accepted(place: Path) -> None:
    wrong = []
    for name, door in DOORS.items():
        good = place / f"good{door.ending}"
        good.write_bytes(b"\xef\xbb\xbf" + door.text.encode())
        texts = [door.text, "\ufeff" + door.text] if door.takes_text else []
        for given in (good, str(good), Like(str(good)), Like(bytes(good)), *texts):
            error = error_of(door.call, given)
            wrong += [f"{name}({given!r}): {error!r}"] * (error is not None)
    assert wrong == []
    assert cujit.Artifact.of("\ufeff" + PTX).data == PTX.encode()
    for what in (SCALE, PTX):
        assert cujit.Artifact.of(b"\xef\xbb\xbf" + what.encode()).text == what


def test_in_memory_headers_may_have_a_byte_order_mark() -> None:
    source = cujit.Source.cuda('#include "h.h"\n' + CUDA, headers={"h.h": "\ufeff#define N 4\n"})
    assert cujit.compile(source, cache=False).data


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_names_that_are_not_utf8_work(place: Path) -> None:
    odd = os.fsdecode(os.fsencode(place) + b"/caf\xe9")
    os.mkdir(odd)
    Path(odd, "h.h").write_text("#define VALUE 7\n")
    text = CUDA.replace("1", "VALUE")
    for name, door in DOORS.items():
        content = f'#include "h.h"\n{text}' if door.text is CUDA else door.text
        path = Path(odd, f"good{door.ending}")
        path.write_text(content)
        door.call(path)
        assert name
    for include in ({"include": [odd]}, {"include": odd}, {"include": Path(odd)}):
        for cache in (cujit.Cache(place / "cache"), False):
            assert "7;" in cujit.compile(f"#include <h.h>\n{text}", cache=cache, **include).text
    Path(odd, "wrong.cu").write_text("what")
    with pytest.raises(cujit.errors.CompileError) as caught:
        cujit.compile(Path(odd, "wrong.cu"), cache=False)
    assert str(caught.value).isascii() or "caf" in str(caught.value)
    str(caught.value).encode()


@pytest.mark.parametrize("make", [missing, fifo, device], ids=["missing", "fifo", "device"])
def test_invalid_include_directory_is_refused(make: Callable[[Path], None], place: Path) -> None:
    make(place / "odd")
    with raises(OptionError, "option", "odd"):
        cujit.compile(CUDA, include=[place / "odd"], cache=False)


@pytest.mark.parametrize("name", DOORS)
def test_nul_in_a_text_is_refused_with_its_line(name: str, place: Path) -> None:
    door = DOORS[name]
    if door.ending == ".toml":
        pytest.skip("TOML has no NUL")
    lines = door.text.splitlines(keepends=True)
    text = "".join([*lines[:-1], "\0", lines[-1]])
    file = place / f"nul{door.ending}"
    file.write_text(text)
    for given in (file, *([text] if door.takes_text else [])):
        with raises(FormatError, "format", "NUL") as caught:
            door.call(given)
        assert str(len(lines)) in str(caught.value)


@pytest.mark.parametrize("name", DOORS)
def test_empty_file_is_reported(name: str, place: Path) -> None:
    door = DOORS[name]
    file = place / f"empty{door.ending}"
    file.write_bytes(b"")
    if door.text is CUDA:
        if name == "jit":
            with raises(CompileError, "compile", "names=['kernel<float>']"):
                door.call(file)
        else:
            door.call(file)  # a translation unit may be empty
        return
    with pytest.raises((FormatError, OptionError)):
        door.call(file)
    if door.takes_text and door.ending == ".ptx":
        with raises(FormatError, "format", "empty"):
            door.call("")


def test_utf16_text_is_reported(place: Path) -> None:
    for door in DOORS.values():
        file = place / f"wide{door.ending}"
        file.write_text(door.text, encoding="utf-16")
        with raises(FormatError, "format"):
            door.call(file)


@pytest.mark.parametrize("tail", ["\0", "\0\0", "\n\0// \0\n", "\x0c\n", "// caf\xe9\n", '// """\n', "\r\n"])
def test_module_of_any_ptx_returns_the_image(tail: str, place: Path) -> None:
    image = cujit.Artifact(cujit.ImageKind.PTX, PTX.encode() + tail.encode("latin-1"))
    (place / "embedded.py").write_text(image.to_python(), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("embedded", place / "embedded.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.artifact().data == image.data


def test_relative_home_does_not_turn_the_cache_off(tmp_path: Path) -> None:
    code = "import cujit; print(cujit.default_cache().store.root)"
    clean = {k: v for k, v in os.environ.items() if not k.startswith("CUJIT_CACHE") and k != "XDG_CACHE_HOME"}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**clean, "HOME": "here"}, cwd=tmp_path, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    root = Path(done.stdout.strip())
    assert root.is_absolute()
    assert tmp_path not in root.parents


COMMANDS = {
    "build": (".cu", []),
    "run": (".cu", ["--device", "cpu", "-k", "k", "--over", "1"]),
    "inspect": (".ptx", []),
    "budget": (".cubin", ["--registers", "64"]),
    "compat": (".ptx", []),
    "embed": (".ptx", ["-o", "x.py"]),
    "occupancy": (".cubin", ["--on", "sm_90", "--block", "64"]),
    "link": (".ptx", ["-o", "x.ptx"]),
}


def test_command_line_reports_the_same_without_waiting(place: Path) -> None:
    from click.testing import CliRunner

    from cujit.cli.app import main

    for verb, (ending, more) in COMMANDS.items():
        path = place / f"odd-{verb}{ending}"
        os.mkfifo(path)
        arguments = [verb, str(path), *more]
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 1, (verb, result.output)
        assert f"can't read {path}: it is a FIFO" in " ".join(result.output.split()), (verb, result.output)


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="a file of Linux that opens and is not read")
def test_unreadable_open_file_raises_cujits_error() -> None:
    with raises(FileError, "file", "/proc/self/mem", "Input/output error") as refused:
        cujit.Artifact.open("/proc/self/mem")
    assert (refused.value.filename, refused.value.errno) == ("/proc/self/mem", errno.EIO)
