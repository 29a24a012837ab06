"""Ctrl-C, SIGTERM and SIGHUP at any moment: one line, an exit code, no traceback.

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

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
# How long a native call may keep the main thread from seeing a signal.
GRACE_S = 1.0
_LOOK_S = 0.1


class Signals:
    """What a signal does at the moment; one per process.

    number   the signal that is being obeyed, 0 before one has come
    cleanup  called before a process is ended that cannot clear up itself
    """

    def __init__(self) -> None:
        self.number = 0
        self._code: int | None = None  # of the process, once everything is done
        self.cleanup: Callable[[], object] = int
        self._is_working = False
        self._was_swallowed = False

    def take(self) -> None:
        """From now on signals come here, but for those the parent has us ignore.

        A process that `--workers` started imports this too. Ctrl-C in a terminal
        reaches it as well, and it leaves that to its parent, which ends it.
        """
        if _is_a_child():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            return
        usual = (signal.SIG_DFL, signal.default_int_handler)
        for name in NAMES:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) in usual:
                signal.signal(number, self._came)
        atexit.register(self._last)  # the first to be registered is called last
        self._usual_hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
        if os.name == "posix":
            reader, writer = os.pipe()
            os.set_blocking(writer, False)
            signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
            _thread.start_new_thread(self._watch, (reader,))

    def begin(self) -> None:
        """A command begins: it wants to clear up when it is stopped."""
        self._is_working = True

    def end(self, code: int | None = None) -> None:
        """Nothing is left to clear up.

        code  everything is done and written, and the process shall end with this
        """
        self._is_working, self._code = False, code

    def _last(self) -> None:
        """End here: where the interpreter takes itself down a signal would kill it."""
        if self._code is not None:
            os._exit(self._code)

    def _came(self, number: int, frame: FrameType | None) -> None:
        if not self._is_working or self.number:
            self._leave(number)
        self.number = number
        raise KeyboardInterrupt

    def _watch(self, reader: int) -> NoReturn:
        while True:
            (number,) = os.read(reader, 1)
            time.sleep(GRACE_S)
            if not self.number:
                self._leave(number)
            while self._is_working:
                if self._was_swallowed:
                    self._was_swallowed, self.number = False, 0
                    _thread.interrupt_main(signal.Signals(number))
                time.sleep(_LOOK_S)

    def _unraisable(self, lost: Any) -> None:
        """A destructor cannot raise: Python drops its KeyboardInterrupt, we do not."""
        if isinstance(lost.exc_value, KeyboardInterrupt):
            self._was_swallowed = True
        else:
            self._usual_hook(lost)

    def _leave(self, number: int) -> NoReturn:
        self._last()
        self.cleanup()
        try:
            os.write(2, b"rlxweb: stopped\n")
        finally:
            os._exit(128 + number)


def _is_a_child() -> bool:
    """Did Python's multiprocessing start this process? It is loaded then."""
    loaded = sys.modules.get("multiprocessing.process")
    return loaded is not None and loaded.parent_process() is not None


signals = Signals()
