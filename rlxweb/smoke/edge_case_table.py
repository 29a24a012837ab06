"""Table of arithmetic edge cases by topic, in the order of the manual's table."""

from __future__ import annotations

from rlxweb.ir.graph import Graph
from rlxweb.smoke.edge_cases import Build, EdgeCase

NAN, INF = float("nan"), float("inf")
I32_MIN, I32_MAX, U32_MAX = -(2**31), 2**31 - 1, 2**32 - 1
F16_MIN_SUBNORMAL = 6e-8

OperandValues = tuple[float, ...]
EdgeCaseRow = (
    tuple[str, Build, OperandValues] | tuple[str, Build, OperandValues, OperandValues]
)


def _topic_cases(
    topic: str, dtypes: str, *rows: EdgeCaseRow, is_guaranteed: bool = True
) -> list[EdgeCase]:
    """Return the edge cases of one topic over operands of these dtypes."""
    dtype_names = tuple(dtypes.split())
    return [
        EdgeCase(
            topic,
            expression,
            build,
            tuple(operand_values),
            dtype_names[: len(operand_values)],
            is_guaranteed,
        )
        for expression, build, *operand_values in rows
    ]


def _cast_to(dtype: str) -> Build:
    """Return a build function that casts its operand."""
    return lambda g, x: g.cast(x, dtype)


