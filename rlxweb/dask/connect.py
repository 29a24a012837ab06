"""Clients of Dask clusters: a scheduler at an address, or processes started here.

Owns the deadline for finding a scheduler and the words for not finding one. Who may
talk to the scheduler at an address is its owner's business: Dask's configuration names
the certificates. Whoever reaches a scheduler can run code in it and in its workers, and
a TCP port of this machine is open to all its users, so a cluster that is started here
talks over TLS with a key that nobody but its own processes has.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from typing import Any

import dask
from distributed import Client, LocalCluster
from distributed.comm.core import connect
from distributed.deploy.spec import close_clusters
from distributed.security import Security
from distributed.system import MEMORY_LIMIT
from distributed.utils import LoopRunner, sync
from distributed.versions import VersionMismatchWarning

from rlxweb.advice import Advice, Blank
from rlxweb.errors import ClusterError, UsageError
from rlxweb.jobs.starting import Starting
from rlxweb.whole_file import reason

FIND_S = 8
"""How long a scheduler is looked for."""
# For its first word, where Dask itself has no deadline.
_HEAR_S = 1
LEAST_MEMORY = 1 << 28
"""Bytes below which a worker ends before it has done a recording."""
_START_S = 120
_START_TRIES = 5
_CLOSE_S = 5
_ENVIRON = "distributed.nanny.pre-spawn-environ"
# Dask has each freed block go back to the system; blocks of a recording come again at
# once, and to get them anew was a third of a worker's processor time.
_KEEP = {"MALLOC_TRIM_THRESHOLD_": 1 << 28, "MALLOC_MMAP_THRESHOLD_": 1 << 30}
# Dask looks at what a worker does a hundred times a second, for the profile of its
# dashboard, which is 2 % of the work; this often it is next to nothing.
_LOOKS = "distributed.worker.profile.interval"
_OFTEN, _SELDOM = "10ms", "50ms"
# Dask calls it critical that somebody leaves while he is written to.
_SILENT = logging.CRITICAL + 1
_LOOPBACK = "127.0.0.1"
# Dask always opens HTTP ports, the scheduler's at 8787 if the address is None. Without
# the dashboard and without routes they serve nothing.
_EMPTY_PORT = f"{_LOOPBACK}:0"
_HTTP_ROUTES = "distributed.scheduler.http.routes", "distributed.worker.http.routes"
_FOLDER = "temporary-directory"
_CERTIFICATES = (
    "DASK_DISTRIBUTED__COMM__TLS__CA_FILE, DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT "
    "and DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY name the files"
)

Tell = Callable[[str], object]


@contextmanager
def connected(address: str, tell: Tell) -> Iterator[Client]:
    """A client of the scheduler at an address such as "tcp://host:8786".

    Errors   ClusterError where there is none, or none that lets us in.
    """
    _keep_quiet()
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        client = _found(address)
    if any(issubclass(one.category, VersionMismatchWarning) for one in noted):
        tell("the cluster has other versions of Dask or its parts than this machine")
    try:
        yield client
    finally:
        _close(client)


@contextmanager
def local(n_workers: int) -> Iterator[Client]:
    """Start a cluster on this machine, processes of one thread each; yield its client.

    Where a process ends another takes its place. Nobody without the certificate, which
    is new and in the memory of these processes only, can talk to any of them.

    Errors   UsageError for more than there is memory for, and where `cryptography` is
             not installed; ClusterError where they do not start.
    """
    _check_room(n_workers)
    _keep_quiet()
    doing = f"start {n_workers} workers on this machine"
    security = _new_certificate(doing)
    # Dask unpickles what its workers spilled, and would share a folder of a known name
    # in /tmp, which another user may have made: this one is new, and its mode 0700.
    with tempfile.TemporaryDirectory(
        prefix="rlxweb-workers-",
        dir=dask.config.get(_FOLDER),
        ignore_cleanup_errors=True,
    ) as folder:
        yield from _local(n_workers, security, folder, doing)


def _local(
    n_workers: int, security: Security, folder: str, doing: str
) -> Iterator[Client]:
    with _deaf_loop() as loop:
        cluster = _started(n_workers, security, folder, loop, doing)
        try:
            client = Client(cluster, timeout=_START_S)
            try:
                yield client
            finally:
                _close(client)
        finally:
            with suppress(OSError, TimeoutError), _ended_by_ctrl_c():
                cluster.close(timeout=_CLOSE_S)


class _Client(Client):
    """One that, where nothing was found, is not closed once more for seconds."""

    def __del__(self) -> None:
        if self.status == "running":
            super().__del__()  # type: ignore[no-untyped-call]


def _new_certificate(doing: str) -> Security:
    """Make a key and a certificate that exist in memory only."""
    try:
        return Security.temporary()  # type: ignore[no-any-return]
    except ImportError as error:
        raise UsageError(
            doing,
            "cryptography is not installed, which makes their certificate",
            "without one every user of this machine could run code in them",
            Advice(
                'pip install "rlxweb[dask]", or use {}, which needs no Dask',
                jobs=Blank("N"),
            ),
        ) from error
    except (ValueError, TypeError) as error:
        raise ClusterError(
            doing, f"Dask's TLS settings cannot be used ({_said(error)})"
        ) from error


def _started(
    n_workers: int, security: Security, folder: str, loop: Any, doing: str
) -> LocalCluster:
    """Start the processes; where one ends while it starts, start all again."""
    _start_tracker()
    for left in reversed(range(_START_TRIES)):
        try:
            with (
                dask.config.set(_for_workers(folder)),
                Starting().watched(),
                _ended_by_ctrl_c(),
            ):
                return LocalCluster(
                    n_workers=n_workers,
                    threads_per_worker=1,
                    processes=True,
                    host=_LOOPBACK,
                    security=security,
                    # What a worker that is killed leaves goes with the folder.
                    env={"TMPDIR": folder},
                    dashboard_address=_EMPTY_PORT,
                    scheduler_kwargs={"dashboard": False},
                    silence_logs=_SILENT,
                    loop=loop,
                )
        except (OSError, RuntimeError) as error:
            if not left:
                raise ClusterError(doing, _said(error)) from error
    raise AssertionError("it is returned or raised above")


def _for_workers(folder: str) -> dict[str, Any]:
    """Return the Dask settings of a local cluster; the user may set the profile's."""
    looks = dask.config.get(_LOOKS)
    return {
        **{routes: [] for routes in _HTTP_ROUTES},
        _FOLDER: folder,
        _ENVIRON: {**dask.config.get(_ENVIRON), **_KEEP},
        _LOOKS: _SELDOM if looks == _OFTEN else looks,
    }


@contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """What it leaves half there, or half gone, ends with this process alone.

    Dask's own way waits for ten seconds for what is not there any more.
    """
    try:
        yield
    except KeyboardInterrupt:
        atexit.unregister(close_clusters)
        logging.getLogger("asyncio").setLevel(_SILENT)
        raise


def _start_tracker() -> None:
    """Python's own process that removes the semaphores of one that ends early.

    It is to do so without a word. Its thread would undo what `_deaf_loop` does, were
    it started by one of those that start workers.
    """
    if os.name != "posix":  # Windows has none
        return
    before = sys.warnoptions[:]
    sys.warnoptions.append("ignore:resource_tracker")  # it is started with these
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions[:] = before


@contextmanager
def _deaf_loop() -> Iterator[Any]:
    """Run a loop of Tornado's whose child processes do not hear Ctrl-C.

    A terminal sends it to all; they end with this process, which hears it. The loop's
    thread ends with the block.
    """
    runner = LoopRunner(asynchronous=False)
    mask = getattr(signal, "pthread_sigmask", None)  # Windows has none
    # A thread inherits what it does not hear, and so does what it starts.
    before = mask(signal.SIG_BLOCK, {signal.SIGINT}) if mask else None
    try:
        runner.start()
    finally:
        if mask:
            mask(signal.SIG_SETMASK, before)
    try:
        yield runner.loop
    finally:
        runner.stop()


