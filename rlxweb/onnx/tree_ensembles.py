"""Decision tree ensembles of ai.onnx.ml: random forests and gradient boosting.

The nodes of all trees are numbered through, and the successor of a leaf is the leaf
itself. So all rows descend all trees at once, as many steps as the deepest tree has,
and the weights of the leaves reached are aggregated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import TypedDict, Unpack

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, converts
from rlxweb.onnx.model_records import Weight
from rlxweb.onnx.scalers_encoders_linear_models import (
    ML_DOMAIN,
    POST_TRANSFORMS,
    Array,
    Floats,
    Ints,
    apply_post_transform,
    as_float_rows,
    class_labels,
    two_class_scores,
)

_COMPARISON_OPS = ("le", "lt", "ge", "gt", "eq", "ne")
_BRANCH_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
"""Comparisons of a feature with a threshold, in the numbering of TreeEnsemble."""
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_MAX_WEIGHT_TABLE_BYTES = 1 << 30
"""Maximum size of the table of leaf weights, in bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class _Forest:
    """Tables of all trees' nodes, by node number.

    feature, threshold, mode  what is compared, with what, and how (place in _MODES)
    is_leaf     a leaf is its own successor
    true_child, false_child  the successors
    nan_goes_true  whether NaN goes to `true_child`
    roots       the first node of each tree
    weights     [nodes, targets]: the leaf's contribution, and `has_weight` likewise
    member_sets  [nodes, most], padded with NaN: the sets of mode MEMBER
    """

    feature: Array
    threshold: Array
    mode: Array
    is_leaf: Array
    true_child: Array
    false_child: Array
    nan_goes_true: Array
    roots: Array
    weights: Array
    has_weight: Array
    member_sets: Array

    def depth(self, ctx: ConversionContext) -> int:
        """Return the number of steps from the roots to the deepest leaf."""
        steps, node_ids = 0, np.arange(len(self.true_child))
        invalid = np.flatnonzero(
            ~self.is_leaf
            & ((self.true_child == node_ids) | (self.false_child == node_ids))
        )
        if len(invalid):
            ctx.raise_invalid_model(
                f"branch {invalid[0]} is its own child", "trees must not contain cycles"
            )
        nodes = np.unique(self.roots)
        while len(nodes := nodes[~self.is_leaf[nodes]]):
            steps += 1
            if steps > len(node_ids):
                ctx.raise_invalid_model(
                    "a branch leads back to a node above it",
                    "trees must not contain cycles",
                )
            nodes = np.unique(
                np.concatenate([self.true_child[nodes], self.false_child[nodes]])
            )
        return steps


def _check_range(
    ctx: ConversionContext, description: str, indices: Array, size: int
) -> None:
    """Raise ModelError if an index is outside the range 0 to `size` - 1."""
    invalid = indices[(indices < 0) | (indices >= size)]
    if len(invalid):
        ctx.raise_invalid_model(
            f"{description} {invalid[0]} is out of range",
            f"must be at least 0 and less than {size:,}",
        )


def _check_lengths(
    ctx: ConversionContext, description: str, count: int, *sequences: Sized
) -> None:
    """Raise ModelError if the sequences do not have `count` elements each."""
    for values in sequences:
        if len(values) != count:
            ctx.raise_invalid_model(
                f"two attributes that describe the {description} have {count} and "
                f"{len(values)} elements",
                f"each must have one element for each of the {description}",
            )


def _attribute_values(values: Sequence[float], tensor: Weight | None) -> Array:
    """Return the values of an attribute that is a list or a tensor."""
    return (
        np.asarray(values, np.float32) if tensor is None else tensor.array.reshape(-1)
    )


def _leaf_weight_tables(
    ctx: ConversionContext,
    nodes: int,
    targets: int,
    leaf_nodes: Array,
    target_ids: Array,
    weights: Array,
) -> tuple[Array, Array]:
    """Return the `weights` and `has_weight` tables of a forest."""
    table_nbytes = nodes * targets * weights.itemsize
    if table_nbytes > _MAX_WEIGHT_TABLE_BYTES:
        ctx.raise_invalid_model(
            f"the weight table of {nodes:,} nodes and {targets:,} targets needs "
            f"{table_nbytes:,} bytes",
            f"at most {_MAX_WEIGHT_TABLE_BYTES:,} bytes are allowed",
        )
    _check_range(ctx, "target", target_ids, targets)
    table = np.zeros((nodes, targets), weights.dtype)
    has_weight = np.zeros((nodes, targets), np.bool_)
    np.add.at(table, (leaf_nodes, target_ids), weights)
    has_weight[leaf_nodes, target_ids] = True
    return table, has_weight


