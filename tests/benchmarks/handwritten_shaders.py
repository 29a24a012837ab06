"""Shaders as an expert would write them for one fixed size: the reference for ours.

Their shapes follow what is known to be fast on a CPU driver: eight lanes a workgroup
and registers rather than shared tiles for the product, eight lanes a row for softmax,
four floats a lane for the chain. Sizes are baked in and there are no bounds checks,
which rlxweb's kernels do not allow themselves.
"""

from __future__ import annotations

ADD_SHADER = """
@group(0) @binding(0) var<storage, read_write> before: array<f32>;
@group(0) @binding(1) var<storage, read_write> after: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    after[id.x] = before[id.x] + 1.0;
}
"""


def fused_adds_shader(count: int) -> str:
    """Return a shader of `count` additions of one to each element, in registers."""
    return f"""
@group(0) @binding(0) var<storage, read_write> before: array<f32>;
@group(0) @binding(1) var<storage, read_write> after: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    var value = before[id.x];
    {"value += 1.0; " * count}
    after[id.x] = value;
}}
"""


def matmul_shader(rows: int, inner: int, columns: int) -> tuple[str, tuple[int, int]]:
    """Return source and grid of [rows, inner] @ [inner, columns].

    A workgroup of 8 lanes owns 8 rows and 64 columns, two vec4 of them a lane. All
    lanes read the same four numbers of the left matrix, so no tile is shared.
    """
    row_range, vector_range = range(8), range(2)
    sums = "\n    ".join(
        f"var s{i}{j} = vec4<f32>();" for i in row_range for j in vector_range
    )
    left = "\n        ".join(
        f"let a{i} = left[(top + {i}u) * {inner // 4}u + at];" for i in row_range
    )
    steps = []
    for component, name in enumerate("xyzw"):
        offset = f"(at * 4u + {component}u) * {columns // 4}u + column"
        loads = " ".join(
            f"let b{j} = right[{offset} + {8 * j}u];" for j in vector_range
        )
        products = "\n            ".join(
            f"s{i}{j} = fma(vec4<f32>(a{i}.{name}), b{j}, s{i}{j});"
            for i in row_range
            for j in vector_range
        )
        steps.append(f"{{ {loads}\n            {products} }}")
    stores = "\n    ".join(
        f"product[(top + {i}u) * {columns // 4}u + column + {8 * j}u] = s{i}{j};"
        for i in row_range
        for j in vector_range
    )
    source = f"""
@group(0) @binding(0) var<storage, read> left: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> right: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> product: array<vec4<f32>>;
@compute @workgroup_size(8)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {{
    let top = group.y * 8u;
    let column = group.x * 16u + lane;
    {sums}
    for (var at = 0u; at < {inner // 4}u; at++) {{
        {left}
        {"        ".join(steps)}
    }}
    {stores}
}}
"""
    return source, (columns // 64, rows // 8)


def softmax_shader(columns: int) -> str:
    """Return a softmax over rows of this many columns; one workgroup of 8 invocations
    per row.
    """
    steps = columns // 32
    return f"""
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
var<workgroup> lanes: array<f32, 8>;
@compute @workgroup_size(8)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {{
    let first = group.x * {columns // 4}u + lane;
    var top = x[first];
    for (var at = 1u; at < {steps}u; at++) {{ top = max(top, x[first + 8u * at]); }}
    lanes[lane] = max(max(top.x, top.y), max(top.z, top.w));
    workgroupBarrier();
    var highest = lanes[0];
    for (var at = 1u; at < 8u; at++) {{ highest = max(highest, lanes[at]); }}
    workgroupBarrier();
    var total = vec4<f32>();
    for (var at = 0u; at < {steps}u; at++) {{
        let e = exp(x[first + 8u * at] - highest);
        total += e;
        y[first + 8u * at] = e;
    }}
    lanes[lane] = total.x + total.y + total.z + total.w;
    workgroupBarrier();
    var whole = 0.0;
    for (var at = 0u; at < 8u; at++) {{ whole += lanes[at]; }}
    for (var at = 0u; at < {steps}u; at++) {{ y[first + 8u * at] *= 1.0 / whole; }}
}}
"""


# gelu in its tanh form, written as tanh and as the equal logistic function.
GELU_FORMS = {
    "tanh": "0.5 * t * (1.0 + tanh(0.7978845608 * (t + 0.044715 * t * t * t)))",
    "exp": "t / (1.0 + exp(-1.5957691216 * (t + 0.044715 * t * t * t)))",
}


def gelu_chain_shader(form: str, lanes: int = 256) -> str:
    """Return gelu(2x + 1) · y in one pass, four floats per invocation."""
    return f"""
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> y: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> z: array<vec4<f32>>;
@compute @workgroup_size({lanes})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    let t = x[id.x] * 2.0 + 1.0;
    z[id.x] = {GELU_FORMS[form]} * y[id.x];
}}
"""
