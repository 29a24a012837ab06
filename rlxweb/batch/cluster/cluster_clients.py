"""Clients of Dask clusters: a scheduler at an address, or worker processes started on
this machine.

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

from rlxweb.batch.child_process_tracker import ChildProcessTracker
from rlxweb.core.atomic_file import error_reason
from rlxweb.core.errors import ClusterError, UsageError
from rlxweb.core.message_text import Advice, Blank

CONNECT_TIMEOUT_S = 8
"""Seconds to wait for a connection to a scheduler."""
# For its first word, where Dask itself has no deadline.
_HANDSHAKE_S = 1
MIN_WORKER_NBYTES = 1 << 28
"""Minimum memory of a worker in bytes; with less it ends before it has finished a
recording.
"""
_START_TIMEOUT_S = 120
_START_TRIES = 5
_CLOSE_TIMEOUT_S = 5
_ENVIRON_SETTING = "distributed.nanny.pre-spawn-environ"
# Dask has each freed block go back to the system; blocks of a recording come again at
# once, and to get them anew was a third of a worker's processor time.
_MALLOC_ENVIRON = {"MALLOC_TRIM_THRESHOLD_": 1 << 28, "MALLOC_MMAP_THRESHOLD_": 1 << 30}
# Dask looks at what a worker does a hundred times a second, for the profile of its
# dashboard, which is 2 % of the work; this often it is next to nothing.
_PROFILE_SETTING = "distributed.worker.profile.interval"
_DASK_PROFILE_INTERVAL, _PROFILE_INTERVAL = "10ms", "50ms"
# Dask calls it critical that somebody leaves while he is written to.
_SILENT_LEVEL = logging.CRITICAL + 1
_LOOPBACK = "127.0.0.1"
# Dask always opens HTTP ports, the scheduler's at 8787 if the address is None. Without
# the dashboard and without routes they serve nothing.
_EPHEMERAL_ADDRESS = f"{_LOOPBACK}:0"
_HTTP_ROUTE_SETTINGS = (
    "distributed.scheduler.http.routes",
    "distributed.worker.http.routes",
)
_TEMPORARY_FOLDER_SETTING = "temporary-directory"
_CERTIFICATE_HINT = (
    "set the file names in DASK_DISTRIBUTED__COMM__TLS__CA_FILE, "
    "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT and "
    "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY"
)

Notify = Callable[[str], object]


@contextmanager
def connect_to_scheduler(address: str, notify: Notify) -> Iterator[Client]:
    """Yield a client of the scheduler at an address such as "tcp://host:8786".

    Errors   ClusterError where there is none, or none that lets us in.
    """
    _silence_dask_logs()
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        client = _connect_client(address)
    if any(
        issubclass(warning.category, VersionMismatchWarning)
        for warning in caught_warnings
    ):
        notify("the cluster and this machine have different versions of Dask packages")
    try:
        yield client
    finally:
        _close_client(client)


@contextmanager
def local(n_workers: int) -> Iterator[Client]:
    """Start a cluster on this machine, processes of one thread each; yield its client.

    Where a process ends another takes its place. Nobody without the certificate, which
    is new and in the memory of these processes only, can talk to any of them.

    Errors   UsageError for more than there is memory for, and where `cryptography` is
             not installed; ClusterError where they do not start.
    """
    _check_memory(n_workers)
    _silence_dask_logs()
    context = f"start {n_workers} workers on this machine"
    security = _create_certificate(context)
    # Dask unpickles what its workers spilled, and would share a folder of a known name
    # in /tmp, which another user may have made: this one is new, and its mode 0700.
    with tempfile.TemporaryDirectory(
        prefix="rlxweb-workers-",
        dir=dask.config.get(_TEMPORARY_FOLDER_SETTING),
        ignore_cleanup_errors=True,
    ) as folder:
        yield from _run_local_cluster(n_workers, security, folder, context)


def _run_local_cluster(
    n_workers: int, security: Security, folder: str, context: str
) -> Iterator[Client]:
    with _interrupt_blocking_loop() as loop:
        cluster = _start_cluster(n_workers, security, folder, loop, context)
        try:
            client = Client(cluster, timeout=_START_TIMEOUT_S)
            try:
                yield client
            finally:
                _close_client(client)
        finally:
            with suppress(OSError, TimeoutError), _skip_cleanup_on_interrupt():
                cluster.close(timeout=_CLOSE_TIMEOUT_S)


class _QuietClient(Client):
    """Dask client that is not closed again, for seconds, when no connection was
    made.
    """

    def __del__(self) -> None:
        if self.status == "running":
            super().__del__()  # type: ignore[no-untyped-call]


def _create_certificate(context: str) -> Security:
    """Create a key and a certificate that exist in memory only."""
    try:
        return Security.temporary()  # type: ignore[no-any-return]
    except ImportError as error:
        raise UsageError(
            context,
            "the package cryptography, which creates the workers' certificate, is not "
            "installed",
            "without a certificate any user of this machine could run code in the "
            "workers",
            Advice(
                'pip install "rlxweb[dask]", or use {}, which does not need Dask',
                jobs=Blank("N"),
            ),
        ) from error
    except (ValueError, TypeError) as error:
        raise ClusterError(
            context, f"Dask's TLS settings cannot be used ({_error_text(error)})"
        ) from error


def _start_cluster(
    n_workers: int, security: Security, folder: str, loop: Any, context: str
) -> LocalCluster:
    """Start the worker processes; if one ends during the start, start all of them
    again.
    """
    _start_resource_tracker()
    for tries_left in reversed(range(_START_TRIES)):
        try:
            with (
                dask.config.set(_cluster_settings(folder)),
                ChildProcessTracker().track(),
                _skip_cleanup_on_interrupt(),
            ):
                return LocalCluster(
                    n_workers=n_workers,
                    threads_per_worker=1,
                    processes=True,
                    host=_LOOPBACK,
                    security=security,
                    # What a worker that is killed leaves goes with the folder.
                    env={"TMPDIR": folder},
                    dashboard_address=_EPHEMERAL_ADDRESS,
                    scheduler_kwargs={"dashboard": False},
                    silence_logs=_SILENT_LEVEL,
                    loop=loop,
                )
        except (OSError, RuntimeError) as error:
            if not tries_left:
                raise ClusterError(context, _error_text(error)) from error
    raise AssertionError("unreachable")


def _cluster_settings(folder: str) -> dict[str, Any]:
    """Return the Dask settings of a local cluster; the user may set the profile
    interval.
    """
    profile_interval = dask.config.get(_PROFILE_SETTING)
    return {
        **{routes: [] for routes in _HTTP_ROUTE_SETTINGS},
        _TEMPORARY_FOLDER_SETTING: folder,
        _ENVIRON_SETTING: {**dask.config.get(_ENVIRON_SETTING), **_MALLOC_ENVIRON},
        _PROFILE_SETTING: _PROFILE_INTERVAL
        if profile_interval == _DASK_PROFILE_INTERVAL
        else profile_interval,
    }


@contextmanager
def _skip_cleanup_on_interrupt() -> Iterator[None]:
    """Disable Dask's cleanup on Ctrl-C, so that what is half started or half closed
    just ends with this process.

    Dask's own way waits for ten seconds for what is not there any more.
    """
    try:
        yield
    except KeyboardInterrupt:
        atexit.unregister(close_clusters)
        logging.getLogger("asyncio").setLevel(_SILENT_LEVEL)
        raise


def _start_resource_tracker() -> None:
    """Start Python's resource tracker, the process that removes semaphores of processes
    that end early.

    It is to do so without a word. Its thread would undo what `_interrupt_blocking_loop`
    does, were it started by one of those that start workers.
    """
    if os.name != "posix":  # Windows has none
        return
    saved_options = sys.warnoptions[:]
    sys.warnoptions.append("ignore:resource_tracker")  # it is started with these
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions[:] = saved_options


@contextmanager
def _interrupt_blocking_loop() -> Iterator[Any]:
    """Run a Tornado loop whose child processes do not receive Ctrl-C.

    A terminal sends it to all; they end with this process, which hears it. The loop's
    thread ends with the block.
    """
    runner = LoopRunner(asynchronous=False)
    set_mask = getattr(signal, "pthread_sigmask", None)  # Windows has none
    # A thread inherits what it does not hear, and so does what it starts.
    saved_mask = set_mask(signal.SIG_BLOCK, {signal.SIGINT}) if set_mask else None
    try:
        runner.start()
    finally:
        if set_mask:
            set_mask(signal.SIG_SETMASK, saved_mask)
    try:
        yield runner.loop
    finally:
        runner.stop()


def _check_memory(n_workers: int) -> None:
    """Refuse more workers than there is memory for; Dask ends a worker that exceeds its
    share.
    """
    max_workers = max(1, MEMORY_LIMIT // MIN_WORKER_NBYTES)
    if n_workers > max_workers:
        raise UsageError(
            f"start {n_workers} workers on this machine",
            f"each worker would have {MEMORY_LIMIT // n_workers >> 20} MiB of memory",
            f"a worker needs {MIN_WORKER_NBYTES >> 20} MiB, so at most "
            f"{max_workers} workers fit on this machine",
            "start fewer workers, at most one per processor core",
        )


def _connect_client(address: str) -> Client:
    context = f"connect to the scheduler at {address!r}"
    security = _load_security(address, context)
    try:
        _check_response(address, security)
        return _QuietClient(  # type: ignore[no-untyped-call]
            address, timeout=CONNECT_TIMEOUT_S, security=security, set_as_default=False
        )
    except OSError as error:
        tls_error = _find_tls_error(error)
        if tls_error is not None:
            raise ClusterError(
                context,
                f"a certificate was rejected ({_error_text(tls_error)})",
                hint=_CERTIFICATE_HINT,
            ) from error
        raise ClusterError(
            context,
            f"no scheduler responds ({_error_text(error)})",
            f"waited {CONNECT_TIMEOUT_S} s",
            Advice(
                "start one with `dask scheduler` and use the address it prints, or use "
                "{}, which needs no scheduler",
                workers=Blank("N"),
            ),
        ) from error
    except (ImportError, MemoryError, OverflowError) as error:
        raise ClusterError(
            context,
            f"the server is not a compatible scheduler ({_error_text(error)})",
            hint="use the address that `dask scheduler` prints, and install the "
            "scheduler's Dask version on this machine",
        ) from error
    except (ValueError, TypeError, RuntimeError) as error:
        raise ClusterError(
            context,
            f"the address is invalid ({_error_text(error)})",
            hint="use the form tcp://host:8786",
        ) from error


def _check_response(address: str, security: Security) -> None:
    """Check that the server at an address answers; one that only listens would block a
    client for ever.
    """
    connection_args = security.get_connection_args("client")
    runner = LoopRunner(asynchronous=False)
    runner.start()
    try:
        wait_s = CONNECT_TIMEOUT_S + _HANDSHAKE_S
        comm = sync(
            runner.loop,
            connect,
            address,
            callback_timeout=wait_s,
            timeout=CONNECT_TIMEOUT_S,
            **connection_args,
        )
        sync(runner.loop, comm.close)
    except TimeoutError as error:
        raise TimeoutError("the server does not respond") from error
    finally:
        runner.stop()


def _load_security(address: str, context: str) -> Security:
    """Load Dask's TLS settings and check them before anything is sent."""
    try:
        security = Security()
        ssl_context = security.get_connection_args("client")["ssl_context"]
    except (OSError, ValueError, TypeError) as error:  # SSLError is an OSError
        raise ClusterError(
            context,
            f"Dask's TLS settings cannot be used ({_error_text(error)})",
            hint=_CERTIFICATE_HINT,
        ) from error
    if ssl_context is None and address.startswith("tls:"):
        raise ClusterError(
            context,
            "Dask's settings have no client certificate",
            hint=_CERTIFICATE_HINT,
        )
    return security


def _find_tls_error(error: BaseException) -> BaseException | None:
    """Return the TLS error among the causes of a Dask error; None if there is none."""
    cause: BaseException | None = error
    while cause is not None and type(cause).__module__ != "ssl":
        cause = cause.__cause__ or cause.__context__
    return cause


def _error_text(error: BaseException) -> str:
    return " ".join(error_reason(error).split())


def _close_client(client: Client) -> None:
    with suppress(OSError, TimeoutError, RuntimeError):
        client.close(timeout=_CLOSE_TIMEOUT_S)


def _silence_dask_logs() -> None:
    """Silence Dask's logs; rlxweb reports what happens to workers itself, once."""
    for handler in logging.getLogger("distributed").handlers:
        handler.setLevel(_SILENT_LEVEL)
