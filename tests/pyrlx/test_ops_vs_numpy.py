"""Every op common to pyrlx and rlxweb, called through the pyrlx API and compared with
NumPy.

Shapes and dtypes are asked for while the graph is built, arrays and bytes are compared
after it ran.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import rlxweb
from tests.pyrlx import shim as rlx
from tests.pyrlx.image_cases import IMAGE_CASES

RNG = np.random.default_rng(7)
A = RNG.standard_normal((2, 3)).astype(np.float32)
B = RNG.uniform(0.5, 2.0, (2, 3)).astype(np.float32)
SQUARE = RNG.standard_normal((3, 4)).astype(np.float32)
ROWS = RNG.standard_normal((2, 8)).astype(np.float32)
HEADS = [RNG.standard_normal((1, 2, 5, 4)).astype(np.float32) for _ in range(3)]

NOT_IN_RLXWEB = {
    *("dense_solve", "batched_dense_solve", "custom_fn"),
    *("sample", "rope_n"),
}
"""Methods of pyrlx that rlxweb has no op for."""
SHAPE_INFERRED = {"lora_matmul"}
"""Methods that take no shape in rlxweb, because it follows from the operands."""
COMMON_METHODS = {
    *("constant", "set_outputs", "shape_of", "matmul", "matmul_with_shape"),
    *("fused_matmul_bias_act", "binary", "add", "sub", "mul", "div", "activation"),
    *("gelu", "gelu_approx", "silu", "relu", "exp", "sqrt", "neg", "tanh", "compare"),
    "stop_gradient",
    *("eq_", "lt_", "gt_", "ge_", "ne_", "where_", "reduce", "sum", "mean", "softmax"),
    *("cumsum", "reshape", "transpose", "narrow", "concat", "gather", "cast", "fft"),
    *("fft_norm", "fft_real", "rfft", "irfft", "fftfreq", "rfftfreq", "psd"),
    *("psd_real", "layer_norm", "rms_norm", "attention", "attention_kind"),
    *("rope", "resize_nearest_2x"),
    *("input", "param", "conv2d", "conv_transpose2d", "layer_norm2d", "group_norm"),
}


@dataclass(frozen=True)
class PyrlxOpCase:
    """Call of an op, its operands and NumPy's result."""

    call: Callable[..., Any]
    operands: tuple[np.ndarray[Any, Any], ...]
    want: Any
    tolerance: float = 1e-5

    def run(self) -> tuple[list[Any], list[tuple[list[int], str]]]:
        """Return (outputs, what `shape_of` predicted for them)."""
        g = rlx.Graph("case")
        nodes = [
            g.input(f"x{i}", list(a.shape), rlx.dtype_str(a.dtype))
            for i, a in enumerate(self.operands)
        ]
        results = self.call(g, *nodes)
        results = results if isinstance(results, tuple) else (results,)
        assert all(isinstance(number, int) for number in results)
        g.set_outputs(results)
        predicted = [g.shape_of(number) for number in results]
        inputs = {f"x{i}": a for i, a in enumerate(self.operands)}
        return rlx.Session(device="cpu").compile(g).run(inputs), predicted


def erf(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.vectorize(math.erf)(x)


def normalize_rows(x: Any, gamma: Any, beta: Any, is_centred: bool, eps: float) -> Any:
    mean = x.mean(-1, keepdims=True) if is_centred else 0.0
    deviation = np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + eps)
    return (x - mean) / deviation * gamma + beta


def attention_output(keep: Any) -> Any:
    """Return the attention output of HEADS, masked where `keep` is false."""
    q, k, v = (x.astype(float) for x in HEADS)
    scores = np.where(keep, q @ np.swapaxes(k, 2, 3) / 2.0, -1e9)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def real_imag_block(z: Any) -> Any:
    return np.concatenate([z.real, z.imag], -1)


