"""How an explorer begins, what it refuses to begin with, the file that it edits, and what is vendored."""

from __future__ import annotations

import inspect
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from logging.handlers import MemoryHandler
from pathlib import Path

import pytest
from click.testing import CliRunner

import cujit.explore
from cujit.cli.app import main
from cujit.errors import CujitError, FileError, FormatError, LaunchError, MissingError, OptionError
from cujit.explore import Scene, serving
from cujit.explore.editor import EditedFile
from cujit.explore.scene import fault_of
from cujit.explore.workers import WorkerPool
from explore.conftest import CODE, LAUNCHED, Asking, Serve
from raising import raises
from waiting import eventually

ROOT = Path(__file__).parents[2]
VENDORED = ROOT / "src/cujit/explore/assets/vendored"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "shared.cu"
    made.write_text(CODE)
    return made


# -- beginning --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("absent.cu", None, ("file", "absent.cu")),
        ("image.cubin", b"\x7fELF", ("format", "image.cubin")),
        ("latin.cu", b"// \xe4\n", ("format", "UTF-8")),
        ("zero.cu", b"//\0\n", ("format", "NUL")),
        ("long.cu", b"//" + b"x" * (1 << 20), ("format", "1,048,576")),
    ],
)
def test_invalid_source_is_refused(tmp_path: Path, name: str, data: bytes | None, words: tuple[str, ...]) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with raises((FileError, FormatError), *words):
        cujit.explore.start(tmp_path / name)
    result = CliRunner().invoke(main, ["explore", str(tmp_path / name)])
    assert result.exit_code == (2 if data is None else 1)


def test_source_is_limited_to_a_mebi_of_characters() -> None:
    assert [fault_of("x" * (1 << 20)), fault_of("x" * (1 << 20) + "y"), fault_of("\ud800"), fault_of("x\0")] == [
        "", "has more than 1,048,576 characters", "is not UTF-8", "holds a NUL byte"
    ]  # fmt: skip


def test_directory_and_fifo_are_refused(tmp_path: Path) -> None:
    (tmp_path / "directory.cu").mkdir()
    os.mkfifo(tmp_path / "fifo.cu")
    for name in ("directory.cu", "fifo.cu"):
        with raises(FileError, "file"):
            cujit.explore.start(tmp_path / name)


def test_port_in_use_is_named(path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with raises(OptionError, "option", port, "127.0.0.1", "Address already in use"):
            cujit.explore.start(path, port=port)
        result = CliRunner().invoke(main, ["explore", str(path), "--port", str(port)])
    assert (result.exit_code, "Traceback" in result.output) == (1, False)


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"port": 70000}, OptionError),
        ({"port": -1}, OptionError),
        ({"timeout_s": 0}, LaunchError),
        ({"memory_mib": 0}, OptionError),
        ({"scene": Scene("", arch="sm_1")}, CujitError),
        ({"scene": Scene("", on="Voodoo 2")}, CujitError),
        ({"scene": Scene("", options="nosuch")}, OptionError),
        ({"scene": Scene("", check="everything")}, OptionError),
    ],
)
def test_invalid_arguments_are_refused_before_serving(
    path: Path, more: dict[str, object], error: type[CujitError]
) -> None:
    with pytest.raises(error):
        cujit.explore.start(path, **more)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # SystemExit, by which it ends
def test_server_that_does_not_start_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerPool, "begin", None)
    with raises(CujitError, "failure", "server"):
        cujit.explore.start(path)


def test_serve_accepts_the_arguments_of_start() -> None:
    started, served = (dict(inspect.signature(door).parameters) for door in (cujit.explore.start, cujit.explore.serve))
    assert {name: served.get(name) for name in started} == started


def test_missing_libraries_are_reported_with_an_install_command(path: Path) -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "import cujit.explore\n"
        f"try: cujit.explore.start({str(path)!r})\n"
        "except cujit.errors.MissingError as e: print(e)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "the explorer requires uvicorn, which is not installed" in said
    assert "pip install 'cujit[explore]'" in said
    assert issubclass(MissingError, CujitError)