# --- the attributes of a file ---------------------------------------------------------


class _NamedNodeAttributes(TypedDict, total=False):
    """Attributes of TreeEnsembleClassifier and TreeEnsembleRegressor."""

    nodes_treeids: Ints
    nodes_nodeids: Ints
    nodes_featureids: Ints
    nodes_values: Floats
    nodes_values_as_tensor: Weight
    nodes_modes: tuple[str, ...]
    nodes_truenodeids: Ints
    nodes_falsenodeids: Ints
    nodes_missing_value_tracks_true: Ints
    nodes_hitrates: Floats
    nodes_hitrates_as_tensor: Weight


def _read_named_nodes(
    ctx: ConversionContext,
    nodes: _NamedNodeAttributes,
    leaves: tuple[Ints, Ints, Ints],
    weights: Array,
    targets: int,
) -> _Forest:
    """Read trees whose nodes are identified by tree and node number.

    leaves  trees, numbers and targets of the weights
    """
    tree, number, feature, *child_columns = (
        np.asarray(nodes.get(f"nodes_{mode_name}", ()), np.int64)
        for mode_name in (
            "treeids",
            "nodeids",
            "featureids",
            "truenodeids",
            "falsenodeids",
        )
    )
    mode_words, count = nodes.get("nodes_modes", ()), len(tree)
    values = _attribute_values(
        nodes.get("nodes_values", ()), nodes.get("nodes_values_as_tensor")
    )
    nan_goes_true = nodes.get("nodes_missing_value_tracks_true") or (0,) * count
    _check_lengths(
        ctx, "nodes", count, number, mode_words, values, feature, nan_goes_true
    )
    _check_lengths(ctx, "nodes", count, *child_columns)
    _check_lengths(ctx, "weights", len(weights), *leaves)
    keys = list(zip(tree.tolist(), number.tolist(), strict=True))
    node_indices = {key: node_index for node_index, key in enumerate(keys)}
    if len(node_indices) != count or not count:
        ctx.raise_invalid_model(
            f"got {count} nodes with {len(node_indices)} distinct ids",
            "expected at least 1 node, each with a unique pair of tree id and node id",
        )

    def locate_nodes(trees: Array, numbers: Array) -> Array:
        keys = list(zip(trees.tolist(), numbers.tolist(), strict=True))
        for tree, number in (key for key in keys if key not in node_indices):
            ctx.raise_invalid_model(
                f"an attribute refers to node {number} of tree {tree}",
                "this node does not exist",
            )
        return np.array([node_indices[key] for key in keys], np.int64)

    is_leaf = np.array([mode_word == "LEAF" for mode_word in mode_words])
    branches = np.flatnonzero(~is_leaf)
    true_child = np.arange(count)
    false_child = np.arange(count)
    for child, child_numbers in (
        (true_child, child_columns[0]),
        (false_child, child_columns[1]),
    ):
        child[branches] = locate_nodes(tree[branches], child_numbers[branches])
    modes = np.zeros(count, np.int64)
    for branch in branches:
        mode_name = mode_words[branch].removeprefix("BRANCH_")
        if mode_name == mode_words[branch] or mode_name not in _BRANCH_MODES[:-1]:
            ctx.raise_invalid_model(
                f"a node has the mode {mode_words[branch]!r}",
                "must be LEAF or one of "
                + ", ".join(f"BRANCH_{name}" for name in _BRANCH_MODES[:-1]),
            )
        modes[branch] = _BRANCH_MODES.index(mode_name)
    roots = np.setdiff1d(
        np.arange(count), [true_child[branches], false_child[branches]]
    )
    if np.sort(tree[roots]).tolist() != (trees := np.unique(tree)).tolist():
        ctx.raise_invalid_model(
            f"{len(roots)} nodes have no parent",
            "expected one node without a parent (the root) in each of "
            f"{len(trees)} trees",
        )
    node_index = locate_nodes(*map(np.asarray, leaves[:2]))
    target_ids = np.asarray(leaves[2], np.int64)
    return _Forest(
        np.where(is_leaf, 0, feature),
        np.where(is_leaf, 0, values).astype(values.dtype),
        modes,
        is_leaf,
        true_child,
        false_child,
        np.asarray(nan_goes_true, np.bool_),
        roots,
        *_leaf_weight_tables(ctx, count, targets, node_index, target_ids, weights),
        np.zeros((count, 0), values.dtype),
    )


