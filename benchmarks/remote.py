"""A shared cache: CPU of a hit by file, HTTP and S3, and how long a process waits for a store that is of no use.

Each figure is of processes of their own, in turns; the servers are apart. A hit is all of it: the question, the proof,
the entry in the root. A delay is what 20 kernels take with the store less what they take without, by the clock, for
waiting is what it is about; on a machine that does other things too it is an upper bound.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
sys.path[0] = str(HERE.parent / "tests")  # and not this directory, whose cache.py is another

from cache.samples import artifact_of, key_of  # noqa: E402
from cujit.cache.record import encode  # noqa: E402
from cujit.cache.remote.tier import FORMAT, FORMAT_NAME, object_name  # noqa: E402
from cujit.remote import RemoteStore, Signer  # noqa: E402
from remote.serving import Handler, Server, farm_in  # noqa: E402

CHILD = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
from pathlib import Path
sys.path[:0] = [{tests!r}]
from cache.samples import artifact_of, key_of
import cujit
from cujit.cache.cache import Cache
root, url, trust, kernels, size, wait_s = sys.argv[1:]
made = [artifact_of(n, int(size)) for n in range(int(kernels))]
keys = [key_of(n) for n in range(int(kernels))]
cache = Cache(Path(root), remote=url or None, trust=Path(trust), remote_wait_s=float(wait_s))
cpu, wall = [], []
for key, artifact in zip(keys, made):
    c, w = time.process_time(), time.perf_counter()
    cache.get_or_make(key, lambda: artifact)
    cpu.append(time.process_time() - c); wall.append(time.perf_counter() - w)
counted = cache.counters
print(json.dumps([cpu, wall, counted.remote_hits, counted.remote_failures + counted.remote_refused]))
"""


def child(url: str, trust: Path, kernels: int, size: int, wait_s: float) -> tuple[list[float], list[float], int, int]:
    with tempfile.TemporaryDirectory() as root:
        code = CHILD.format(tests=str(HERE.parent / "tests"))
        arguments = [root + "/root", url, str(trust), str(kernels), str(size), str(wait_s)]
        # Modules are compiled once, as where they are installed.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = str(trust.parent / "pyc")
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, check=True
        )
    cpu, wall, hits, faults = json.loads(done.stdout)
    return cpu, wall, hits, faults


def serve() -> None:
    """Be a server: print its URL, serve what is in the directory of files given, until standard input ends."""
    with Server() as server:
        table = json.loads(Path(sys.argv[2]).read_text())
        server.files = {name: bytes.fromhex(data) for name, data in table.items()}
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.url, flush=True)
        sys.stdin.read()


def hits(directory: Path, kernels: int, size: int, rounds: int) -> None:
    farm = farm_in(directory)
    stores = {"file": f"file://{directory}/store"}
    writer = RemoteStore(stores["file"], farm.signer)
    for n in range(kernels):
        writer.put(encode(key_of(n), artifact_of(n, size), make_ms=50.0, made_s=1))
    names = [FORMAT_NAME, *(object_name(key_of(n).digest) for n in range(kernels))]
    table = directory / "table.json"
    table.write_text(json.dumps({name: (directory / "store" / name).read_bytes().hex() for name in names}))
    with subprocess.Popen(
        [sys.executable, __file__, "serve", table], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        stores["http"] = server.stdout.readline().strip()
        stores["s3"] = object_storage(farm.signer, kernels, size)
        found: dict[str, list[list[float]]] = {name: [] for name in stores}
        for _ in range(rounds):
            for name, url in stores.items():
                cpu, _, hit, _ = child(url, farm.trust, kernels, size, 10)
                assert hit == kernels, (name, hit)
                found[name].append([cpu[0] * 1e3, median(cpu[1:]) * 1e3])
        assert server.stdin is not None
        server.stdin.close()
    for name, rows in found.items():
        first, each = (median(column) for column in zip(*rows, strict=True))
        print(f"a hit of {size} bytes by {name}: {each:.2f} ms CPU; a process's first {first:.0f} ms, with imports")


def object_storage(signer: Signer, kernels: int, size: int) -> str:
    """Start moto in this process, whose CPU is not counted, and fill a bucket."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    os.environ.update(AWS_ENDPOINT_URL=f"http://{host}:{port}", AWS_REGION="us-east-1")
    os.environ.update(AWS_ACCESS_KEY_ID="k", AWS_SECRET_ACCESS_KEY="s")
    boto3.client("s3").create_bucket(Bucket="kernels")
    writer = RemoteStore("s3://kernels/x", signer)
    for n in range(kernels):
        writer.put(encode(key_of(n), artifact_of(n, size), make_ms=50.0, made_s=1))
    return "s3://kernels/x"


def delays(directory: Path, rounds: int) -> None:
    farm = farm_in(directory, "slow")

    def never(handler: Handler, _: bytes) -> None:
        handler.server.closing.wait(60)

    def forged(handler: Handler, _: bytes) -> None:
        handler.answer(200, os.urandom(20_000))

    def trickling(handler: Handler, _: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "20000")
        handler.end_headers()
        while not handler.server.closing.wait(0.01):
            handler.wfile.write(b"x")

    with Server() as slow, Server() as trickle, Server() as lying, socket.socket() as refused, socket.socket() as hole:
        refused.bind(("127.0.0.1", 0))
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        stores = {"without": "", "nobody there": f"http://127.0.0.1:{refused.getsockname()[1]}/x"}
        stores["takes no connection"] = f"http://127.0.0.1:{hole.getsockname()[1]}/x"
        ways = (("never answers", slow, never), ("trickles", trickle, trickling), ("lies", lying, forged))
        for name, server, trouble in ways:
            server.files, server.trouble = {FORMAT_NAME: FORMAT}, {"*": trouble}
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stores[name] = server.url
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in stores}
        for _ in range(rounds):
            for name, url in stores.items():
                cpu, wall, _, faults = child(url, farm.trust, 20, 1000, 0.15)
                found[name].append((sum(wall), sum(cpu)))
                assert (faults > 0) == (name != "without"), name
        for server in (slow, trickle, lying):
            server.closing.set()
            server.shutdown()
    floor = [median(column) for column in zip(*found.pop("without"), strict=True)]
    for name, rows in found.items():
        wall, cpu = (median(column) - less for column, less in zip(zip(*rows, strict=True), floor, strict=True))
        print(f"20 kernels, {name}: delayed by {wall * 1e3:.0f} ms in all, of them {cpu * 1e3:.0f} ms CPU")


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        serve()
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--bytes", type=int, default=20_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        hits(Path(directory), asked.kernels, asked.bytes, asked.rounds)
        delays(Path(directory), asked.rounds)


if __name__ == "__main__":
    main()
