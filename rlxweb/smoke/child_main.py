"""Entry point of the child process that lists adapters or tests one engine.

Takes one line of JSON, and answers with lines: what was opened, the names of the cases,
each case before it is begun and its row after, and the end. Whatever happens to this
process, the parent knows what it was about. It ends when its parent does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rlxweb.core.errors import RlxError
from rlxweb.core.library_crash_probe import disable_probing
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.wgpu_libraries import WgpuLibrary, list_adapters, shader_compiler
from rlxweb.smoke.vulkan_drivers import icd_fault

# What tries an engine is loaded where one is tried: to list adapters takes none of it.
if TYPE_CHECKING:
    from rlxweb.smoke.case_runner import SendMessage

RawWrite = Callable[[str], object]


def main() -> None:
    """Serve the smoke test request on standard input."""
    serve_request(_handle_request)


def serve_request(
    handle: Callable[[dict[str, Any], SendMessage, RawWrite], None],
) -> None:
    """Read the request on standard input, handle it, and end the process.

    handle  gets what is asked, what tells an answer, and what writes past all form
    """
    disable_probing()
    stdout_copy = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a driver prints must not get between the answers

    def send(**message: Any) -> None:
        stdout_copy.write(json.dumps(message, allow_nan=False) + "\n")
        stdout_copy.flush()

    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        handle(request, send, stdout_copy.write)
    except RlxError as error:
        from rlxweb.smoke.result_rows import DEVICE_LOST_ERRORS

        send(failed=str(error), is_lost=isinstance(error, DEVICE_LOST_ERRORS))
    except ConnectionError as error:  # a tab that is gone: told as any process's end
        sys.exit(str(error))
    send(end=True)
    # Freeing what hangs would block; what is open here was closed, or is lost.
    os._exit(0)


def _exit_with_parent() -> None:
    """Wait until standard input closes, then end this process."""
    sys.stdin.read()
    os._exit(1)


def _handle_request(
    request: dict[str, Any], send: SendMessage, write: RawWrite
) -> None:
    """Test the engine of the request, or list adapters if it names none."""
    if "engine" in request:
        _test_engine(request, send, write)
    else:
        _send_adapters(send, request["library"], request["icds"])


def _send_adapters(
    send: SendMessage, library: WgpuLibrary, icds: Sequence[str]
) -> None:
    """Send a message for each adapter of the library and each driver that cannot be
    loaded.
    """
    compiler = ""
    for facts in list_adapters(library):
        compiler = compiler or shader_compiler(library)
        send(
            adapter=facts.name,
            backend=facts.backend,
            vendor=facts.vendor,
            driver=facts.driver,
            software=facts.software,
            compiler=compiler,
        )
    for icd in icds:
        fault = icd_fault(icd)
        if fault:
            send(icd=icd, fault=fault)


def _test_engine(request: dict[str, Any], send: SendMessage, write: RawWrite) -> None:
    """Test the engine in this process, in a browser tab or under Node."""
    from rlxweb.smoke.case_runner import run_engine_cases
    from rlxweb.smoke.tab.browser_tab import run_in_browser_tab
    from rlxweb.smoke.tab.node_pyodide import WASM, run_under_node

    if request["engine"]["kind"] == "browser":
        run_in_browser_tab(request, send)
    elif request["engine"]["kind"] == WASM:
        run_under_node(request, send)
    else:
        run_blocking(run_engine_cases(request, send, write))
