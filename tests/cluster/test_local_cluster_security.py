"""Check that workers of `--workers` obey only the process that started them.

A port of 127.0.0.1 is open to every user of a machine, and whoever can talk to a Dask
scheduler can run code in it: the certificate of the run is all that keeps others out.
"""

from __future__ import annotations

from pathlib import Path

from tests.cli_runners import check_rejected, run_forked, run_python
from tests.cluster.edf_recordings import write_edf_recordings

ATTACKER_CODE = """
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
CLUSTER_CODE = """
import os, subprocess, sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen
import psutil
from rlxweb.batch.cluster.cluster_clients import local

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


def test_clients_without_the_certificate_are_refused(tmp_path: Path) -> None:
    """Other clients are refused by TCP and TLS, even with a certificate of their
    own.
    """
    run_result = run_python("-c", CLUSTER_CODE, ATTACKER_CODE, TMPDIR=str(tmp_path))
    assert run_result.out.split() == ["refused"] * 6, run_result
    assert run_result.code == 0, run_result.err
    assert list(tmp_path.iterdir()) == []


def test_no_worker_starts_without_cryptography(tmp_path: Path) -> None:
    """No cluster is started without certificates; the error names the extra."""
    (file,) = write_edf_recordings(tmp_path, 1)
    code = (
        "import sys\n"
        "sys.modules['cryptography'] = None\n"
        "from rlxweb.cli.main import main\n"
        f"main(['welch', {file!r}, '--workers', '2'])\n"
    )
    run_result = run_forked("-c", code)
    missing = "cryptography, which creates the workers' certificate, is not installed"
    check_rejected(run_result, 2, missing, 'pip install "rlxweb[dask]"')


def test_invalid_tls_settings_are_reported(tmp_path: Path) -> None:
    (file,) = write_edf_recordings(tmp_path, 1)
    code = (
        "from rlxweb.cli.main import main\n"
        f"main(['welch', {file!r}, '--workers', '2'])\n"
    )
    run_result = run_forked("-c", code, DASK_DISTRIBUTED__COMM__TLS__MIN_VERSION="0.9")
    check_rejected(run_result, 3, "start 1 workers", "Dask's TLS settings", "0.9")