ARITHMETIC = {"add": A + B, "sub": A - B, "mul": A * B, "div": A / B}
COMPARISONS = {
    **{"eq": A == B, "ne": A != B, "lt": A < B},
    **{"le": A <= B, "gt": A > B, "ge": A >= B},
}
REDUCTIONS = {name: getattr(np, name) for name in ("sum", "mean", "max", "min", "prod")}
ACTIVATIONS = {
    "gelu": B / 2 * (1 + erf(B / math.sqrt(2))),
    "gelu_approx": B
    / 2
    * (1 + np.tanh(math.sqrt(2 / math.pi) * (B + 0.044715 * B**3))),
    "silu": B / (1 + np.exp(-B)),
    "relu": np.maximum(A, 0),
    "sigmoid": 1 / (1 + np.exp(-B)),
    "tanh": np.tanh(B),
    "exp": np.exp(B),
    "log": np.log(B),
    "sqrt": np.sqrt(B),
    "rsqrt": 1 / np.sqrt(B),
    "neg": -B,
    "abs": np.abs(A),
}
ACTIVATION_METHODS = (
    "gelu",
    "gelu_approx",
    "silu",
    "relu",
    "exp",
    "sqrt",
    "neg",
    "tanh",
)
SIGNED_INPUT = ("relu", "abs")
INDEX = np.array([2, 0], np.int64)
GAMMA, BETA = B[0], A[1]
SPECTRUM = np.fft.fft(ROWS)
HALF_SPECTRUM = np.fft.rfft(ROWS)
CAUSAL = np.tril(np.ones((5, 5), bool))
SLIDING = CAUSAL & ~np.tril(np.ones((5, 5), bool), -3)
KEY_MASK = np.array([[1, 1, 0, 1, 0]], np.float32)

ANGLES = RNG.uniform(0, 7, (5, 2))
COS, SIN = np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)
ROPE_INPUT = RNG.standard_normal((2, 5, 12)).astype(np.float32)


def rotate_heads(x: Any) -> Any:
    """Rotate heads of 4 elements: elements i and i + 2 by the angle of position and
    i.
    """
    heads = x.reshape(*x.shape[:2], -1, 2, 2)
    cos, sin = COS[:, None], SIN[:, None]
    first, second = heads[..., 0, :], heads[..., 1, :]
    rotated = first * cos - second * sin, second * cos + first * sin
    return np.stack(rotated, -2).reshape(x.shape)


