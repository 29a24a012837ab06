"""Models of ai.onnx.ml agree with ONNX Runtime's results on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import ModelError, Unsupported
from tests.onnx.model_factory import make_model, node, value_info
from tests.onnx.onnx_runtime import run_onnxruntime

DOMAIN = "ai.onnx.ml"
RNG = np.random.default_rng(3)
X = np.round(RNG.standard_normal((7, 4)), 1).astype(np.float32)
INTEGERS = RNG.integers(-3, 4, (5, 4))
X_WITH_NAN = X.copy()
X_WITH_NAN[RNG.random(X.shape) < 0.3] = np.nan
ELEMENT_TYPES = {"float32": 1, "float64": 11, "int64": 7}


def single_op_model(op: str, x: Any, outputs: int = 1, **attrs: Any) -> Any:
    xs = x if isinstance(x, tuple) else (x,)
    names = [f"x{index}" for index in range(len(xs))]
    out = [f"y{index}" for index in range(outputs)]
    op_node = node(op, names, out, domain=DOMAIN, **attrs)
    integer_outputs = {"y0"} if outputs == 2 or op == "LabelEncoder" else set()
    results = [
        value_info(name, None, 7 if name in integer_outputs else 1) for name in out
    ]
    inputs = [
        value_info(name, ["N", *a.shape[1:]], ELEMENT_TYPES[str(a.dtype)])
        for name, a in zip(names, xs, strict=True)
    ]
    opsets = {
        "": 17,
        DOMAIN: 5 if op == "TreeEnsemble" else 4 if op == "LabelEncoder" else 3,
    }
    if op == "Imputer" and xs[0].dtype == np.int64:
        results = [value_info("y0", None, 7)]
    return make_model([op_node], inputs, results, opsets=opsets).SerializeToString()


def random_trees(
    rng: np.random.Generator,
    count: int,
    depth: int,
    modes: tuple[str, ...] = ("LEQ",),
    missing: bool = False,
) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """Return random trees over four features, and the (tree, node) ids of their
    leaves.
    """
    rows: list[Any] = []
    leaves = []

    def grow_branch(tree: int, node_id: int, depth_left: int) -> int:
        """Add a branch and return the next free node id."""
        if not depth_left or (node_id and rng.random() < 0.3):
            rows.append((tree, node_id, 0, 0.0, "LEAF", 0, 0, 0))
            leaves.append((tree, node_id))
            return node_id + 1
        row_index = len(rows)
        rows.append(None)
        false_node = grow_branch(tree, node_id + 1, depth_left - 1)
        next_id = grow_branch(tree, false_node, depth_left - 1)
        split = np.round(rng.standard_normal(), 1)
        mode = "BRANCH_" + modes[rng.integers(len(modes))]
        track = int(missing and rng.random() < 0.5)
        rows[row_index] = (
            tree,
            node_id,
            rng.integers(4),
            split,
            mode,
            node_id + 1,
            false_node,
            track,
        )
        return next_id

    for tree in range(count):
        grow_branch(tree, 0, depth)
    names = "treeids nodeids featureids values modes truenodeids falsenodeids"
    keys = [*names.split(), "missing_value_tracks_true"]
    columns = zip(*rows, strict=True)
    return {f"nodes_{k}": list(c) for k, c in zip(keys, columns, strict=True)}, leaves


def leaf_weights(
    rng: np.random.Generator, kind: str, leaves: Any, ids: Any, signed: bool = True
) -> dict[str, Any]:
    """Return a weight of each leaf for each of the ids."""
    pairs = [(*leaf, target_id) for leaf in leaves for target_id in ids]
    weights = rng.uniform(-1 if signed else 0, 1, len(pairs)) / 5
    names = ("treeids", "nodeids", "ids")
    columns = zip(*pairs, strict=True)
    lists = {f"{kind}_{n}": list(c) for n, c in zip(names, columns, strict=True)}
    return {**lists, f"{kind}_weights": weights.tolist()}


def tree_regressor(
    rng: np.random.Generator,
    x: Any,
    targets: int = 1,
    grow: tuple[Any, ...] = (9, 5),
    **attrs: Any,
) -> Any:
    nodes, leaves = random_trees(rng, *grow)
    weights = leaf_weights(rng, "target", leaves, range(targets))
    return (
        "TreeEnsembleRegressor",
        x,
        1,
        {**nodes, **weights, "n_targets": targets, **attrs},
    )


def tree_classifier(
    rng: np.random.Generator,
    classes: int,
    ids: Any,
    signed: bool = True,
    sparse: bool = False,
    **attrs: Any,
) -> Any:
    nodes, leaves = random_trees(rng, 9, 4)
    weights = leaf_weights(rng, "class", leaves, ids, signed)
    if sparse:
        weights = {k: v[::2] for k, v in weights.items()}
    labels = {"classlabels_int64s": [3 * n - 2 for n in range(classes)]}
    return "TreeEnsembleClassifier", X, 2, {**nodes, **weights, **labels, **attrs}


ALL_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")
LINEAR_MODEL = {
    "coefficients": RNG.standard_normal(12).tolist(),
    "intercepts": [0.1, 0, -1],
}
SUPPORT_VECTORS = {
    "coefficients": [0.5, -1.0, 0.25],
    "kernel_params": [0.4, 0.3, 3.0],
    "n_supports": 3,
    "rho": [0.2],
    "support_vectors": RNG.standard_normal(12).tolist(),
}


def svm_classifier(
    sizes: tuple[int, ...],
    kind: str = "RBF",
    has_probabilities: bool = False,
    **attrs: Any,
) -> Any:
    """Return a classifier with this number of support vectors of each class."""
    classes, vectors = len(sizes), sum(sizes)
    pairs = classes * (classes - 1) // 2
    rng = np.random.default_rng(vectors)
    lists: dict[str, Any] = {
        "coefficients": rng.standard_normal((classes - 1) * vectors),
        "support_vectors": rng.standard_normal(4 * vectors),
        "rho": rng.standard_normal(pairs) / 9,
    }
    if has_probabilities:
        lists["prob_a"] = -rng.uniform(0.5, 3.0, pairs)
        lists["prob_b"] = rng.standard_normal(pairs) / 2
    attributes = {
        name: array.astype(np.float32).tolist() for name, array in lists.items()
    }
    kernel = {"kernel_type": kind, "kernel_params": [0.4, 0.3, 3.0]}
    labels = [3 * n - 2 for n in range(classes)]
    attributes |= {"vectors_per_class": sizes, "classlabels_ints": labels}
    return "SVMClassifier", X, 2, {**attributes, **kernel, **attrs}


SVM_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
POST_TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
SVM_CASES: dict[str, Any] = {
    **{f"machine, {kind}": svm_classifier((2, 3, 1), kind) for kind in SVM_KERNELS},
    **{
        f"machine of {len(sizes)}, {how}{', likely' * likely}": svm_classifier(
            sizes, has_probabilities=likely, post_transform=how
        )
        for sizes in ((3, 2), (2, 1, 3), (1, 2, 2, 3, 1))
        for how in POST_TRANSFORMS
        for likely in (False, True)
    },
    "machine of sixteen, likely": svm_classifier((2,) * 16, has_probabilities=True),
    "machine of two, sure": svm_classifier(
        (3, 2), has_probabilities=True, prob_a=[-60.0]
    ),
    "machine of three, sure": svm_classifier(
        (3, 2, 1), has_probabilities=True, prob_a=[-60.0, 50.0, -90.0]
    ),
    "machine of a class without vectors": svm_classifier((3, 0, 2)),
}
CASES: dict[str, Any] = {
    **SVM_CASES,
    "trees": tree_regressor(RNG, X),
    "trees of every comparison": tree_regressor(RNG, X, 2, (9, 5, ALL_MODES)),
    "trees and missing values": tree_regressor(
        RNG, X_WITH_NAN, 3, (9, 6, ALL_MODES, True)
    ),
    "trees of doubles": tree_regressor(RNG, X.astype(float)),
    "a tree of one leaf": tree_regressor(RNG, X, 1, (2, 0)),
    "trees, the mean": tree_regressor(
        RNG, X, 2, aggregate_function="AVERAGE", base_values=[1.0, 2.0]
    ),
    "trees, the least": tree_regressor(RNG, X, 2, aggregate_function="MIN"),
    "trees, the most": tree_regressor(RNG, X, 1, aggregate_function="MAX"),
    "two classes of one score": tree_classifier(RNG, 2, [0], post_transform="LOGISTIC"),
    "two classes, plain": tree_classifier(RNG, 2, [0], base_values=[0.1]),
    "two classes, all positive": tree_classifier(RNG, 2, [0], False),
    "two classes of the second": tree_classifier(RNG, 2, [1], post_transform="SOFTMAX"),
    "three classes": tree_classifier(RNG, 3, range(3), post_transform="SOFTMAX"),
    "three classes, zeros": tree_classifier(
        RNG, 3, range(3), post_transform="SOFTMAX_ZERO"
    ),
    "three classes, few weights": tree_classifier(RNG, 3, range(3), sparse=True),
    "linear": ("LinearRegressor", X, 1, {**LINEAR_MODEL, "targets": 3}),
    "linear classes": (
        "LinearClassifier",
        X,
        2,
        {**LINEAR_MODEL, "classlabels_ints": [4, 5, 9], "post_transform": "SOFTMAX"},
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
    "scaled": ("Scaler", INTEGERS, 1, {"offset": [1.0, 2, 3, 4], "scale": [0.5] * 4}),
    **{
        f"normed by {norm}": ("Normalizer", X * [[0]] + X, 1, {"norm": norm})
        for norm in ("MAX", "L1", "L2")
    },
    "filled": (
        "Imputer",
        X_WITH_NAN,
        1,
        {"imputed_value_floats": [1.0, 2, 3, 4], "replaced_value_float": np.nan},
    ),
    "filled integers": (
        "Imputer",
        INTEGERS,
        1,
        {"imputed_value_int64s": [9], "replaced_value_int64": -1},
    ),
    "features together": (
        "FeatureVectorizer",
        (X, X[:, :2]),
        1,
        {"inputdimensions": [4, 2]},
    ),
    "one hot": ("OneHotEncoder", INTEGERS, 1, {"cats_int64s": [-1, 0, 2]}),
    "labels": (
        "LabelEncoder",
        X_WITH_NAN,
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
            {**SUPPORT_VECTORS, "kernel_type": kind},
        )
        for kind in SVM_KERNELS
    },
    "one class": (
        "SVMRegressor",
        X,
        1,
        {**SUPPORT_VECTORS, "kernel_type": "RBF", "one_class": 1},
    ),
}


def make_feeds(x: Any) -> dict[str, Any]:
    xs = x if isinstance(x, tuple) else (x,)
    return {f"x{index}": array for index, array in enumerate(xs)}


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
def test_matches_onnx_runtime(case: str, device: str) -> None:
    op, x, outputs, attrs = CASES[case]
    data, feeds = single_op_model(op, x, outputs, **attrs), make_feeds(x)
    want = run_onnxruntime(data, feeds)
    got = rlx.onnx.load(data).run(feeds, device=device)
    for ours, theirs in zip(got.values(), want, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_larger_score_wins_for_two_classes(rng: np.random.Generator) -> None:
    """The larger score's label wins where two classes have scores each.

    ONNX's own evaluator does so.
    """
    op, x, outputs, attrs = tree_classifier(rng, 2, [0, 1])
    label, scores = (
        rlx.onnx.load(single_op_model(op, x, outputs, **attrs))
        .run(make_feeds(x))
        .values()
    )
    np.testing.assert_array_equal(label, np.array([-2, 1])[scores.argmax(1)])


INVALID_TREES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a branch to itself": (
        ModelError,
        {"nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"]}
        | {"nodes_truenodeids": [1, 1, 0], "nodes_falsenodeids": [2, 2, 0]},
        "branch 1 is its own child",
    ),
    "a cycle": (
        ModelError,
        {"nodes_truenodeids": [0, 0, 0]},
        "branch 0 is its own child",
    ),
    "no such node": (ModelError, {"nodes_truenodeids": [9, 0, 0]}, "node 9 of tree 0"),
    "no such feature": (ModelError, {"nodes_featureids": [7, 0, 0]}, "feature 7"),
    "no such target": (ModelError, {"target_ids": [0, 4]}, "target 4"),
    "a short list": (ModelError, {"nodes_values": [0.0]}, "3 and 1 elements"),
    "twice the same": (ModelError, {"nodes_nodeids": [0, 1, 1]}, "2 distinct ids"),
    "an unknown mode": (
        ModelError,
        {"nodes_modes": ["BRANCH_OR", "LEAF", "LEAF"]},
        "BRANCH_OR",
    ),
    "probit": (Unsupported, {"post_transform": "PROBIT"}, "PROBIT"),
}


@pytest.mark.parametrize("case", INVALID_TREES)
def test_inconsistent_trees_are_refused(case: str) -> None:
    kind, change, message = INVALID_TREES[case]
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
        rlx.onnx.load(
            single_op_model("TreeEnsembleRegressor", X, **{**attrs, **change})
        ).run(make_feeds(X), device="cpu")
    assert message in str(caught.value)


def test_text_labels_are_refused(rng: np.random.Generator) -> None:
    op, x, outputs, attrs = tree_classifier(rng, 2, [0])
    labels = {"classlabels_strings": ["no", "yes"]}
    attrs = {k: v for k, v in attrs.items() if "int64s" not in k} | labels
    with pytest.raises(Unsupported, match="the class labels are strings"):
        rlx.onnx.load(single_op_model(op, x, outputs, **attrs)).run(make_feeds(x))


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_svm_converts_rows_to_float32(dtype: Any) -> None:
    """Rows of doubles and integers are converted to float32, as in ONNX Runtime."""
    op, x, outputs, attrs = svm_classifier((2, 1, 3), has_probabilities=True)
    x = (2 * x).astype(dtype)
    data = single_op_model(op, x, outputs, **attrs)
    want = run_onnxruntime(data, make_feeds(x))
    for ours, theirs in zip(
        rlx.onnx.load(data).run(make_feeds(x)).values(), want, strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


INVALID_SVMS: dict[str, Any] = {
    "one class": ({"classlabels_ints": [1]}, "1 classes"),
    "prob_b is left out": (
        {"prob_a": [1.0] * 3},
        "prob_a has 3 elements and prob_b has 0",
    ),
    "few offsets": ({"rho": [1.0]}, "3 pairs of classes"),
    "few probabilities": ({"prob_a": [1.0], "prob_b": [1.0]}, "prob_a has 1 elements"),
    "few coefficients": ({"coefficients": [1.0]}, "6 support vectors of 3 classes"),
    "few vectors": ({"support_vectors": [1.0]}, "6 support vectors with 1 numbers"),
    "another kernel": ({"kernel_type": "COSINE"}, "'COSINE'"),
    "sizes of two": ({"vectors_per_class": [3, 3]}, "3 classes"),
    "no vectors": ({"vectors_per_class": None}, "the model has no support vectors"),
    "probit": ({"post_transform": "PROBIT"}, "PROBIT"),
    "texts": (
        {"classlabels_ints": None, "classlabels_strings": ["a", "b", "c"]},
        "the class labels are strings",
    ),
}


@pytest.mark.parametrize("case", INVALID_SVMS)
def test_invalid_svms_are_refused(case: str) -> None:
    change, message = INVALID_SVMS[case]
    op, x, outputs, attrs = svm_classifier((2, 1, 3))
    attrs = {k: v for k, v in {**attrs, **change}.items() if v is not None}
    data = single_op_model(op, x, outputs, **attrs)
    with pytest.raises((ModelError, Unsupported)) as caught:
        rlx.onnx.load(data).run(make_feeds(x), device="cpu")
    assert message in str(caught.value)
