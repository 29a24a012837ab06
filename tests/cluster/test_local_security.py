"""Workers of `--workers` obey the process that started them, and nobody else.

A port of 127.0.0.1 is open to every user of a machine, and whoever can talk to a Dask
scheduler can run code in it: the certificate of the run is all that keeps others out.
"""

from __future__ import annotations

from pathlib import Path

from tests.cluster.night import night
from tests.command_line import check_refused, forked, python

STRANGER = """
import asyncio, os, sys
from contextlib import suppress
from distributed import Client
from distributed.security import Security

own = Security.temporary()  # a certificate, but another
if hasattr(os, "setuid"):
    with suppress(PermissionError):
        os.setuid(65534)  # another user, where this one may become one

async def owner(address, security):
    how = dict(timeout=3, security=security, asynchronous=True)
    try:
        async with Client(address, **how) as client:
            return await client.run_on_scheduler(os.getuid)
    except (OSError, TypeError):  # Dask's own for no certificate is the second
        return "refused"

async def attack():
    for address in sys.argv[1:]:
        port = address.rpartition(":")[2]
        for scheme, security in ("tcp", None), ("tls", None), ("tls", own):
            print(await owner(f"{scheme}://127.0.0.1:{port}", security))

asyncio.run(attack())
"""
CLUSTER = """
import os, subprocess, sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen
import psutil
from rlxweb.dask.connect import local

PAGES = "", "status", "metrics", "info/main/workers.html", "json/identity.json"

def listened(process):
    found = [c.laddr for c in process.net_connections() if c.status == "LISTEN"]
    assert {at.ip for at in found} <= {"127.0.0.1"}, found
    return {at.port for at in found}

def status(port, page):
    try:
        return urlopen(f"http://127.0.0.1:{port}/{page}", timeout=20).status
    except HTTPError as error:
        return error.code
    except OSError:
        return 0  # it does not understand HTTP without TLS

with local(1) as client:
    client.wait_for_workers(1, timeout=60)
    own = psutil.Process()
    assert client.run_on_scheduler(os.getpid) == own.pid  # the certificate opens it
    (worker,) = client.scheduler_info()["workers"]
    both = client.scheduler.address, worker
    stranger = [sys.executable, "-c", sys.argv[1], *both]
    print(subprocess.check_output(stranger, text=True))
    family = [own, *own.children(recursive=True)]
    ports = set().union(*map(listened, family))
    statuses = {port: {status(port, page) for page in PAGES} for port in ports}
    assert all(found in ({0}, {404}) for found in statuses.values()), statuses
    talking = [port for port, found in statuses.items() if found == {0}]
    assert len(talking) >= 3, statuses  # scheduler, nanny, worker
    assert {int(a.rpartition(":")[2]) for a in both} <= set(talking), (both, statuses)
    for process in family:
        shown = [*process.cmdline(), *process.environ().values()]
        assert not [text for text in shown if "PRIVATE" " KEY" in text]
    (folder,) = Path(os.environ["TMPDIR"]).iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    inside = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in inside if b"PRIVATE" b" KEY" in path.read_bytes()]
"""


def test_nobody_without_the_certificate_gets_in(tmp_path: Path) -> None:
    """Strangers are refused by TCP and TLS, even with a certificate of their own."""
    said = python("-c", CLUSTER, STRANGER, TMPDIR=str(tmp_path))
    assert said.out.split() == ["refused"] * 6, said
    assert said.code == 0, said.err
    assert list(tmp_path.iterdir()) == []


def test_without_cryptography_no_worker_is_started(tmp_path: Path) -> None:
    """No cluster is started without certificates; the error names the extra."""
    (file,) = night(tmp_path, 1)
    code = (
        "import sys\n"
        "sys.modules['cryptography'] = None\n"
        "from rlxweb.cli.main import main\n"
        f"main(['welch', {file!r}, '--workers', '2'])\n"
    )
    said = forked("-c", code)
    missing = "cryptography is not installed"
    check_refused(said, 2, missing, 'pip install "rlxweb[dask]"')


def test_tls_settings_that_are_wrong_are_told(tmp_path: Path) -> None:
    (file,) = night(tmp_path, 1)
    code = (
        "from rlxweb.cli.main import main\n"
        f"main(['welch', {file!r}, '--workers', '2'])\n"
    )
    said = forked("-c", code, DASK_DISTRIBUTED__COMM__TLS__MIN_VERSION="0.9")
    check_refused(said, 3, "start 1 workers", "Dask's TLS settings", "0.9")
