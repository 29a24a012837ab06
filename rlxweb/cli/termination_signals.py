"""Handling of Ctrl-C, SIGTERM and SIGHUP at any moment: one line, an exit code, no
traceback.

Loaded before anything else, so it imports nothing that takes time. While the command
line loads a signal ends the process at once. While a command works it is a
KeyboardInterrupt, so that what was begun is taken back; a second signal does not wait
for that. Once everything is done it changes nothing any more: the exit code is that of
what was done. A native call (a driver at work) may keep the main thread from seeing the
signal at all, so a thread of its own looks after it.
"""

from __future__ import annotations

import _thread
import atexit
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

SIGNAL_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
# How long a native call may keep the main thread from seeing a signal.
GRACE_PERIOD_S = 1.0
_POLL_INTERVAL_S = 0.1


class ProcessSignals:
    """State that decides the effect of a signal; one instance per process.

    signal_number  the signal that is being obeyed, 0 before one has come
    cleanup  called before a process is ended that cannot clear up itself
    """

    def __init__(self) -> None:
        self.signal_number = 0
        self._exit_code: int | None = None  # of the process, once everything is done
        self.cleanup: Callable[[], object] = int
        self._is_working = False
        self._was_swallowed = False

    def install_handlers(self) -> None:
        """Install the handlers, except for signals that the parent process has us
        ignore.

        A process that `--workers` started imports this too. Ctrl-C in a terminal
        reaches it as well, and it leaves that to its parent, which ends it.
        """
        if _is_multiprocessing_child():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            return
        default_handlers = (signal.SIG_DFL, signal.default_int_handler)
        for name in SIGNAL_NAMES:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) in default_handlers:
                signal.signal(number, self._handle_signal)
        atexit.register(self._exit_if_done)  # the first to be registered is called last
        self._usual_hook, sys.unraisablehook = (
            sys.unraisablehook,
            self._handle_unraisable,
        )
        if os.name == "posix":
            read_fd, write_fd = os.pipe()
            os.set_blocking(write_fd, False)
            signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
            _thread.start_new_thread(self._watch_wakeup_pipe, (read_fd,))

    def begin_command(self) -> None:
        """Mark the start of a command, which cleans up when it is interrupted."""
        self._is_working = True

    def end_command(self, code: int | None = None) -> None:
        """Mark that nothing is left to clean up.

        code  everything is done and written, and the process shall end with this
        """
        self._is_working, self._exit_code = False, code

    def _exit_if_done(self) -> None:
        """Exit here if all work is done: a signal during the interpreter's shutdown
        would kill the process.
        """
        if self._exit_code is not None:
            os._exit(self._exit_code)

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._is_working or self.signal_number:
            self._exit_now(number)
        self.signal_number = number
        raise KeyboardInterrupt

    def _watch_wakeup_pipe(self, read_fd: int) -> NoReturn:
        while True:
            (number,) = os.read(read_fd, 1)
            time.sleep(GRACE_PERIOD_S)
            if not self.signal_number:
                self._exit_now(number)
            while self._is_working:
                if self._was_swallowed:
                    self._was_swallowed, self.signal_number = False, 0
                    _thread.interrupt_main(signal.Signals(number))
                time.sleep(_POLL_INTERVAL_S)

    def _handle_unraisable(self, unraisable: Any) -> None:
        """Remember a KeyboardInterrupt that Python drops because a destructor raised
        it.
        """
        if isinstance(unraisable.exc_value, KeyboardInterrupt):
            self._was_swallowed = True
        else:
            self._usual_hook(unraisable)

    def _exit_now(self, number: int) -> NoReturn:
        self._exit_if_done()
        self.cleanup()
        try:
            os.write(2, b"rlxweb: stopped\n")
        finally:
            os._exit(128 + number)


def _is_multiprocessing_child() -> bool:
    """Return True if Python's multiprocessing started this process."""
    process_module = sys.modules.get("multiprocessing.process")
    return process_module is not None and process_module.parent_process() is not None


process_signals = ProcessSignals()