CASES = {
    **{
        f"rope {count} heads": PyrlxOpCase(
            lambda g, x, c, s: g.rope(x, c, s, head_dim=4),
            (ROPE_INPUT[..., : 4 * count], COS, SIN),
            rotate_heads(ROPE_INPUT[..., : 4 * count]),
        )
        for count in (1, 2, 3)
    },
    **{
        f"binary {n}": PyrlxOpCase(lambda g, x, y, n=n: g.binary(n, x, y), (A, B), want)
        for n, want in ARITHMETIC.items()
    },
    **{
        n: PyrlxOpCase(lambda g, x, y, n=n: getattr(g, n)(x, y), (A, B), want)
        for n, want in ARITHMETIC.items()
    },
    "binary max": PyrlxOpCase(
        lambda g, x, y: g.binary("max", x, y), (A, B), np.maximum(A, B)
    ),
    "binary min": PyrlxOpCase(
        lambda g, x, y: g.binary("min", x, y), (A, B), np.minimum(A, B)
    ),
    "binary pow": PyrlxOpCase(lambda g, x, y: g.binary("pow", x, y), (B, A), B**A),
    "binary -": PyrlxOpCase(lambda g, x, y: g.binary("-", x, y), (A, B), A - B),
    "stop_gradient": PyrlxOpCase(lambda g, x: g.stop_gradient(x), (A,), A),
    "mul broadcast": PyrlxOpCase(lambda g, x, y: g.mul(x, y), (A, B[0]), A * B[0]),
    **{
        f"compare {n}": PyrlxOpCase(
            lambda g, x, y, n=n: g.compare(n, x, y), (A, B), want
        )
        for n, want in COMPARISONS.items()
    },
    "compare <=": PyrlxOpCase(lambda g, x, y: g.compare("<=", x, y), (A, B), A <= B),
    **{
        f"{n}_": PyrlxOpCase(
            lambda g, x, y, n=n: getattr(g, n + "_")(x, y), (A, B), COMPARISONS[n]
        )
        for n in ("eq", "lt", "gt", "ge", "ne")
    },
    "where_": PyrlxOpCase(
        lambda g, c, x, y: g.where_(c, x, y), (A > 0, A, B), np.where(A > 0, A, B)
    ),
    **{
        f"activation {n}": PyrlxOpCase(
            lambda g, x, n=n: g.activation(n, x), (A if n in SIGNED_INPUT else B,), want
        )
        for n, want in ACTIVATIONS.items()
    },
    **{
        n: PyrlxOpCase(
            lambda g, x, n=n: getattr(g, n)(x),
            (A if n in SIGNED_INPUT else B,),
            ACTIVATIONS[n],
        )
        for n in ACTIVATION_METHODS
    },
    **{
        f"reduce {n}": PyrlxOpCase(
            lambda g, x, n=n: g.reduce(x, n, [1], True), (A,), f(A, 1, keepdims=True)
        )
        for n, f in REDUCTIONS.items()
    },
    "sum": PyrlxOpCase(lambda g, x: g.sum(x, [0], keep_dim=False), (A,), A.sum(0)),
    "mean": PyrlxOpCase(
        lambda g, x: g.mean(x, [0, 1], keep_dim=True), (A,), A.mean(keepdims=True)
    ),
    "softmax": PyrlxOpCase(
        lambda g, x: g.softmax(x), (A,), np.exp(A) / np.exp(A).sum(-1, keepdims=True)
    ),
    "cumsum": PyrlxOpCase(lambda g, x: g.cumsum(x, axis=-1), (A,), A.cumsum(-1)),
    "cumsum exclusive": PyrlxOpCase(
        lambda g, x: g.cumsum(x, 1, exclusive=True), (A,), A.cumsum(1) - A, 1e-4
    ),
    "matmul": PyrlxOpCase(lambda g, x, y: g.matmul(x, y), (A, SQUARE), A @ SQUARE),
    "matmul_with_shape": PyrlxOpCase(
        lambda g, x, y: g.matmul_with_shape(x, y, [2, 4], "f32"),
        (A, SQUARE),
        A @ SQUARE,
    ),
    "fused_matmul_bias_act": PyrlxOpCase(
        lambda g, x, w, b: g.fused_matmul_bias_act(x, w, b, [2, 4], "f32", "relu"),
        (A, SQUARE, SQUARE[0]),
        np.maximum(A @ SQUARE + SQUARE[0], 0),
    ),
    "reshape": PyrlxOpCase(lambda g, x: g.reshape(x, [3, 2]), (A,), A.reshape(3, 2)),
    "transpose": PyrlxOpCase(lambda g, x: g.transpose(x, [1, 0]), (A,), A.T),
    "narrow": PyrlxOpCase(lambda g, x: g.narrow(x, 1, 1, 2), (A,), A[:, 1:3]),
    "concat": PyrlxOpCase(
        lambda g, x, y: g.concat([x, y], axis=1), (A, B), np.hstack([A, B])
    ),
    "gather": PyrlxOpCase(
        lambda g, t, i: g.gather(t, i, axis=0), (SQUARE, INDEX), SQUARE[INDEX]
    ),
    "cast": PyrlxOpCase(lambda g, x: g.cast(x, "f16"), (A,), A.astype(np.float16), 0),
    "layer_norm": PyrlxOpCase(
        lambda g, x, c, b: g.layer_norm(x, c, b),
        (A, GAMMA, BETA),
        normalize_rows(A, GAMMA, BETA, True, 1e-5),
    ),
    "layer_norm eps": PyrlxOpCase(
        lambda g, x, c, b: g.layer_norm(x, c, b, -1, 0.5),
        (A, GAMMA, BETA),
        normalize_rows(A, GAMMA, BETA, True, 0.5),
    ),
    "rms_norm": PyrlxOpCase(
        lambda g, x, c, b: g.rms_norm(x, c, b, 1e-3),
        (A, GAMMA, BETA),
        normalize_rows(A, GAMMA, BETA, False, 1e-3),
    ),
    **{name: PyrlxOpCase(*case) for name, case in IMAGE_CASES.items()},
    "attention": PyrlxOpCase(
        lambda g, q, k, v, m: g.attention(q, k, v, m, 2, 4),
        (*HEADS, KEY_MASK),
        attention_output(KEY_MASK > 0),
    ),
    "attention_kind none": PyrlxOpCase(
        lambda g, q, k, v: g.attention_kind(q, k, v, 2, 4, "none"),
        (*HEADS,),
        attention_output(True),
    ),
    "attention_kind causal": PyrlxOpCase(
        lambda g, q, k, v: g.attention_kind(
            q, k, v, num_heads=2, head_dim=4, mask_kind="causal"
        ),
        (*HEADS,),
        attention_output(CAUSAL),
    ),
    "attention_kind sliding": PyrlxOpCase(
        lambda g, q, k, v: g.attention_kind(q, k, v, 2, 4, "sliding:2"),
        (*HEADS,),
        attention_output(SLIDING),
    ),
    "fft_real": PyrlxOpCase(
        lambda g, x: g.fft_real(x, norm="forward"),
        (ROWS,),
        (SPECTRUM.real, SPECTRUM.imag),
    ),
    "rfft": PyrlxOpCase(
        lambda g, x: g.rfft(x), (ROWS,), (HALF_SPECTRUM.real, HALF_SPECTRUM.imag)
    ),
    "rfft forward": PyrlxOpCase(
        lambda g, x: g.rfft(x, norm="forward"),
        (ROWS,),
        (HALF_SPECTRUM.real, HALF_SPECTRUM.imag),
    ),
    "rfft ortho": PyrlxOpCase(
        lambda g, x: g.rfft(x, norm="ortho"),
        (ROWS,),
        (HALF_SPECTRUM.real / 8**0.5, HALF_SPECTRUM.imag / 8**0.5),
    ),
    **{
        f"irfft {n}": PyrlxOpCase(
            lambda g, x, n=n: g.irfft(*g.rfft(x, norm=n), 8, norm=n),
            (ROWS,),
            ROWS * scale,
        )
        for n, scale in (
            ("backward", 8),
            ("none", 8),
            ("forward", 1),
            ("ortho", 1),
            ("orthonormal", 1),
        )
    },
    "psd": PyrlxOpCase(lambda g, x, y: g.psd(x, y), (A, B), (A**2 + B**2) / 3),
    "psd_real": PyrlxOpCase(
        lambda g, x: g.psd_real(x), (ROWS,), np.abs(HALF_SPECTRUM) ** 2 / 5
    ),
    "fftfreq": PyrlxOpCase(
        lambda g: g.fftfreq(8),
        (),
        np.append(np.fft.fftfreq(8)[:4], [0.5, -0.375, -0.25, -0.125]),
    ),
    "fftfreq odd": PyrlxOpCase(lambda g: g.fftfreq(5), (), np.fft.fftfreq(5)),
    "rfftfreq": PyrlxOpCase(lambda g: g.rfftfreq(8), (), np.fft.rfftfreq(8)),
}