class _TreeEnsembleAttributes(TypedDict, total=False):
    """Attributes of TreeEnsemble."""

    nodes_splits: Weight
    nodes_featureids: Ints
    nodes_modes: Weight
    nodes_truenodeids: Ints
    nodes_falsenodeids: Ints
    nodes_trueleafs: Ints
    nodes_falseleafs: Ints
    nodes_missing_value_tracks_true: Ints
    nodes_hitrates: Weight
    membership_values: Weight
    tree_roots: Ints
    leaf_targetids: Ints
    leaf_weights: Weight


def _read_listed_branches(
    ctx: ConversionContext, attributes: _TreeEnsembleAttributes, targets: int
) -> _Forest:
    """Read trees whose branches and leaves are two lists; in the tables the leaves
    follow the branches.
    """
    splits, weights, modes = (
        attributes[name].array.reshape(-1)
        for name in ("nodes_splits", "leaf_weights", "nodes_modes")
    )
    modes = modes.astype(np.int64)
    branches, leaves = len(splits), len(weights)
    feature, target_ids, roots, *child_columns = (
        np.asarray(attributes.get(name, ()), np.int64)
        for name in (
            *("nodes_featureids", "leaf_targetids", "tree_roots"),
            *("nodes_truenodeids", "nodes_trueleafs"),
            *("nodes_falsenodeids", "nodes_falseleafs"),
        )
    )
    nan_goes_true = attributes.get("nodes_missing_value_tracks_true") or (0,) * branches
    _check_lengths(
        ctx, "branches", branches, modes, nan_goes_true, feature, *child_columns
    )
    _check_lengths(ctx, "leaves", leaves, target_ids)
    _check_range(ctx, "mode", modes, len(_BRANCH_MODES))
    leaf_nodes, children = branches + np.arange(leaves), list[Array]()
    for child, is_leaf_child in (child_columns[:2], child_columns[2:]):
        _check_range(ctx, "leaf", child[is_leaf_child != 0], leaves)
        _check_range(ctx, "branch", child[is_leaf_child == 0], branches)
        children.append(
            np.concatenate(
                [np.where(is_leaf_child, branches + child, child), leaf_nodes]
            )
        )
    _check_range(ctx, "node", roots, branches + leaves)
    return _Forest(
        np.pad(feature, (0, leaves)),
        np.pad(splits, (0, leaves)),
        np.pad(modes, (0, leaves)),
        np.arange(branches + leaves) >= branches,
        children[0],
        children[1],
        np.pad(np.asarray(nan_goes_true, np.bool_), (0, leaves)),
        roots,
        *_leaf_weight_tables(
            ctx, branches + leaves, targets, leaf_nodes, target_ids, weights
        ),
        _member_table(ctx, modes, leaves, attributes.get("membership_values")),
    )


def _member_table(
    ctx: ConversionContext, modes: Array, leaves: int, values: Weight | None
) -> Array:
    """Return the table of membership sets, which the file separates by NaN."""
    member_nodes = np.flatnonzero(modes == _BRANCH_MODES.index("MEMBER"))
    numbers = np.zeros(0, np.float32) if values is None else values.array.reshape(-1)
    if not len(member_nodes):
        return np.zeros((len(modes) + leaves, 0), numbers.dtype)
    sets = np.split(numbers, np.flatnonzero(np.isnan(numbers)) + 1)
    sets = sets if len(sets[-1]) else sets[:-1]
    if len(sets) != len(member_nodes):
        ctx.raise_invalid_model(
            f"got {len(sets)} membership sets for {len(member_nodes)} MEMBER branches",
            "each branch of mode MEMBER must have one set",
        )
    max_members = max(map(len, sets))
    table = np.full((len(modes) + leaves, max_members), np.nan, numbers.dtype)
    for node, members in zip(member_nodes, sets, strict=True):
        table[node, : len(members)] = members
    return table


