"""What a forked child finds of what other threads were at."""

from __future__ import annotations

import ast
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cujit
from cujit.forks import Lock, cached_property, once, single_flight_cache
from cujit.toolchain.process_state import process_state
from processes import printed

_SOURCES = Path(cujit.__file__).parent


def _ends_well(child: int, within_s: float) -> bool:
    """Wait for a child; end it where it takes too long."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def test_property_computed_in_a_thread_does_not_block_a_child() -> None:
    begun, go = threading.Event(), threading.Event()

    class Made:
        def __init__(self, *, waits: bool) -> None:
            self._waits = waits

        @cached_property
        def value(self) -> int:
            if self._waits:
                begun.set()
                go.wait()
            return 7

    slow = Made(waits=True)
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    begun.wait()
    child = os.fork()
    if not child:
        os._exit(Made(waits=False).value - 7)
    try:
        assert _ends_well(child, 20)
    finally:
        go.set()
        thread.join()
    assert slow.value == slow.value == 7


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of Python 3.12, of every fork beside threads
@pytest.mark.parametrize("is_mine", [True, False], ids=["of the thread that forks", "of another"])
def test_lock_is_free_in_a_child_unless_held_there(is_mine: bool) -> None:
    lock, held, go = Lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            go.wait()

    def take() -> None:
        with lock:
            pass

    thread = threading.Thread(target=take if is_mine else hold)
    if is_mine:
        lock.__enter__()
        held.set()
    thread.start()
    held.wait()
    child = os.fork()
    if not child:
        signal.alarm(20)
        with lock:
            other = threading.Thread(target=take, daemon=True)
            other.start()
            other.join(0.2)
            is_shut = other.is_alive()
        other.join(0.2)
        os._exit(0 if is_shut and other.is_alive() == is_mine else 1)
    try:
        assert _ends_well(child, 20)
    finally:
        go.set()
        if is_mine:
            lock.__exit__()
        thread.join()


def test_no_property_uses_the_lock_of_functools() -> None:
    users = [file for file in _SOURCES.rglob("*.py") if "functools.cached_property" in file.read_text()]
    assert [file.name for file in users] == ["forks.py"]
    assert not [file for file in _SOURCES.rglob("*.py") if "from functools import cached_property" in file.read_text()
                and file.name != "forks.py"]  # fmt: skip


def test_forks_are_heard_of_in_one_file() -> None:
    users = [file.name for file in _SOURCES.rglob("*.py") if "register_at_fork" in file.read_text()]
    assert users == ["forks.py"], "cujit.forks.register_reset, on_fork_child and fork_lock"


def test_fork_waits_for_a_lock_and_leaves_it_free_on_both_sides() -> None:
    code = """
import os, threading, time
from cujit.forks import fork_lock
lock, held = threading.Lock(), threading.Event()
fork_lock(lock.acquire, lock.release)
def hold():
    with lock:
        held.set()
        time.sleep(0.1)
        done.append(1)
done = []
threading.Thread(target=hold).start()
held.wait()
if (child := os.fork()) == 0:
    os._exit(0 if done and lock.acquire(timeout=10) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), lock.acquire(timeout=10))
"""
    assert printed(code) == "0 True\n"


@pytest.mark.parametrize("name", ["cujit.slow", "somebody"], ids=["which it waits for", "which it does not wait for"])
@pytest.mark.parametrize("stage", ["find_spec", "exec_module"])
def test_child_imports_what_other_threads_were_importing(stage: str, name: str) -> None:
    printed(
        f"""
        import importlib.machinery, importlib.util, os, sys, threading, time
        import cujit.forks
        begun = threading.Event()
        class Slow:
            def find_spec(self, name, path=None, target=None):
                if name != {name!r}:
                    return None
                self.wait("find_spec")
                return importlib.machinery.ModuleSpec(name, self)
            def create_module(self, spec):
                return None
            def exec_module(self, module):
                self.wait("exec_module")
                module.value = 1
            def wait(self, stage):
                if stage == {stage!r} and not begun.is_set():
                    begun.set()
                    time.sleep(0.5)
        sys.meta_path.insert(0, Slow())
        importing = threading.Thread(target=importlib.import_module, args=({name!r},))
        importing.start()
        begun.wait()
        pid = os.fork()
        if pid == 0:
            os._exit(importlib.import_module({name!r}).value - 1)
        end = time.monotonic() + 20
        while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0):
            if time.monotonic() > end:
                os.kill(pid, 9)
                sys.exit("the child does not end")
            time.sleep(0.01)
        assert ended[1] == 0
        """
    )


def test_locks_are_free_in_a_child_before_dependent_resets() -> None:
    code = """
import os, signal, threading
from cujit.forks import Lock, register_reset
lock, held, go = Lock(), threading.Event(), threading.Event()
class Item:
    def after_fork(self):
        signal.alarm(5)
        with lock:
            done.append(1)
done, items = [], [Item() for _ in range(8)]
for item in items:
    register_reset(item)
def hold():
    with lock:
        held.set()
        go.wait()
threading.Thread(target=hold).start()
held.wait()
if (child := os.fork()) == 0:
    os._exit(len(done))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
go.set()
"""
    assert printed(code) == "8\n"


def test_child_callbacks_run_after_resets() -> None:
    code = """
import os
from cujit.forks import register_reset, on_fork_child
class Item:
    def after_fork(self):
        print("anew", flush=True)
item = Item()
on_fork_child(lambda: print("called", flush=True))
register_reset(item)
if os.fork() == 0:
    os._exit(0)
