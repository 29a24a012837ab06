"""The WGSL that rlxweb writes as CUDA, statement by statement, to see what nvcc makes.

Registers, spills and instructions without a GPU: they say what a driver's compiler may
reach, not what Vulkan's does; naga's checks of bounds are not in it.

    `python -m tests.lanes.cuda` prints a line a kernel; needs nvcc, cuobjdump for more
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlxweb.kernels.launch import Launch
from tests.lanes.parse import Function, Module, Node, parse

NAMES = {"f32": "float", "u32": "unsigned", "i32": "int", "bool": "bool"}
CALLS = {
    "fma": "fmaf",
    "workgroupBarrier": "__syncthreads",
    "sqrt": "sqrtf",
    "exp": "expf",
    "abs": "fabsf",
    "tanh": "tanhf",
    "atomicAdd": "atomicAdd",
}
PRELUDE = """#define D __device__ __forceinline__
template <class T> struct alignas(4 * sizeof(T)) V4 { T x, y, z, w; };
template <class T> D V4<T> operator+(V4<T> a, V4<T> b)
{ return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }
template <class T> D V4<T> operator*(V4<T> a, V4<T> b)
{ return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w}; }
template <class T> D void operator+=(V4<T>& a, V4<T> b) { a = a + b; }
template <class T> D V4<T> vec4(T x, T y, T z, T w) { return {x, y, z, w}; }
template <class T> D V4<T> vec4() { return {}; }
template <class T> D V4<T> vec4(T x) { return {x, x, x, x}; }
template <class T> D T pick(T no, T yes, bool which) { return which ? yes : no; }
D unsigned load(unsigned* p) { return *(volatile unsigned*)p; }
template <class To, class From> D To bits(From x)
{ To y; memcpy(&y, &x, sizeof y); return y; }
"""


class Writer:
    """One module as CUDA text."""

    def __init__(self, module: Module, constants: dict[str, int]) -> None:
        self.module, self.constants = module, constants

    def type(self, kind: Any) -> str:
        kind = self.module.aliases.get(kind, kind) if isinstance(kind, str) else kind
        if isinstance(kind, str):
            return NAMES[kind]
        if kind[0] == "atomic":
            return self.type(kind[1])
        return f"V4<{self.type(kind[1])}>"

    def text(self) -> str:
        made = self.module
        fields = " ".join(f"{self.type(t)} {n};" for n, t in made.uniforms.items())
        lines = [
            PRELUDE,
            f"struct Uniforms {{ {fields} }};",
            "__constant__ Uniforms u;",
        ]
        for name in made.overrides:
            lines.append(f"constexpr unsigned {name} = {self.constants[name]}u;")
        for name, (_, value) in made.constants.items():
            lines.append(f"constexpr auto {name} = {self.value(value)};")
        for name, kind in made.storage.items():
            lines.append(f"__constant__ {self.type(kind[1])}* {name};")
        for name, kind in made.shared.items():
            cells = f"[{kind[2]}]" if kind[0] == "array" else ""
            of = kind[1] if kind[0] == "array" else kind
            lines.append(f"__shared__ {self.type(of)} {name}{cells};")
        for name, function in made.functions.items():
            lines.append(self._function(name, function))
        return "\n".join(lines)

    def _function(self, name: str, function: Function) -> str:
        body = self._body(function.body)
        if name == "main":
            return (
                'extern "C" __global__ void __launch_bounds__(WG) kernel() {\n'
                "uint3 wid = blockIdx; uint3 nwg = {gridDim.x, gridDim.y, gridDim.z};\n"
                f"unsigned lid = threadIdx.x;\n{body}\n}}"
            )
        given = ", ".join(
            f"{'uint3' if kind == ('vec3', 'u32') else self.type(kind)} {n}"
            for n, kind in function.parameters
        )
        result = self.type(function.result) if function.result else "void"
        return f"D {result} {name}({given}) {{\n{body}\n}}"

    def _body(self, body: Sequence[Node]) -> str:
        return "\n".join(self._statement(one) for one in body)

    def _statement(self, one: Node) -> str:
        kind = one[0]
        if kind in ("let", "var"):
            _, name, declared, value = one
            of = self.type(declared) if declared else "auto"
            start = f" = {self.value(value)}" if value is not None else "{}"
            return f"{of} {name}{start};"
        if kind == "set":
            return f"{self.value(one[1])} {one[2]} {self.value(one[3])};"
        if kind == "do":
            return f"{self.value(one[1])};"
        if kind == "if":
            other = f" else {{ {self._body(one[3])} }}" if one[3] else ""
            return f"if ({self.value(one[1])}) {{ {self._body(one[2])} }}{other}"
        if kind == "for":
            first = self._statement(one[1]) if one[1] else ";"
            after = self._statement(one[3]).rstrip(";") if one[3] else ""
            head = f"for ({first} {self.value(one[2])}; {after})"
            return f"{head} {{ {self._body(one[4])} }}"
        if kind == "return":
            return f"return {self.value(one[1])};" if one[1] else "return;"
        if kind == "block":
            return f"{{ {self._body(one[1])} }}"
        return f"{kind};"

    def value(self, node: Node) -> str:
        kind = node[0]
        if kind == "num":
            text = str(node[1])
            plain = re.fullmatch(r"[\d.]+(e[-+]?\d+)?", text)
            return f"{text}f" if plain and set(text) & set(".e") else text
        if kind == "id":
            return str(node[1])
        if kind == "un":
            return f"({node[1]}{self.value(node[2])})"
        if kind == "bin":
            return f"({self.value(node[2])} {node[1]} {self.value(node[3])})"
        if kind == "at":
            return f"{self.value(node[1])}[{self.value(node[2])}]"
        if kind == "of":
            return f"{self.value(node[1])}.{node[2]}"
        return self._call(node[1], node[2], [self.value(a) for a in node[3]])

    def _call(self, name: str, kinds: Any, given: list[str]) -> str:
        name = self.module.aliases.get(name, name)
        if name in NAMES:
            return f"{NAMES[name]}({given[0]})"
        if name == "bitcast":
            return f"bits<{self.type(kinds[0])}>({given[0]})"
        if name == "select":
            return f"pick({', '.join(given)})"
        if name == "vec4":
            return f"vec4<{self.type(kinds[0])}>({', '.join(given)})"
        if name == "atomicLoad":
            return f"load({given[0]})"
        if name == "atomicStore":
            return f"*{given[0]} = {given[1]}"
        return f"{CALLS.get(name, name)}({', '.join(given)})"


def cuda(launch: Launch) -> str:
    """The kernel of a launch as CUDA."""
    return Writer(parse(launch.shader.source), dict(launch.shader.constants)).text()


def compiled(launch: Launch, arch: str = "sm_90", most: int = 255) -> dict[str, int]:
    """Registers, bytes spilled, instructions by kind. Errors  CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder) / "k.cu", Path(folder) / "k.cubin"
        source.write_text(cuda(launch), encoding="utf-8")
        order = [
            "nvcc",
            f"-arch={arch}",
            "-cubin",
            "-Xptxas",
            "-v",
            f"-maxrregcount={most}",
            "-o",
            str(binary),
        ]
        said = subprocess.run(
            [*order, str(source)],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        if said.returncode:
            raise RuntimeError(said.stderr[:2000])
        listing = ""
        if shutil.which("cuobjdump"):
            order = ["cuobjdump", "-sass", str(binary)]
            listing = subprocess.run(
                order, capture_output=True, text=True, check=True, timeout=300
            ).stdout
    found = {
        "registers": int(re.search(r"Used (\d+) registers", said.stderr)[1]),  # type: ignore[index]
        "spilled": int(re.search(r"(\d+) bytes spill stores", said.stderr)[1]),  # type: ignore[index]
    }
    names = re.findall(
        r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", listing
    )
    kinds = [name.split(".")[0] for name in names if not name.startswith("NOP")]
    if not kinds:
        return found
    found["instructions"] = len(kinds)
    for kind in ("FFMA", "FADD", "FMUL", "LOP3", "IMAD", "LDS", "STS", "LDG", "BAR"):
        found[kind] = kinds.count(kind)
    return found


if __name__ == "__main__":
    from tests.lanes.shapes import kernels

    for label, launch in kernels():
        if all(word in label for word in sys.argv[1:]):
            print(label, compiled(launch), flush=True)