# --- the graph ------------------------------------------------------------------------


def _find_leaves(ctx: ConversionContext, x: Tensor, forest: _Forest) -> Tensor:
    """Return the leaf [N, T] (i32) that each row of x [N, F] reaches in each tree."""
    g, branches = ctx.graph, ~forest.is_leaf
    _check_range(ctx, "feature", forest.feature[branches], int(x.shape[1]))
    feature, true_child, false_child, mode, roots = (
        column.astype(np.int32)
        for column in (
            forest.feature,
            forest.true_child,
            forest.false_child,
            forest.mode,
            forest.roots,
        )
    )
    used_modes = np.unique(mode[branches]).tolist()
    current_nodes: Tensor | None = None

    def look_up(table: Array) -> Tensor:
        """Look up the current nodes in a table. At the start these are the roots, the
        same for all rows.
        """
        entries: Tensor = ctx.constant_value(
            table[roots] if current_nodes is None else table
        )
        return entries if current_nodes is None else g.gather(entries, current_nodes)

    for _ in range(forest.depth(ctx)):
        gather = g.gather if current_nodes is None else g.gather_elements
        value, conditions = gather(x, look_up(feature), 1), []
        for branch_mode in used_modes:
            condition = _compare_feature(ctx, branch_mode, value, forest, look_up)
            conditions.append(
                condition & g.eq(look_up(mode), branch_mode)
                if len(used_modes) > 1
                else condition
            )
        if forest.nan_goes_true[branches].any():
            conditions.append(g.isnan(value) & look_up(forest.nan_goes_true))
        goes_true = conditions[0]
        for condition in conditions[1:]:
            goes_true = goes_true | condition
        current_nodes = g.where(goes_true, look_up(true_child), look_up(false_child))
    return (
        g.expand(ctx.constant_value(roots), (x.shape[0], len(roots)))
        if current_nodes is None
        else current_nodes
    )


def _compare_feature(
    ctx: ConversionContext,
    mode: int,
    x: Tensor,
    forest: _Forest,
    look_up: Callable[[Array], Tensor],
) -> Tensor:
    """Return whether each feature value satisfies the node's comparison of this
    mode.
    """
    g, dtype = ctx.graph, x.dtype.numpy
    if mode < len(_COMPARISON_OPS):
        return g.apply(
            _COMPARISON_OPS[mode], x, look_up(forest.threshold.astype(dtype))
        )
    is_member = g.eq(g.unsqueeze(x, -1), look_up(forest.member_sets.astype(dtype)))
    return g.gt(g.sum(g.cast(is_member, DType.I32), -1), 0)


def _score_rows(
    ctx: ConversionContext, x: Tensor, forest: _Forest, aggregate: str, base: Array
) -> tuple[Tensor, Tensor | None]:
    """Return the scores [N, targets] and a mask of those that exist; None: all exist.

    base  of each target, or empty
    """
    targets = forest.weights.shape[1]
    if len(base) not in (0, targets):
        ctx.raise_invalid_model(
            f"got {len(base)} base values",
            f"expected 0 or {targets} (one per target)",
        )
    if aggregate not in _AGGREGATES:
        ctx.raise_invalid_model(
            f"aggregate_function is {aggregate!r}",
            "must be one of " + ", ".join(_AGGREGATES),
        )
    g, leaves = ctx.graph, _find_leaves(ctx, x, forest)
    is_extreme, has_score = aggregate in ("MIN", "MAX"), None
    if not forest.has_weight[forest.is_leaf].all() and (is_extreme or not len(base)):
        counts = g.gather(
            ctx.constant_value(forest.has_weight.astype(np.int32)), leaves
        )
        has_score = g.gt(g.sum(counts, 1), 0)
    weights = forest.weights.astype(x.dtype.numpy)
    if is_extreme:
        fill_value = np.inf if aggregate == "MIN" else -np.inf
        weights = np.where(forest.has_weight, weights, fill_value).astype(weights.dtype)
    reached = g.gather(ctx.constant_value(weights), leaves)  # [N, T, targets]
    reduce = {"MIN": g.min, "MAX": g.max}.get(aggregate, g.sum)
    scores: Tensor = reduce(reached, 1)
    if is_extreme and has_score is not None:
        scores = g.where(has_score, scores, 0.0)
    if aggregate == "AVERAGE":
        scores = scores / float(len(forest.roots))
    if len(base):
        scores = scores + ctx.constant_value(base.astype(x.dtype.numpy))
    return scores, has_score


