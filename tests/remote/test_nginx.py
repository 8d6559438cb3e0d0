"""Over a web server that many sites have: Debian's nginx, where it is installed (`make store`)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cache.samples import artifact_of, key_of
from cujit.cache.cache import Cache
from cujit.cache.provenance import Outcome
from cujit.errors import CacheWarning, RemoteError
from cujit.remote import push
from raising import raises
from remote.serving import Farm
from waiting import eventually

pytestmark = pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not there")

EXAMPLE = Path(__file__).parents[2] / "examples/shared-cache/nginx.conf"
AROUND = """\
{2} daemon off; pid {0}/pid; error_log {0}/error.log; worker_processes 1;
events {{ worker_connections 64; }}
http {{
access_log off; gzip on; gzip_types *; client_body_temp_path {0}/body;
proxy_temp_path {0}/p; fastcgi_temp_path {0}/f; uwsgi_temp_path {0}/u; scgi_temp_path {0}/s;
{1}
}}
"""


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of files, where the user ``farm`` alone may write; gives host and port."""
    directory = tmp_path_factory.mktemp("nginx")
    (directory / "kernels").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (directory / "kernels.users").write_text("farm:{PLAIN}secret\n")
    user = "user root;" if os.geteuid() == 0 else ""  # else its workers are nobody, who reaches no private directory
    site = EXAMPLE.read_text().replace("listen 80", f"listen 127.0.0.1:{port}").replace("/srv", str(directory))
    (directory / "conf").write_text(AROUND.format(directory, site, user))
    with subprocess.Popen([shutil.which("nginx") or "", "-c", directory / "conf", "-p", directory]) as server:
        eventually(lambda: _listens(port))
        yield f"127.0.0.1:{port}"
        server.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.usefixtures("impatient")
def test_one_client_fills_the_store_and_all_read_it(nginx: str, farm: Farm, tmp_path: Path) -> None:
    ahead = Cache(tmp_path / "ahead")
    for n in range(20):
        ahead.keep(key_of(n), artifact_of(n, 20_000))
    with raises(RemoteError, "remote", "401"):
        push(f"http://{nginx}/k", ahead.stores, farm.signer)
    assert push(f"http://farm:secret@{nginx}/k", ahead.stores, farm.signer).new == 20
    here = Cache(tmp_path / "here", remote=f"http://{nginx}/k", trust=farm.trust, remote_wait_s=10)
    for n in range(20):
        artifact, provenance = here.get_or_make(key_of(n), lambda: pytest.fail("it was made"))
        assert artifact.data == artifact_of(n, 20_000).data
        assert provenance.outcome is Outcome.REMOTE
    assert here.get_or_make(key_of(99), lambda: artifact_of(99))[1].outcome is Outcome.MADE
    assert here.counters.remote_failures == 0


def test_location_without_a_store_is_reported(nginx: str, farm: Farm, tmp_path: Path) -> None:
    here = Cache(tmp_path / "here", remote=f"http://{nginx}/elsewhere", trust=farm.trust, remote_wait_s=10)
    with pytest.warns(CacheWarning, match="no FORMAT"):
        assert here.get_or_make(key_of(0), lambda: artifact_of(0))[1].outcome is Outcome.MADE