def test_command_serves_until_interrupted(path: Path) -> None:
    command = [sys.executable, "-m", "cujit", "explore", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stderr
        url = process.stdout.readline().strip()
        with urllib.request.urlopen(url) as answer:
            assert "transpose" in answer.read().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert (
            process.stderr.read() == "press Ctrl-C to stop; anyone with this address can compile and run code as you\n"
        )


def test_browser_gets_no_token_on_its_command_line(path: Path, tmp_path: Path) -> None:
    browser, words = tmp_path / "browser", tmp_path / "words"
    browser.write_text(f'#!/bin/sh\necho "$@" > {words}.part && mv {words}.part {words}\n')
    browser.chmod(0o755)
    command = [sys.executable, "-m", "cujit", "explore", str(path), "--open"]
    environment = {**os.environ, "BROWSER": str(browser)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout
        token = process.stdout.readline().strip().partition("token=")[2]
        assert eventually(words.exists)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    given = words.read_text().strip()
    assert given.startswith("file://")
    assert token not in given
    assert not Path(given.removeprefix("file://")).exists()


def test_usual_port_is_taken_where_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        usual = probe.getsockname()[1]
    monkeypatch.setattr(serving, "_USUAL_PORT", usual)
    with serving._socket(0) as first, serving._socket(0) as second:
        assert first.getsockname() == ("127.0.0.1", usual)
        assert second.getsockname()[1] not in (0, usual)


def test_scene_that_is_shown_beside_is_not_what_a_reload_shows(asking: Asking) -> None:
    asking.look(arch="sm_90")
    assert asking.look(arch="sm_80", aside=True)["record"]["explorer"]["is_counted"]
    text = asking.ask("GET", f"/?token={asking.token}").text
    shown = json.loads(text.partition('id="record">')[2].partition("</script>")[0])
    assert shown["explorer"]["scene"]["arch"] == "sm_90"
    assert any("sm_90" in listing["name"] for listing in shown["listings"])
    assert asking.own("/look", {"source": "", "aside": 1}).status == 400


def test_json_is_the_first_scene_of_the_page(path: Path) -> None:
    words = ["--grid", "2x2", "--block", "32x32", "--arg", "ones:f32:4096", "--arg", "zeros:f32:4096", "--arg", "64"]
    more = ["--on", "H200", "-D", "N=4", "--check", "memory"]
    result = CliRunner().invoke(main, ["explore", str(path), *words, *more, "--json"], catch_exceptions=False)
    record = json.loads(result.stdout)
    assert record["explorer"]["is_counted"]
    assert record["kernels"][0]["profile"]["totals"]["bank_conflicts"] == 3968


def test_page_offers_the_gpus_that_run_its_architectures(asking: Asking) -> None:
    text = asking.ask("GET", f"/?token={asking.token}").text
    offered = json.loads(text.partition('id="record">')[2].partition("</script>")[0])["explorer"]
    assert dict(offered["gpus"])["H200"] == "sm_90"
    assert {arch for _, arch in offered["gpus"]} <= set(offered["arches"])


# -- the file -----------------------------------------------------------------------------------------------------


def test_no_log_contains_the_token(asking: Asking) -> None:
    """As ``uvicorn.Config(app)`` does, which sets up the logs of all servers of a process."""
    kept = MemoryHandler(1000)
    logger = logging.getLogger("uvicorn.access")
    level = logger.level
    logger.addHandler(kept)
    logger.setLevel(logging.INFO)
    try:
        assert asking.ask("GET", f"/?token={asking.token}").status == 200
    finally:
        logger.setLevel(level)
        logger.removeHandler(kept)
    assert not [record.getMessage() for record in kept.buffer if asking.token in record.getMessage()]


def test_line_ends_and_the_mark_of_a_file_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "dos.cu"
    path.write_bytes(b"\xef\xbb\xbfint a;\r\nint b;\r\n")
    file = EditedFile(path)
    assert file.text == "int a;\nint b;\n"
    file.save("int a;\nint c;\n", file.digest, is_forced=False)
    assert path.read_bytes() == b"\xef\xbb\xbfint a;\r\nint c;\r\n"


def test_nothing_outside_the_file_is_written(path: Path, tmp_path: Path) -> None:
    file, other = EditedFile(path), tmp_path / "other"
    other.write_text("of somebody else")
    path.unlink()
    path.symlink_to(other)
    with raises(FileError, "file", "Too many levels of symbolic links"):
        file.save("mine", file.digest, is_forced=True)
    assert other.read_text() == "of somebody else"


def test_symbolic_link_is_edited_at_its_target(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link.cu").symlink_to(path)
    file = EditedFile(tmp_path / "link.cu")
    file.save("int a;\n", file.digest, is_forced=False)
    assert path.read_text() == "int a;\n"
    assert (tmp_path / "link.cu").is_symlink()


def test_file_changed_by_others_is_not_replaced_unasked(serve: Serve) -> None:
    asking = serve()
    path = asking.path
    digest = EditedFile(path).digest
    path.write_text("// other\n")
    assert asking.own("/save", {"source": "// mine\n", "digest": digest}).status == 409
    assert path.read_text() == "// other\n"
    answer = asking.own("/save", {"source": "// mine\n", "digest": digest, "force": True})
    assert (answer.status, path.read_text()) == (200, "// mine\n")
    assert asking.own("/save", {"source": "// more\n", "digest": answer.json["digest"]}).status == 200
    wrongs: list[object] = [{"source": 1, "digest": ""}, {"source": ""}, {"source": "\0", "digest": ""}, []]
    for wrong in wrongs:
        assert asking.own("/save", wrong).status == 400
    assert path.read_text() == "// more\n"


def test_write_failure_is_reported(alone: Serve) -> None:
    asking = alone()
    path = asking.path
    path.unlink()
    path.mkdir()
    answer = asking.own("/save", {"source": "", "digest": "", "force": True})
    assert (answer.status, "can't be written" in answer.json["message"]) == (400, True)


def test_exported_page_contains_no_explorer_code(asking: Asking) -> None:
    assert asking.look()["record"]["explorer"]["is_counted"]
    text = asking.own("/report", {}).text
    assert "bank_conflicts" in text
    assert "CodeMirror" not in text
    assert LAUNCHED.arguments not in text


# -- what is vendored ---------------------------------------------------------------------------------------------


def test_editor_has_pinned_versions_and_licenses() -> None:
    head = (VENDORED / "editor.js").read_text().partition("*/")[0]
    lock = json.loads((ROOT / "tools/editor/package-lock.json").read_text())
    pinned = {name.removeprefix("node_modules/"): one["version"] for name, one in lock["packages"].items() if name}
    bundled = [said.rsplit(" ", 1) for said in head.removeprefix("/* ").partition(";")[0].split(", ")]
    assert len(bundled) > 12
    licenses = (VENDORED / "LICENSES.txt").read_text()
    for name, version in bundled:
        assert pinned[name] == version
        assert f"{name} {version}\n===" in licenses
    assert licenses.count("Permission is hereby granted, free of charge") == len(bundled)
    assert "resolved" not in json.dumps(lock)


def test_editor_code_requests_nothing_and_ends_no_script() -> None:
    text = (VENDORED / "editor.js").read_text()
    assert "</script" not in text.lower()
    assert "<!--" not in text
    for word in ("fetch(", "XMLHttpRequest", "WebSocket", "eval(", "new Function", "importScripts"):
        assert word not in text
