"""Models of ai.onnx.ml as ONNX Runtime computes them on its CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.errors import ModelError, Unsupported
from tests.onnx.made import model, node, value
from tests.onnx.test_saving import runtime

DOMAIN = "ai.onnx.ml"
RNG = np.random.default_rng(3)
X = np.round(RNG.standard_normal((7, 4)), 1).astype(np.float32)
WHOLE = RNG.integers(-3, 4, (5, 4))
ODD = X.copy()
ODD[RNG.random(X.shape) < 0.3] = np.nan
NUMBERS = {"float32": 1, "float64": 11, "int64": 7}


def made(op: str, x: Any, outputs: int = 1, **attrs: Any) -> Any:
    xs = x if isinstance(x, tuple) else (x,)
    names = [f"x{at}" for at in range(len(xs))]
    out = [f"y{at}" for at in range(outputs)]
    one = node(op, names, out, domain=DOMAIN, **attrs)
    whole = {"y0"} if outputs == 2 or op == "LabelEncoder" else set()
    results = [value(name, None, 7 if name in whole else 1) for name in out]
    inputs = [
        value(name, ["N", *a.shape[1:]], NUMBERS[str(a.dtype)])
        for name, a in zip(names, xs, strict=True)
    ]
    opsets = {
        "": 17,
        DOMAIN: 5 if op == "TreeEnsemble" else 4 if op == "LabelEncoder" else 3,
    }
    if op == "Imputer" and xs[0].dtype == np.int64:
        results = [value("y0", None, 7)]
    return model([one], inputs, results, opsets=opsets).SerializeToString()


def trees(
    rng: np.random.Generator,
    count: int,
    depth: int,
    modes: tuple[str, ...] = ("LEQ",),
    missing: bool = False,
) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """Random trees over four features, and the (tree, number) of their leaves."""
    rows: list[Any] = []
    leaves = []

    def grown(tree: int, number: int, left: int) -> int:
        """Adds a branch; gives the next free number."""
        if not left or (number and rng.random() < 0.3):
            rows.append((tree, number, 0, 0.0, "LEAF", 0, 0, 0))
            leaves.append((tree, number))
            return number + 1
        at = len(rows)
        rows.append(None)
        no = grown(tree, number + 1, left - 1)
        free = grown(tree, no, left - 1)
        split = np.round(rng.standard_normal(), 1)
        mode = "BRANCH_" + modes[rng.integers(len(modes))]
        track = int(missing and rng.random() < 0.5)
        rows[at] = (tree, number, rng.integers(4), split, mode, number + 1, no, track)
        return free

    for tree in range(count):
        grown(tree, 0, depth)
    names = "treeids nodeids featureids values modes truenodeids falsenodeids"
    keys = [*names.split(), "missing_value_tracks_true"]
    columns = zip(*rows, strict=True)
    return {f"nodes_{k}": list(c) for k, c in zip(keys, columns, strict=True)}, leaves


def voted(
    rng: np.random.Generator, kind: str, leaves: Any, ids: Any, signed: bool = True
) -> dict[str, Any]:
    """A weight of each leaf for each of the ids."""
    every = [(*leaf, one) for leaf in leaves for one in ids]
    weights = rng.uniform(-1 if signed else 0, 1, len(every)) / 5
    names = ("treeids", "nodeids", "ids")
    columns = zip(*every, strict=True)
    lists = {f"{kind}_{n}": list(c) for n, c in zip(names, columns, strict=True)}
    return {**lists, f"{kind}_weights": weights.tolist()}


def regressor(
    rng: np.random.Generator,
    x: Any,
    targets: int = 1,
    grow: tuple[Any, ...] = (9, 5),
    **attrs: Any,
) -> Any:
    nodes, leaves = trees(rng, *grow)
    weights = voted(rng, "target", leaves, range(targets))
    return (
        "TreeEnsembleRegressor",
        x,
        1,
        {**nodes, **weights, "n_targets": targets, **attrs},
    )


def classifier(
    rng: np.random.Generator,
    classes: int,
    ids: Any,
    signed: bool = True,
    sparse: bool = False,
    **attrs: Any,
) -> Any:
    nodes, leaves = trees(rng, 9, 4)
    weights = voted(rng, "class", leaves, ids, signed)
    if sparse:
        weights = {k: v[::2] for k, v in weights.items()}
    labels = {"classlabels_int64s": [3 * n - 2 for n in range(classes)]}
    return "TreeEnsembleClassifier", X, 2, {**nodes, **weights, **labels, **attrs}


EVERY = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")
LINEAR = {"coefficients": RNG.standard_normal(12).tolist(), "intercepts": [0.1, 0, -1]}
SUPPORT = {
    "coefficients": [0.5, -1.0, 0.25],
    "kernel_params": [0.4, 0.3, 3.0],
    "n_supports": 3,
    "rho": [0.2],
    "support_vectors": RNG.standard_normal(12).tolist(),
}


def machine(
    sizes: tuple[int, ...], kind: str = "RBF", likely: bool = False, **attrs: Any
) -> Any:
    """A classifier of so many support vectors of each class."""
    classes, vectors = len(sizes), sum(sizes)
    pairs = classes * (classes - 1) // 2
    rng = np.random.default_rng(vectors)
    lists: dict[str, Any] = {
        "coefficients": rng.standard_normal((classes - 1) * vectors),
        "support_vectors": rng.standard_normal(4 * vectors),
        "rho": rng.standard_normal(pairs) / 9,
    }
    if likely:
        lists["prob_a"] = -rng.uniform(0.5, 3.0, pairs)
        lists["prob_b"] = rng.standard_normal(pairs) / 2
    given = {name: one.astype(np.float32).tolist() for name, one in lists.items()}
    how = {"kernel_type": kind, "kernel_params": [0.4, 0.3, 3.0]}
    labels = [3 * n - 2 for n in range(classes)]
    given |= {"vectors_per_class": sizes, "classlabels_ints": labels}
    return "SVMClassifier", X, 2, {**given, **how, **attrs}


KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
AFTER = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
MACHINES: dict[str, Any] = {
    **{f"machine, {kind}": machine((2, 3, 1), kind) for kind in KERNELS},
    **{
        f"machine of {len(sizes)}, {how}{', likely' * likely}": machine(
            sizes, likely=likely, post_transform=how
        )
        for sizes in ((3, 2), (2, 1, 3), (1, 2, 2, 3, 1))
        for how in AFTER
        for likely in (False, True)
    },
    "machine of sixteen, likely": machine((2,) * 16, likely=True),
    "machine of two, sure": machine((3, 2), likely=True, prob_a=[-60.0]),
    "machine of three, sure": machine(
        (3, 2, 1), likely=True, prob_a=[-60.0, 50.0, -90.0]
    ),
    "machine of a class without vectors": machine((3, 0, 2)),
}
CASES: dict[str, Any] = {
    **MACHINES,
    "trees": regressor(RNG, X),
    "trees of every comparison": regressor(RNG, X, 2, (9, 5, EVERY)),
    "trees and missing values": regressor(RNG, ODD, 3, (9, 6, EVERY, True)),
    "trees of doubles": regressor(RNG, X.astype(float)),
    "a tree of one leaf": regressor(RNG, X, 1, (2, 0)),
    "trees, the mean": regressor(
        RNG, X, 2, aggregate_function="AVERAGE", base_values=[1.0, 2.0]
    ),
    "trees, the least": regressor(RNG, X, 2, aggregate_function="MIN"),
    "trees, the most": regressor(RNG, X, 1, aggregate_function="MAX"),
    "two classes of one score": classifier(RNG, 2, [0], post_transform="LOGISTIC"),
    "two classes, plain": classifier(RNG, 2, [0], base_values=[0.1]),
    "two classes, all positive": classifier(RNG, 2, [0], False),
    "two classes of the second": classifier(RNG, 2, [1], post_transform="SOFTMAX"),
    "three classes": classifier(RNG, 3, range(3), post_transform="SOFTMAX"),
    "three classes, zeros": classifier(RNG, 3, range(3), post_transform="SOFTMAX_ZERO"),
    "three classes, few weights": classifier(RNG, 3, range(3), sparse=True),
    "linear": ("LinearRegressor", X, 1, {**LINEAR, "targets": 3}),
    "linear classes": (
        "LinearClassifier",
        X,
        2,
        {**LINEAR, "classlabels_ints": [4, 5, 9], "post_transform": "SOFTMAX"},
    ),
    "one line between two classes": (
        "LinearClassifier",
        X,
        2,
        {
            "coefficients": [0.3, 0.1, -0.2, 1.0],
            "intercepts": [0.1],
            "classlabels_ints": [4, 5],
            "post_transform": "LOGISTIC",
        },
    ),
    "scaled": ("Scaler", WHOLE, 1, {"offset": [1.0, 2, 3, 4], "scale": [0.5] * 4}),
    **{
        f"normed by {norm}": ("Normalizer", X * [[0]] + X, 1, {"norm": norm})
        for norm in ("MAX", "L1", "L2")
    },
    "filled": (
        "Imputer",
        ODD,
        1,
        {"imputed_value_floats": [1.0, 2, 3, 4], "replaced_value_float": np.nan},
    ),
    "filled integers": (
        "Imputer",
        WHOLE,
        1,
        {"imputed_value_int64s": [9], "replaced_value_int64": -1},
    ),
    "features together": (
        "FeatureVectorizer",
        (X, X[:, :2]),
        1,
        {"inputdimensions": [4, 2]},
    ),
    "one hot": ("OneHotEncoder", WHOLE, 1, {"cats_int64s": [-1, 0, 2]}),
    "labels": (
        "LabelEncoder",
        ODD,
        1,
        {
            "keys_floats": [float(X[0, 0]), np.nan, 0.5],
            "values_int64s": [4, 7, -9],
            "default_int64": 11,
        },
    ),
    **{
        f"support vectors, {kind}": (
            "SVMRegressor",
            X,
            1,
            {**SUPPORT, "kernel_type": kind},
        )
        for kind in KERNELS
    },
    "one class": (
        "SVMRegressor",
        X,
        1,
        {**SUPPORT, "kernel_type": "RBF", "one_class": 1},
    ),
}


def fed(x: Any) -> dict[str, Any]:
    xs = x if isinstance(x, tuple) else (x,)
    return {f"x{at}": one for at, one in enumerate(xs)}


ON_ADAPTERS = (
    "trees and missing values",
    "two classes of one score",
    "labels",
    "machine of 5, NONE, likely",
)
GPU = pytest.mark.requires_wgpu


@pytest.mark.parametrize(
    ("case", "device"),
    [(name, "cpu") for name in CASES]
    + [pytest.param(name, "vulkan", marks=GPU) for name in ON_ADAPTERS],
)
def test_as_onnx_runtime(case: str, device: str) -> None:
    op, x, outputs, attrs = CASES[case]
    data, feeds = made(op, x, outputs, **attrs), fed(x)
    want = runtime(data, feeds)
    got = rlx.onnx.load(data).run(feeds, device=device)
    for ours, theirs in zip(got.values(), want, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_scores_of_two_classes_each(rng: np.random.Generator) -> None:
    """The larger score's label wins where two classes have scores each.

    ONNX's own evaluator does so.
    """
    op, x, outputs, attrs = classifier(rng, 2, [0, 1])
    label, scores = rlx.onnx.load(made(op, x, outputs, **attrs)).run(fed(x)).values()
    np.testing.assert_array_equal(label, np.array([-2, 1])[scores.argmax(1)])


BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a branch to itself": (
        ModelError,
        {"nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"]}
        | {"nodes_truenodeids": [1, 1, 0], "nodes_falsenodeids": [2, 2, 0]},
        "comes back",
    ),
    "a cycle": (ModelError, {"nodes_truenodeids": [0, 0, 0]}, "itself"),
    "no such node": (ModelError, {"nodes_truenodeids": [9, 0, 0]}, "no node 9"),
    "no such feature": (ModelError, {"nodes_featureids": [7, 0, 0]}, "feature 7"),
    "no such target": (ModelError, {"target_ids": [0, 4]}, "target 4"),
    "a short list": (ModelError, {"nodes_values": [0.0]}, "3 and 1 elements"),
    "twice the same": (ModelError, {"nodes_nodeids": [0, 1, 1]}, "2 names"),
    "an unknown mode": (
        ModelError,
        {"nodes_modes": ["BRANCH_OR", "LEAF", "LEAF"]},
        "BRANCH_OR",
    ),
    "probit": (Unsupported, {"post_transform": "PROBIT"}, "PROBIT"),
}


@pytest.mark.parametrize("case", BAD)
def test_trees_that_contradict_themselves(case: str) -> None:
    kind, change, says = BAD[case]
    attrs = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_values": [0.5, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
    }
    with pytest.raises(kind) as caught:
        rlx.onnx.load(made("TreeEnsembleRegressor", X, **{**attrs, **change})).run(
            fed(X), device="cpu"
        )
    assert says in str(caught.value)


def test_texts_and_dictionaries_are_refused(rng: np.random.Generator) -> None:
    op, x, outputs, attrs = classifier(rng, 2, [0])
    labels = {"classlabels_strings": ["no", "yes"]}
    attrs = {k: v for k, v in attrs.items() if "int64s" not in k} | labels
    with pytest.raises(Unsupported, match="labels of its classes are texts"):
        rlx.onnx.load(made(op, x, outputs, **attrs)).run(fed(x))


@pytest.mark.parametrize("whole", [np.float64, np.int64])
def test_machines_of_other_numbers(whole: Any) -> None:
    """Rows of doubles and integers are float32 there."""
    op, x, outputs, attrs = machine((2, 1, 3), likely=True)
    x = (2 * x).astype(whole)
    data = made(op, x, outputs, **attrs)
    want = runtime(data, fed(x))
    for ours, theirs in zip(
        rlx.onnx.load(data).run(fed(x)).values(), want, strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


ODD_MACHINES: dict[str, Any] = {
    "one class": ({"classlabels_ints": [1]}, "1 classes"),
    "prob_b is left out": ({"prob_a": [1.0] * 3}, "prob_b has 0"),
    "few offsets": ({"rho": [1.0]}, "3 pairs of classes"),
    "few probabilities": ({"prob_a": [1.0], "prob_b": [1.0]}, "prob_a has 1 numbers"),
    "few coefficients": ({"coefficients": [1.0]}, "6 support vectors of 3 classes"),
    "few vectors": ({"support_vectors": [1.0]}, "6 support vectors of 1 numbers"),
    "another kernel": ({"kernel_type": "COSINE"}, "'COSINE'"),
    "sizes of two": ({"vectors_per_class": [3, 3]}, "3 classes"),
    "no vectors": ({"vectors_per_class": None}, "without support vectors"),
    "probit": ({"post_transform": "PROBIT"}, "PROBIT"),
    "texts": (
        {"classlabels_ints": None, "classlabels_strings": ["a", "b", "c"]},
        "texts",
    ),
}


@pytest.mark.parametrize("case", ODD_MACHINES)
def test_machines_that_are_refused(case: str) -> None:
    change, says = ODD_MACHINES[case]
    op, x, outputs, attrs = machine((2, 1, 3))
    attrs = {k: v for k, v in {**attrs, **change}.items() if v is not None}
    data = made(op, x, outputs, **attrs)
    with pytest.raises((ModelError, Unsupported)) as caught:
        rlx.onnx.load(data).run(fed(x), device="cpu")
    assert says in str(caught.value)
