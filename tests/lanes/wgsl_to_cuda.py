"""Translate rlxweb's WGSL to CUDA, statement by statement, to see what nvcc makes of
it.

Registers, spills and instructions without a GPU: they say what a driver's compiler may
reach, not what Vulkan's does; naga's checks of bounds are not in it.

    `python -m tests.lanes.wgsl_to_cuda` prints a line a kernel; needs nvcc,
    cuobjdump for more
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

from rlxweb.codegen.kernel_launch_records import KernelLaunch
from tests.lanes.wgsl_parser import Node, ParsedFunction, ParsedModule, parse_wgsl

CUDA_TYPES = {"f32": "float", "u32": "unsigned", "i32": "int", "bool": "bool"}
CUDA_FUNCTIONS = {
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


class CudaTranslator:
    """Translator of one WGSL module to CUDA text."""

    def __init__(self, module: ParsedModule, constants: dict[str, int]) -> None:
        self.module, self.constants = module, constants

    def cuda_type(self, kind: Any) -> str:
        kind = self.module.aliases.get(kind, kind) if isinstance(kind, str) else kind
        if isinstance(kind, str):
            return CUDA_TYPES[kind]
        if kind[0] == "atomic":
            return self.cuda_type(kind[1])
        return f"V4<{self.cuda_type(kind[1])}>"

    def module_text(self) -> str:
        module = self.module
        fields = " ".join(
            f"{self.cuda_type(t)} {n};" for n, t in module.uniforms.items()
        )
        lines = [
            PRELUDE,
            f"struct Uniforms {{ {fields} }};",
            "__constant__ Uniforms u;",
        ]
        for name in module.overrides:
            lines.append(f"constexpr unsigned {name} = {self.constants[name]}u;")
        for name, (_, value) in module.constants.items():
            lines.append(f"constexpr auto {name} = {self.expression_text(value)};")
        for name, kind in module.storage.items():
            lines.append(f"__constant__ {self.cuda_type(kind[1])}* {name};")
        for name, kind in module.shared.items():
            cells = f"[{kind[2]}]" if kind[0] == "array" else ""
            element_type = kind[1] if kind[0] == "array" else kind
            lines.append(f"__shared__ {self.cuda_type(element_type)} {name}{cells};")
        for name, function in module.functions.items():
            lines.append(self._function_text(name, function))
        return "\n".join(lines)

    def _function_text(self, name: str, function: ParsedFunction) -> str:
        body = self._body_text(function.body)
        if name == "main":
            return (
                'extern "C" __global__ void __launch_bounds__(WG) kernel() {\n'
                "uint3 wid = blockIdx; uint3 nwg = {gridDim.x, gridDim.y, gridDim.z};\n"
                f"unsigned lid = threadIdx.x;\n{body}\n}}"
            )
        parameters = ", ".join(
            f"{'uint3' if kind == ('vec3', 'u32') else self.cuda_type(kind)} {n}"
            for n, kind in function.parameters
        )
        result = self.cuda_type(function.result) if function.result else "void"
        return f"D {result} {name}({parameters}) {{\n{body}\n}}"

    def _body_text(self, body: Sequence[Node]) -> str:
        return "\n".join(self._statement_text(statement) for statement in body)

    def _statement_text(self, statement: Node) -> str:
        kind = statement[0]
        if kind in ("let", "var"):
            _, name, declared, value = statement
            cuda_type = self.cuda_type(declared) if declared else "auto"
            start = f" = {self.expression_text(value)}" if value is not None else "{}"
            return f"{cuda_type} {name}{start};"
        if kind == "set":
            return (
                f"{self.expression_text(statement[1])} {statement[2]} "
                f"{self.expression_text(statement[3])};"
            )
        if kind == "do":
            return f"{self.expression_text(statement[1])};"
        if kind == "if":
            else_text = (
                f" else {{ {self._body_text(statement[3])} }}" if statement[3] else ""
            )
            return (
                f"if ({self.expression_text(statement[1])}) "
                f"{{ {self._body_text(statement[2])} }}{else_text}"
            )
        if kind == "for":
            first = self._statement_text(statement[1]) if statement[1] else ";"
            after = (
                self._statement_text(statement[3]).rstrip(";") if statement[3] else ""
            )
            head = f"for ({first} {self.expression_text(statement[2])}; {after})"
            return f"{head} {{ {self._body_text(statement[4])} }}"
        if kind == "return":
            return (
                f"return {self.expression_text(statement[1])};"
                if statement[1]
                else "return;"
            )
        if kind == "block":
            return f"{{ {self._body_text(statement[1])} }}"
        return f"{kind};"

    def expression_text(self, node: Node) -> str:
        kind = node[0]
        if kind == "num":
            text = str(node[1])
            plain = re.fullmatch(r"[\d.]+(e[-+]?\d+)?", text)
            return f"{text}f" if plain and set(text) & set(".e") else text
        if kind == "id":
            return str(node[1])
        if kind == "un":
            return f"({node[1]}{self.expression_text(node[2])})"
        if kind == "bin":
            return (
                f"({self.expression_text(node[2])} {node[1]} "
                f"{self.expression_text(node[3])})"
            )
        if kind == "at":
            return f"{self.expression_text(node[1])}[{self.expression_text(node[2])}]"
        if kind == "of":
            return f"{self.expression_text(node[1])}.{node[2]}"
        return self._call_text(
            node[1], node[2], [self.expression_text(a) for a in node[3]]
        )

    def _call_text(self, name: str, kinds: Any, arguments: list[str]) -> str:
        name = self.module.aliases.get(name, name)
        if name in CUDA_TYPES:
            return f"{CUDA_TYPES[name]}({arguments[0]})"
        if name == "bitcast":
            return f"bits<{self.cuda_type(kinds[0])}>({arguments[0]})"
        if name == "select":
            return f"pick({', '.join(arguments)})"
        if name == "vec4":
            return f"vec4<{self.cuda_type(kinds[0])}>({', '.join(arguments)})"
        if name == "atomicLoad":
            return f"load({arguments[0]})"
        if name == "atomicStore":
            return f"*{arguments[0]} = {arguments[1]}"
        return f"{CUDA_FUNCTIONS.get(name, name)}({', '.join(arguments)})"


def translate_to_cuda(launch: KernelLaunch) -> str:
    """Return the kernel of a launch as CUDA text."""
    return CudaTranslator(
        parse_wgsl(launch.shader.source), dict(launch.shader.overrides)
    ).module_text()


def compile_with_nvcc(
    launch: KernelLaunch, arch: str = "sm_90", max_registers: int = 255
) -> dict[str, int]:
    """Compile a launch with nvcc; return its registers, bytes spilled and instructions
    by kind.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder) / "k.cu", Path(folder) / "k.cubin"
        source.write_text(translate_to_cuda(launch), encoding="utf-8")
        command = [
            "nvcc",
            f"-arch={arch}",
            "-cubin",
            "-Xptxas",
            "-v",
            f"-maxrregcount={max_registers}",
            "-o",
            str(binary),
        ]
        output = subprocess.run(
            [*command, str(source)],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        if output.returncode:
            raise RuntimeError(output.stderr[:2000])
        listing = ""
        if shutil.which("cuobjdump"):
            command = ["cuobjdump", "-sass", str(binary)]
            listing = subprocess.run(
                command, capture_output=True, text=True, check=True, timeout=300
            ).stdout
    counts = {
        "registers": int(re.search(r"Used (\d+) registers", output.stderr)[1]),  # type: ignore[index]
        "spilled": int(re.search(r"(\d+) bytes spill stores", output.stderr)[1]),  # type: ignore[index]
    }
    names = re.findall(
        r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", listing
    )
    kinds = [name.split(".")[0] for name in names if not name.startswith("NOP")]
    if not kinds:
        return counts
    counts["instructions"] = len(kinds)
    for kind in ("FFMA", "FADD", "FMUL", "LOP3", "IMAD", "LDS", "STS", "LDG", "BAR"):
        counts[kind] = kinds.count(kind)
    return counts


if __name__ == "__main__":
    from tests.lanes.fft_welch_kernel_plans import labelled_launches

    for label, launch in labelled_launches():
        if all(word in label for word in sys.argv[1:]):
            print(label, compile_with_nvcc(launch), flush=True)