def _check_room(n_workers: int) -> None:
    """Dask gives each worker its share of the memory, and ends who takes more."""
    most = max(1, MEMORY_LIMIT // LEAST_MEMORY)
    if n_workers > most:
        raise UsageError(
            f"start {n_workers} workers on this machine",
            f"each would have {MEMORY_LIMIT // n_workers >> 20} MiB of memory",
            f"a worker needs {LEAST_MEMORY >> 20} MiB, so {most} have room here",
            "as many as there are processor cores are enough",
        )


def _found(address: str) -> Client:
    doing = f"connect to the scheduler at {address!r}"
    security = _security(address, doing)
    try:
        _hear(address, security)
        return _Client(  # type: ignore[no-untyped-call]
            address, timeout=FIND_S, security=security, set_as_default=False
        )
    except OSError as error:
        refused = _of_tls(error)
        if refused is not None:
            raise ClusterError(
                doing,
                f"a certificate is refused ({_said(refused)})",
                hint=_CERTIFICATES,
            ) from error
        raise ClusterError(
            doing,
            f"there is none ({_said(error)})",
            f"looked for {FIND_S} s",
            Advice(
                "start one with `dask scheduler` and take the address it prints; {} "
                "needs none",
                workers=Blank("N"),
            ),
        ) from error
    except (ImportError, MemoryError, OverflowError) as error:
        raise ClusterError(
            doing,
            f"what answers there is no scheduler we understand ({_said(error)})",
            hint="take the address that `dask scheduler` prints, and a Dask of its age",
        ) from error
    except (ValueError, TypeError, RuntimeError) as error:
        raise ClusterError(
            doing, f"this is no address ({_said(error)})", hint="as in tcp://host:8786"
        ) from error


def _hear(address: str, security: Security) -> None:
    """Does somebody answer there? What only listens would keep a client for ever."""
    how = security.get_connection_args("client")
    runner = LoopRunner(asynchronous=False)
    runner.start()
    try:
        wait_s = FIND_S + _HEAR_S
        comm = sync(
            runner.loop,
            connect,
            address,
            callback_timeout=wait_s,
            timeout=FIND_S,
            **how,
        )
        sync(runner.loop, comm.close)
    except TimeoutError as error:
        raise TimeoutError("what listens there says nothing") from error
    finally:
        runner.stop()


def _security(address: str, doing: str) -> Security:
    """What Dask's settings say of encryption, looked at before anything is sent."""
    try:
        security = Security()
        context = security.get_connection_args("client")["ssl_context"]
    except (OSError, ValueError, TypeError) as error:  # SSLError is an OSError
        raise ClusterError(
            doing,
            f"Dask's TLS settings cannot be used ({_said(error)})",
            hint=_CERTIFICATES,
        ) from error
    if context is None and address.startswith("tls:"):
        raise ClusterError(
            doing, "Dask's settings name no certificate of ours", hint=_CERTIFICATES
        )
    return security


def _of_tls(error: BaseException) -> BaseException | None:
    """What encryption had against it, under what Dask made of that."""
    under: BaseException | None = error
    while under is not None and type(under).__module__ != "ssl":
        under = under.__cause__ or under.__context__
    return under


def _said(error: BaseException) -> str:
    return " ".join(reason(error).split())


def _close(client: Client) -> None:
    with suppress(OSError, TimeoutError, RuntimeError):
        client.close(timeout=_CLOSE_S)


def _keep_quiet() -> None:
    """What happens to workers is told by who deals with it, once."""
    for handler in logging.getLogger("distributed").handlers:
        handler.setLevel(_SILENT)