@converts("TreeEnsembleRegressor", domain=ML_DOMAIN)
def _regressor(
    ctx: ConversionContext,
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
    **nodes: Unpack[_NamedNodeAttributes],
) -> Tensor:
    weights = _attribute_values(target_weights, target_weights_as_tensor)
    leaves = (target_treeids, target_nodeids, target_ids)
    forest = _read_named_nodes(ctx, nodes, leaves, weights, n_targets)
    base = _attribute_values(base_values, base_values_as_tensor)
    scores, _ = _score_rows(
        ctx, as_float_rows(ctx, x), forest, aggregate_function, base
    )
    return ctx.graph.cast(apply_post_transform(ctx, scores, post_transform), DType.F32)


@converts("TreeEnsembleClassifier", domain=ML_DOMAIN)
def _classifier(
    ctx: ConversionContext,
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
    **nodes: Unpack[_NamedNodeAttributes],
) -> tuple[Tensor, Tensor]:
    """Convert TreeEnsembleClassifier; weights of only one of two classes are
    interpreted like in ONNX Runtime.
    """
    g, count = ctx.graph, len(classlabels_int64s or classlabels_strings)
    weights = _attribute_values(class_weights, class_weights_as_tensor)
    base = _attribute_values(base_values, base_values_as_tensor)
    used_classes = set(class_ids)
    is_single_class = count == 2 and len(used_classes) == 1
    if count < 2:
        ctx.raise_unsupported(f"got {count} classes", "expected at least 2")
    if is_single_class and (len(base) > 1 or (len(base) and used_classes != {0})):
        ctx.raise_unsupported(
            f"got weights for class {min(used_classes)} of 2 classes, and {len(base)} "
            "base values",
            "if only one of 2 classes has weights, class 0 can have 1 base value, and "
            "class 1 none",
        )
    leaves = (
        class_treeids,
        class_nodeids,
        (0,) * len(class_ids) if is_single_class else class_ids,
    )
    forest = _read_named_nodes(
        ctx, nodes, leaves, weights, 1 if is_single_class else count
    )
    scores, has_score = _score_rows(ctx, as_float_rows(ctx, x), forest, "SUM", base)
    if not is_single_class:
        valid_scores = (
            scores if has_score is None else g.where(has_score, scores, -np.inf)
        )
        class_index = g.argmax(valid_scores, 1)
        scores = apply_post_transform(ctx, scores, post_transform)
    else:
        is_positive = bool((weights >= 0).all())
        class_index = g.cast(
            g.gt(scores, 0.5 if is_positive else 0.0), DType.I32
        ).reshape((-1,))
        if used_classes == {0}:
            scores = two_class_scores(ctx, scores, post_transform, is_positive)
        else:
            both_scores = g.concat([scores * 0.0, scores], 1)
            scores = apply_post_transform(ctx, both_scores, post_transform)
    labels = class_labels(ctx, class_index, classlabels_int64s, classlabels_strings)
    return labels, g.cast(scores, DType.F32)


@converts("TreeEnsemble", since=5, domain=ML_DOMAIN)
def _ensemble(
    ctx: ConversionContext,
    x: Tensor,
    *,
    aggregate_function: int = 1,
    n_targets: int = 1,
    post_transform: int = 0,
    **attributes: Unpack[_TreeEnsembleAttributes],
) -> Tensor:
    for name, choice, choices in (
        ("aggregate_function", aggregate_function, _AGGREGATES),
        ("post_transform", post_transform, POST_TRANSFORMS),
    ):
        if not 0 <= choice < len(choices):
            ctx.raise_invalid_model(
                f"{name} is {choice}", f"must be 0 to {len(choices) - 1}"
            )
    forest, aggregates = _read_listed_branches(ctx, attributes, n_targets), _AGGREGATES
    no_base_values = np.zeros(0, np.float32)
    scores, _ = _score_rows(
        ctx,
        as_float_rows(ctx, x),
        forest,
        aggregates[aggregate_function],
        no_base_values,
    )
    return apply_post_transform(ctx, scores, POST_TRANSFORMS[post_transform])
