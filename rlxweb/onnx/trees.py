"""Ensembles of decision trees, as scikit-learn, XGBoost and LightGBM are converted.

All rows go down all trees at once, a step of every tree at a time: as many steps as the
deepest has. What a row reaches are leaves, whose weights are summed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Unpack, cast

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts
from rlxweb.onnx.forest import (
    MODES,
    Array,
    Branches,
    Forest,
    Nodes,
    by_branches,
    by_trees,
    numbers,
)
from rlxweb.onnx.records import Weight
from rlxweb.onnx.scores import (
    DOMAIN,
    POST,
    Floats,
    Ints,
    as_real,
    labelled,
    of_two,
    transformed,
)

Table = Callable[[Array], Tensor]
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


def _leaves(call: Call, x: Tensor, forest: Forest) -> Tensor:
    """The leaf [N, T] (i32) that each row of x [N, F] reaches in each tree."""
    g, depth = call.g, forest.checked(int(x.shape[1])).depth
    if not depth:
        return g.expand(
            call.hold(forest.roots.astype(np.int32)), (x.shape[0], len(forest.roots))
        )
    # The first step is the same for all rows: there the tables are cut to the roots.
    at: Tensor | None = None
    for _ in range(depth):
        of = partial(_of, call, forest, at)
        feature = of(forest.feature.astype(np.int32))
        value = (
            g.gather(x, feature, 1) if at is None else g.gather_elements(x, feature, 1)
        )
        yes, no = (of(one.astype(np.int32)) for one in (forest.yes, forest.no))
        at = g.where(_goes(call, value, forest, of), yes, no)
    assert at is not None
    return at


def _of(call: Call, forest: Forest, at: Tensor | None, table: Array) -> Tensor:
    """What a table has at nodes [N, T]; None: at the roots, [T]."""
    if at is None:
        return cast(Tensor, call.hold(table[forest.roots]))
    return call.g.gather(call.hold(table), at)


def _goes(call: Call, value: Tensor, forest: Forest, of: Table) -> Tensor:
    """Whether values [N, T] go to `yes` at the nodes whose tables `of` gives."""
    g, branches = call.g, ~forest.is_leaf
    threshold = of(forest.threshold.astype(value.dtype.numpy))
    present = np.unique(forest.mode[branches]).tolist()
    goes: Tensor | None = None
    for mode in present:
        one = _compared(call, MODES[mode], value, threshold, forest, of)
        if len(present) > 1:
            one = one & g.eq(of(forest.mode.astype(np.int32)), mode)
        goes = one if goes is None else goes | one
    assert goes is not None
    if forest.missing[branches].any():
        goes = goes | (g.isnan(value) & of(forest.missing))
    return goes


def _compared(
    call: Call, mode: str, value: Tensor, threshold: Tensor, forest: Forest, of: Table
) -> Tensor:
    g = call.g
    if mode == "MEMBER":
        sets = of(forest.members.astype(value.dtype.numpy))
        is_there = g.eq(g.unsqueeze(value, -1), sets)
        return g.gt(g.sum(g.cast(is_there, DType.I32), -1), 0)
    how = {"LEQ": "le", "LT": "lt", "GTE": "ge", "GT": "gt", "EQ": "eq", "NEQ": "ne"}
    return g.apply(how[mode], value, threshold)


def _scored(
    call: Call, x: Tensor, forest: Forest, aggregate: str, base: Array | None
) -> tuple[Tensor, Tensor | None]:
    """The scores [N, targets] of rows, and which there are, None: all."""
    g, leaves = call.g, _leaves(call, x, forest)
    if aggregate not in _AGGREGATES:
        call.contradict(f"aggregate_function is {aggregate!r}")
    is_extreme = aggregate in ("MIN", "MAX")
    is_sparse = not forest.given[forest.is_leaf].all()
    weights = forest.weights.astype(x.dtype.numpy)
    if is_extreme:
        far = np.inf if aggregate == "MIN" else -np.inf
        weights = np.where(forest.given, weights, far).astype(weights.dtype)
    found = g.gather(call.hold(weights), leaves)  # [N, T, targets]
    there = None
    if is_sparse and (is_extreme or base is None):
        given = g.gather(call.hold(forest.given.astype(np.int32)), leaves)
        there = g.gt(g.sum(given, 1), 0)
    if is_extreme:
        made = g.min(found, 1) if aggregate == "MIN" else g.max(found, 1)
        made = made if there is None else g.where(there, made, 0.0)
    else:
        made = g.sum(found, 1)
        made = made / float(len(forest.roots)) if aggregate == "AVERAGE" else made
    if base is not None:
        made = made + call.hold(base.astype(x.dtype.numpy))
    return made, there


@converts("TreeEnsembleRegressor", domain=DOMAIN)
def _regressor(
    call: Call,
    x: Tensor,
    *,
    aggregate_function: str = "SUM",
    base_values: Floats = (),
    base_values_as_tensor: Weight | None = None,
    n_targets: int = 1,
    post_transform: str = "NONE",
    target_ids: Ints = (),
    target_nodeids: Ints = (),
    target_treeids: Ints = (),
    target_weights: Floats = (),
    target_weights_as_tensor: Weight | None = None,
    **nodes: Unpack[Nodes],
) -> Tensor:
    weights = numbers(target_weights, target_weights_as_tensor)
    forest = by_trees(
        nodes, target_treeids, target_nodeids, target_ids, weights, n_targets
    )
    base = _base(call, numbers(base_values, base_values_as_tensor), n_targets)
    made, _ = _scored(call, as_real(call, x), forest, aggregate_function, base)
    return call.g.cast(transformed(call, made, post_transform), DType.F32)


def _base(call: Call, base: Array, targets: int) -> Array | None:
    if len(base) not in (0, targets):
        call.contradict(f"{len(base)} base values", f"one for each of {targets}")
    return base if len(base) else None


@converts("TreeEnsembleClassifier", domain=DOMAIN)
def _classifier(
    call: Call,
    x: Tensor,
    *,
    base_values: Floats = (),
    base_values_as_tensor: Weight | None = None,
    class_ids: Ints = (),
    class_nodeids: Ints = (),
    class_treeids: Ints = (),
    class_weights: Floats = (),
    class_weights_as_tensor: Weight | None = None,
    classlabels_int64s: Ints = (),
    classlabels_strings: tuple[str, ...] = (),
    post_transform: str = "NONE",
    **nodes: Unpack[Nodes],
) -> tuple[Tensor, Tensor]:
    """Of two classes there may be scores of one alone, as ONNX Runtime reads it."""
    g, count = call.g, len(classlabels_int64s or classlabels_strings)
    weights = numbers(class_weights, class_weights_as_tensor)
    base = numbers(base_values, base_values_as_tensor)
    one = count == 2 and len(set(class_ids)) == 1
    if count < 2 or (one and class_ids[0] and len(base)) or (one and len(base) > 1):
        call.refuse(
            f"{count} classes, weights for {len(set(class_ids))} of them and "
            f"{len(base)} base values",
            "what it means is not said",
        )
    ids = (0,) * len(class_ids) if one else class_ids
    targets = 1 if one else count
    forest = by_trees(nodes, class_treeids, class_nodeids, ids, weights, targets)
    base_of = _base(call, base, targets)
    scores, there = _scored(call, as_real(call, x), forest, "SUM", base_of)
    if one:
        positive = bool((weights >= 0).all())
        level = 0.5 if positive else 0.0
        which = g.cast(g.gt(scores, level), DType.I32).reshape((-1,))
        if class_ids[0]:
            both = g.concat([scores * 0.0, scores], 1)
            made = transformed(call, both, post_transform)
        else:
            made = of_two(call, scores, post_transform, positive)
    else:
        asked = scores if there is None else g.where(there, scores, -np.inf)
        which = g.argmax(asked, 1)
        made = transformed(call, scores, post_transform)
    labels = labelled(call, which, classlabels_int64s, classlabels_strings)
    return labels, g.cast(made, DType.F32)


@converts("TreeEnsemble", since=5, domain=DOMAIN)
def _ensemble(
    call: Call,
    x: Tensor,
    *,
    aggregate_function: int = 1,
    n_targets: int = 1,
    post_transform: int = 0,
    **given: Unpack[Branches],
) -> Tensor:
    for name, at, all_ in (
        ("aggregate_function", aggregate_function, _AGGREGATES),
        ("post_transform", post_transform, POST),
    ):
        if not 0 <= at < len(all_):
            call.contradict(f"{name} is {at}", f"0 to {len(all_) - 1}")
    forest = by_branches(given, n_targets)
    how = _AGGREGATES[aggregate_function]
    made, _ = _scored(call, as_real(call, x), forest, how, None)
    return transformed(call, made, POST[post_transform])