os.wait()
"""
    assert printed(code).split() == ["anew", "called"]


@pytest.mark.parametrize(
    "function",
    [
        "toolchain.nvrtc._library",
        "toolchain.nvvm._library",
        "toolchain.nvjitlink._library",
        "toolchain.nvfatbin._library",
        "toolchain.process_state.process_state",
        "devices.process.process_devices",
        "registry.registry.default_registry",
    ],
)
def test_concurrent_first_threads_share_stateful_objects(function: str) -> None:
    """Two ledgers of NVRTC would each say of half of the programs that they are none."""
    module, _, name = function.rpartition(".")
    code = f"""
import sys, threading
from cujit.{module} import {name} as given
sys.setswitchinterval(1e-6)
found, together = [], threading.Barrier(4)
def ask():
    together.wait()
    found.append(given())
threads = [threading.Thread(target=ask) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(found), len(set(map(id, found))))
"""
    assert printed(code).split() == ["4", "1"]


def test_concurrent_first_calls_get_one_value_per_argument() -> None:
    made: list[str] = []
    together = threading.Barrier(8)

    @single_flight_cache(2)
    def given(name: str) -> object:
        made.append(name)
        time.sleep(0.05)
        return object()

    def ask(name: str) -> object:
        together.wait()
        return given(name)

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(ask, "abababab"))
    assert (sorted(made), len(set(found[::2])), len(set(found[1::2]))) == (["a", "b"], 1, 1)
    assert given("a") is found[0]
    given("c")
    given("d")
    assert given("a") is not found[0]  # two are kept


def test_recursive_call_and_its_caller_get_the_same_value() -> None:
    """As a handler of a signal may."""
    inner: list[object] = []

    @single_flight_cache()
    def given() -> object:
        if not inner:
            inner.append(None)
            inner[0] = given()
        return object()

    assert given() is inner[0]
    assert given() is inner[0]


def test_cached_object_is_created_once() -> None:
    """What a cache of functools keeps, two threads make twice: two equal values do no harm, two recordings do."""
    classes: dict[str, ast.ClassDef] = {}
    functions: list[tuple[str, ast.FunctionDef]] = []
    for file in _SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                classes[node.name] = node
            elif isinstance(node, ast.FunctionDef) and any(map(_keeps, node.decorator_list)):
                functions.append((f"{file.relative_to(_SOURCES)} {node.name}", node))
    assert len(functions) > 40
    found = [where for where, function in functions if _may_not_be_two(function.returns, classes)]
    assert found == [], "cujit.forks.once and single_flight_cache"


def _keeps(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).startswith(("functools.cache", "functools.lru_cache"))


def _may_not_be_two(given: ast.expr | None, classes: Mapping[str, ast.ClassDef]) -> bool:
    """Whether a function is called for what it does, or gives something of ours that is no value."""
    names = [node.id for node in ast.walk(given) if isinstance(node, ast.Name)] if given else []
    return not names or any(_is_no_value(classes.get(name)) for name in names)


def _is_no_value(kind: ast.ClassDef | None) -> bool:
    """Whether a class is ours, and neither a value nor an enumeration."""
    if kind is None or {ast.unparse(base) for base in kind.bases} & {"NamedTuple", "Protocol", "Enum", "IntEnum"}:
        return False
    return not any(ast.unparse(each).startswith(("value", "dataclass")) for each in kind.decorator_list)


def test_failed_creation_is_retried_on_the_next_call() -> None:
    answers: Iterator[OSError | int] = iter([OSError("not now"), 7])

    @once
    def given() -> int:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    with pytest.raises(OSError, match="not now"):
        given()
    assert (given(), given()) == (7, 7)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of Python 3.12, of every fork beside threads
def test_child_has_the_stack_limit_from_before_all_compiles() -> None:
    before = resource.getrlimit(resource.RLIMIT_STACK)
    with process_state(), process_state():  # as two compiles that are under way
        other = before[0] // 2 if before[0] > 0 else 1 << 23
        resource.setrlimit(resource.RLIMIT_STACK, (other, before[1]))  # as NVRTC does, to another limit
        with process_state()._lock:  # as another thread that is about to compile holds it
            child = os.fork()
            if not child:
                os._exit(resource.getrlimit(resource.RLIMIT_STACK) != before)
        assert _ends_well(child, 20)
        assert resource.getrlimit(resource.RLIMIT_STACK) == (other, before[1])
    assert resource.getrlimit(resource.RLIMIT_STACK) == before


def test_child_forked_during_a_compile_compiles_separately() -> None:
    """In the child NVRTC's own locks may be held for ever."""
    code = """
import os, resource, signal, threading, time
import cujit
from cujit.compiler.isolation import parent
from cujit.toolchain import calls

def text(n): return "".join(f"__global__ void k{i}(float *p) {{ p[{i}] *= {n}; }}" for i in range(n))
before = resource.getrlimit(resource.RLIMIT_STACK)
cujit.compile(text(1), arch="sm_90", cache=False)
thread = threading.Thread(target=lambda: cujit.compile(text(800), arch="sm_90", cache=False))
thread.start()
while not calls._callers.threads:
    time.sleep(0.001)
child = os.fork()
if not child:
    signal.alarm(60)
    limit = resource.getrlimit(resource.RLIMIT_STACK)
    made = cujit.compile(text(2), arch="sm_90", cache=False)
    print(len(made.names), len(parent._living), limit == before, flush=True)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
cujit.compile(text(3), arch="sm_90", cache=False)
print(len(parent._living), calls.may_be_locked())
"""
    assert printed(code).split() == ["2", "1", "True", "0", "0", "False"]