EDGE_CASES: tuple[EdgeCase, ...] = (
    *_topic_cases(
        "NaN",
        "f32 f32",
        ("maximum(x, y)", Graph.maximum, (NAN, 1, NAN), (1, NAN, NAN)),
        ("minimum(x, y)", Graph.minimum, (NAN, 1, NAN), (1, NAN, NAN)),
        ("max(x), of all", lambda g, x: g.max(x), (1, NAN, 2)),
        ("sum(x), of all", lambda g, x: g.sum(x), (1, NAN, 2)),
        ("relu(x)", Graph.relu, (NAN, -INF, INF)),
        ("ne(x, x)", lambda g, x: g.ne(x, x), (NAN, INF, 1)),
        ("x < y", Graph.lt, (NAN, 1, NAN), (1, NAN, NAN)),
        ("x >= y", Graph.ge, (NAN, 1, NAN), (1, NAN, NAN)),
        (
            "where(x > 0, x, y)",
            lambda g, x, y: g.where(g.gt(x, 0.0), x, y),
            (NAN,),
            (7,),
        ),
        ("topk(x, 4)", lambda g, x: g.topk(x, 4), (1, NAN, 3, -INF)),
        ("softmax(x)", lambda g, x: g.softmax(x), (0, NAN)),
        ("cumsum(x)", lambda g, x: g.cumsum(x), (1, NAN, 1)),
    ),
    *_topic_cases(
        "infinity",
        "f32 f32",
        ("x - y", Graph.sub, (INF, INF, 1), (INF, -INF, INF)),
        ("x * y", Graph.mul, (INF, INF), (0, -2)),
        ("x / y", Graph.div, (INF, 1, -1), (INF, INF, INF)),
        ("exp(x)", Graph.exp, (1000, -1000, INF, -INF)),
        ("log(x)", Graph.log, (0, -1, INF)),
        ("sqrt(x)", Graph.sqrt, (-1, INF)),
        ("rsqrt(x)", Graph.rsqrt, (0, -1, INF)),
        ("sigmoid(x)", Graph.sigmoid, (-INF, INF, -1000)),
        ("tanh(x)", Graph.tanh, (-INF, INF, 1000)),
        ("gelu(x)", Graph.gelu, (-INF, INF, NAN)),
        ("silu(x)", Graph.silu, (-INF, INF, NAN)),
        ("sin(x)", Graph.sin, (INF, NAN)),
        ("atan(x)", Graph.atan, (-INF, INF)),
        ("softmax(x)", lambda g, x: g.softmax(x), (INF, 0)),
        ("softmax(x)", lambda g, x: g.softmax(x), (-INF, 0, -INF)),
        (
            "cumsum(x, exclusive)",
            lambda g, x: g.cumsum(x, exclusive=True),
            (0.5, 1e30, INF, 1),
        ),
    ),
    *_topic_cases(
        "power",
        "f32 f32",
        ("pow(x, y)", Graph.pow, (3, 3, -2, -2), (3e6, -3e6, 3, 0.5)),
        ("pow(x, y)", Graph.pow, (0, NAN, 1, 0), (0, 0, NAN, -1)),
        ("pow(x, y)", Graph.pow, (-1, -INF, 0.5), (INF, 3, INF)),
    ),
    *_topic_cases(
        "division by zero",
        "f32 f32",
        ("x / y", Graph.div, (1, -1, 0), (0, 0, 0)),
    ),
    *_topic_cases(
        "division by zero",
        "i32 i32",
        ("x / y, i32", Graph.div, (7, -7, 0, I32_MIN), (0, 0, 0, -1)),
        ("x / y, i32", Graph.div, (-7, 7), (2, -2)),
    ),
    *_topic_cases(
        "division by zero", "u32 u32", ("x / y, u32", Graph.div, (5, 0), (0, 0))
    ),
    *_topic_cases(
        "integer overflow",
        "i32 i32",
        ("x + y, i32", Graph.add, (I32_MAX, I32_MIN), (1, -1)),
        ("x * y, i32", Graph.mul, (65536, 46341), (65536, 46341)),
        ("-x, i32", Graph.neg, (I32_MIN,)),
        ("abs(x), i32", Graph.abs, (I32_MIN,)),
        ("sum(x), i32", lambda g, x: g.sum(x), (I32_MAX, 1)),
        ("cumsum(x), i32", lambda g, x: g.cumsum(x), (I32_MAX, 1, 1)),
    ),
    *_topic_cases(
        "integer overflow",
        "u32 u32",
        ("x - y, u32", Graph.sub, (0,), (1,)),
        ("x * y, u32", Graph.mul, (U32_MAX,), (2,)),
    ),
    *_topic_cases(
        "cast",
        "f32",
        ("f32 to i32", _cast_to("i32"), (3e9, -3e9, NAN, INF, -1.9, 1.9)),
        ("f32 to u32", _cast_to("u32"), (5e9, -1, NAN, 1.9)),
        ("f32 to bool", _cast_to("bool"), (NAN, 0.5, -0.0)),
        ("f32 to f16", _cast_to("f16"), (70000, 65519, 1.0005, -INF, NAN)),
    ),
    *_topic_cases(
        "cast",
        "i32",
        ("i32 to f32", _cast_to("f32"), (16777217, I32_MAX, I32_MIN)),
        ("i32 to u32", _cast_to("u32"), (-1, I32_MIN)),
    ),
    *_topic_cases(
        "cast",
        "u32",
        ("u32 to f32", _cast_to("f32"), (U32_MAX, 16777217)),
        ("u32 to i32", _cast_to("i32"), (4_000_000_000,)),
    ),
    *_topic_cases(
        "rounding",
        "f32 f32",
        ("(x + y) - y", lambda g, x, y: (x + y) - y, (1, 3), (1e8, 1e8)),
        ("round(x)", Graph.round, (0.5, 1.5, 2.5, -2.5)),
        ("sin(x)", Graph.sin, (1e6, 1e30)),
    ),
    *_topic_cases(
        "denormal numbers",
        "f32 f32",
        ("x, moved", lambda g, x: g.concat([x, x]), (1e-40,)),
        ("x + y", Graph.add, (1e-40, 1e-38), (0, -0.9e-38)),
        ("x * y", Graph.mul, (1e-40, 1e-20), (2, 1e-20)),
        ("x / y", Graph.div, (1e-38, 1e-40), (4, 1e-40)),
        ("x > 0", lambda g, x: g.gt(x, 0.0), (1e-40,)),
        ("sqrt(x)", Graph.sqrt, (1e-40,)),
        ("exp(x)", Graph.exp, (-90, -100)),
        ("sum(x)", lambda g, x: g.sum(x), (1e-40, 1e-40)),
        ("f32 to f16", _cast_to("f16"), (F16_MIN_SUBNORMAL, 1e-8)),
        is_guaranteed=False,
    ),
    *_topic_cases(
        "denormal numbers",
        "f16 f16",
        ("x + y, f16", Graph.add, (F16_MIN_SUBNORMAL,), (0,)),
        is_guaranteed=False,
    ),
    *_topic_cases(
        "sign of zero",
        "f32 f32",
        ("x, moved", lambda g, x: g.concat([x, x]), (-0.0,)),
        ("-x", Graph.neg, (0.0,)),
        ("x * y", Graph.mul, (0.0,), (-1,)),
        ("x + y", Graph.add, (-0.0,), (-0.0,)),
        ("1 / x", lambda g, x: 1.0 / x, (-0.0,)),
        ("sqrt(x)", Graph.sqrt, (-0.0,)),
        ("round(x)", Graph.round, (-0.4,)),
        ("maximum(x, y)", Graph.maximum, (-0.0, 0.0), (0.0, -0.0)),
        ("minimum(x, y)", Graph.minimum, (-0.0, 0.0), (0.0, -0.0)),
        ("pow(x, y)", Graph.pow, (-0.0, -0.0), (3, -3)),
        is_guaranteed=False,
    ),
    *_topic_cases(
        "transforms",
        "f32",
        ("rfft(x)", lambda g, x: g.rfft_block(x), (1, NAN, 0, 0)),
        ("rfft(x)", lambda g, x: g.rfft_block(x), (1, INF, 0, 0)),
        ("rfft(x)", lambda g, x: g.rfft_block(x), (1e38, 1e38, 1e38, 1e38)),
        is_guaranteed=False,
    ),
)