@pytest.mark.parametrize("name", CASES)
def test_op_agrees_with_numpy(name: str) -> None:
    """An op returns NumPy's value, and its shape and dtype are known before it runs."""
    case = CASES[name]
    outs, predicted = case.run()
    wanted = case.want if isinstance(case.want, tuple) else (case.want,)
    for out, want, (shape, dtype) in zip(outs, wanted, predicted, strict=True):
        assert list(out.shape) == shape == list(np.shape(want))
        assert rlx.dtype_str(out.dtype) == dtype
        tolerance = {"rtol": case.tolerance, "atol": case.tolerance}
        np.testing.assert_allclose(out, want, **tolerance)


@pytest.mark.parametrize(
    ("norm_name", "forward_scale", "round_trip_scale"),
    [
        ("backward", 1, 8),
        ("none", 1, 8),
        ("forward", 1, 1),
        ("ortho", 8**-0.5, 1),
        ("orthonormal", 8**-0.5, 1),
    ],
)
def test_norm_names_mean_the_same_as_in_rlx(
    norm_name: str,
    forward_scale: float,
    round_trip_scale: float,
    rng: np.random.Generator,
) -> None:
    """A norm's name scales the transform and the round trip as in RLX."""
    z = rng.standard_normal((2, 8)) + 1j * rng.standard_normal((2, 8))
    x = real_imag_block(z).astype(np.float32)

    def transform_and_back(g: Any, node: int) -> tuple[int, int]:
        transformed = g.fft_norm(node, inverse=False, norm=norm_name)
        return transformed, g.fft_norm(transformed, inverse=True, norm=norm_name)

    (transformed, round_trip), _ = PyrlxOpCase(transform_and_back, (x,), None).run()
    np.testing.assert_allclose(
        transformed, real_imag_block(np.fft.fft(z)) * forward_scale, atol=1e-4
    )
    np.testing.assert_allclose(round_trip, x * round_trip_scale, atol=1e-4)


def test_fft_round_trip() -> None:
    """Pyrlx scales neither transform by default; rlxweb divides the inverse by N."""
    for round_trip in (
        lambda g, x: g.fft(g.fft(x), True),
        lambda g, x: g.fft_norm(g.fft_norm(x), inverse=True),
        lambda g, x: g.mul(
            g.constant(4.0), g.inner.fft(g.inner.fft(g.tensor(x)), True).id
        ),
    ):
        (out,), _ = PyrlxOpCase(round_trip, (ROWS,), None).run()
        np.testing.assert_allclose(out, 4 * ROWS, atol=1e-4)


def test_every_pyrlx_method_is_tested_or_known_to_be_missing() -> None:
    """Every method of pyrlx is in the table above or known to be missing."""
    assert not NOT_IN_RLXWEB & {n for n in dir(rlxweb.rlx.Graph) if n[0] != "_"}
    tested = {name.split()[0] for name in CASES} | {"fft", "fft_norm"}
    leaves = {"input", "param", "constant", "set_outputs", "shape_of"}
    assert COMMON_METHODS == tested | leaves
    assert {n for n in dir(rlxweb.rlx.Graph) if n[0] != "_"} >= SHAPE_INFERRED


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(2.5, "f32"), (-1.0, "f64"), (7.0, "i32"), (1.0, "bool"), (1.5, "f16")],
)
def test_constants_take_their_dtype(value: float, dtype: str) -> None:
    g = rlx.Graph("constant")
    node = g.constant(value, dtype)
    assert g.shape_of(node) == ([], dtype)
    assert g.shape_of(g.constant(2.0)) == ([], "f32")
    g.set_outputs([node])
    ((raw, label),) = rlx.Session().compile(g).run_typed({})
    assert label == dtype
    assert np.frombuffer(raw, rlx.numpy_dtype(dtype))[0] == value


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (3e9, "i32", "out of range"),
        (-1.0, "u32", "out of range"),
        (2.5, "i32", "not an integer"),
        (2.0, "bool", "out of range"),
        (10**30, "i64", r"2\*\*53"),
    ],
)
def test_unrepresentable_constants_are_rejected(
    value: float, dtype: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        rlx.Graph("constant").constant(value, dtype)


def test_mistakes_are_value_errors() -> None:
    g = rlx.Graph("mistakes")
    x, y = g.input("x", [2, 3], "f32"), g.input("y", [4], "f32")
    for call in (
        lambda: g.matmul(x, x),
        lambda: g.add(x, y),
        lambda: g.compare("=>", x, x),
        lambda: g.binary("plus", x, x),
        lambda: g.reduce(x, "median", [0], False),
        lambda: g.reshape(x, [5]),
        lambda: g.cast(x, "i7"),
        lambda: g.input("x", [1], "f32"),
        lambda: g.attention_kind(x, x, x, 1, 3, "diagonal"),
    ):
        with pytest.raises(ValueError, match=r"."):
            call()


def test_a_whole_graph_with_params() -> None:
    """A whole graph compiles once, with params by name as bytes or arrays.

    The graph is used up by it.
    """
    g = rlx.Graph("layer")
    x = g.input("x", [2, 3], "f32")
    w, b = g.param("w", [3, 4], "f32"), g.param("b", [4], "f32")
    g.set_outputs([g.softmax(g.gelu(g.add(g.matmul(x, w), b)))])
    assert len(g) == 7
    session = rlx.Session(device="cpu", precision="f32")
    compiled = session.compile(g)
    compiled.set_param("w", SQUARE.ravel())
    compiled.set_param_typed("b", SQUARE[0].tobytes(), "f32")
    (out,) = compiled.run({"x": A})
    h = A @ SQUARE + SQUARE[0]
    h = np.exp(h / 2 * (1 + erf(h / math.sqrt(2))))
    np.testing.assert_allclose(out, h / h.sum(-1, keepdims=True), rtol=1e-5)
    (flat,) = compiled.run_flat({"x": A.ravel()})
    np.testing.assert_array_equal(flat, out.ravel())
    ((raw, dtype),) = compiled.run_typed({"x": (A.tobytes(), "f32")})
    assert (raw, dtype) == (out.tobytes(), "f32")
    unfused = rlx.FusionOptions(skip_fusion=True)
    for options in (unfused, rlx.FusionOptions(), None):
        g = rlx.Graph("same")
        x = g.input("x", [2, 3], "f32")
        g.set_outputs([g.mul(g.add(x, x), x)])
        (out2,) = session.compile_with(g, fusion_options=options).run({"x": A})
        np.testing.assert_allclose(out2, (A + A) * A, rtol=1e-6)
    with pytest.raises(RuntimeError, match="compiled already"):
        session.compile(g)
    assert (session.device, session.precision, compiled.device) == ("cpu", "f32", "cpu")
    assert "cpu" in repr(session)


def cubes_graph() -> tuple[rlx.Graph, int, int]:
    """Return the graph of the sum of w x³, with the node numbers of x and w."""
    g = rlx.Graph("cubes")
    x, w = g.input("x", [4], "f32"), g.param("w", [4], "f32")
    cube = g.mul(g.mul(x, x), x)
    g.set_outputs([g.sum(g.mul(w, cube), [0], False)])
    return g, x, w


@pytest.mark.parametrize("name", ["grad", "jvp", "hvp", "nth", "directional", "vmap"])
def test_derivatives_of_graphs(name: str) -> None:
    """Derivative graphs have pyrlx's input names and output order; the graph stays
    usable.
    """
    x, v, w = np.random.default_rng(3).standard_normal((3, 4)).astype(np.float32)
    loss, slope, curvature = np.sum(w * x**3), 3 * w * x**2, 6 * w * x
    g, x_node, w_node = cubes_graph()
    derived, inputs, want = {
        "grad": lambda: (
            rlx.grad(g, [x_node, w_node]),
            {"d_output": np.float32(2)},
            [loss, 2 * slope, 2 * x**3],
        ),
        "jvp": lambda: (rlx.jvp(g, [x_node]), {"tangent_x": v}, [loss, slope @ v]),
        "hvp": lambda: (
            rlx.hvp(g, [x_node]),
            {"tangent_x": v},
            [loss, slope, slope @ v, curvature * v],
        ),
        "nth": lambda: (rlx.nth_order_grad(g, "x", 2), {}, [curvature]),
        "directional": lambda: (
            rlx.directional_nth_grad(g, "x", 3),
            {"dir_0": v, "dir_1": v, "dir_2": x},
            [np.sum(6 * w * v * v * x)],
        ),
        "vmap": lambda: (
            rlx.vmap(g, ["x"], 2),
            {"x": np.stack([x, v])},
            [np.array([loss, np.sum(w * v**3)])],
        ),
    }[name]()
    compiled = rlx.Session(device="cpu").compile(derived)
    compiled.set_param("w", w)
    outs = compiled.run({"x": x, **inputs})
    for out, expected in zip(outs, want, strict=True):
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    assert g.shape_of(x_node) == ([4], "f32")


def test_invalid_head_dim_and_resize_input_are_rejected() -> None:
    g = rlxweb.Graph("refused")
    x, c = g.input("x", (2, 5, 12)), g.input("c", (5, 2))
    for options, rule in (
        ({"head_dim": 5}, "head_dim must be >= 1 and divide"),
        ({"head_dim": 0}, "head_dim must be >= 1 and divide"),
        ({"head_dim": 4, "num_heads": 2}, "must have num_heads · head_dim elements"),
    ):
        with pytest.raises(ValueError, match=rule):
            g.rope(x, c, c, **options)
    assert g.rope(x, c, c, head_dim=4, num_heads=3).shape == (2, 5, 12)
    with pytest.raises(
        ValueError, match=r"the array has 3 axes; expected \[N, C, H, W\]"
    ):
        g.resize_nearest_2x(x)
