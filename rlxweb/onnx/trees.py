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
from rlxweb.onnx.classical import (
    DOMAIN,
    POST,
    Array,
    Floats,
    Ints,
    as_real,
    labelled,
    of_two,
    transformed,
)
from rlxweb.onnx.converters import Call, converts
from rlxweb.onnx.records import Weight

_COMPARE = ("le", "lt", "ge", "gt", "eq", "ne")
_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
"""Comparisons of a feature with a threshold, in the numbering of TreeEnsemble."""
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_MOST_BYTES = 1 << 30
"""Limit of the table of leaf weights."""


@dataclass(frozen=True, slots=True, eq=False)
class _Forest:
    """Tables by node.

    feature, threshold, mode  what is compared, with what, and how (place in _MODES)
    is_leaf     a leaf is its own successor
    yes, no     the successors
    missing     whether NaN goes to `yes`
    roots       the first node of each tree
    weights     [nodes, targets]: the leaf's contribution, and `has_weight` likewise
    members     [nodes, most], padded with NaN: the sets of mode MEMBER
    """

    feature: Array
    threshold: Array
    mode: Array
    is_leaf: Array
    yes: Array
    no: Array
    missing: Array
    roots: Array
    weights: Array
    has_weight: Array
    members: Array

    def depth(self, call: Call) -> int:
        """Count the steps from the roots to the last leaf."""
        steps, own = 0, np.arange(len(self.yes))
        odd = np.flatnonzero(~self.is_leaf & ((self.yes == own) | (self.no == own)))
        if len(odd):
            call.contradict(f"branch {odd[0]} comes back to itself", "trees end")
        at = np.unique(self.roots)
        while len(at := at[~self.is_leaf[at]]):
            steps += 1
            if steps > len(own):
                call.contradict("a branch comes back to a node above it", "trees end")
            at = np.unique(np.concatenate([self.yes[at], self.no[at]]))
        return steps


def _check_range(call: Call, what: str, places: Array, size: int) -> None:
    odd = places[(places < 0) | (places >= size)]
    if len(odd):
        call.contradict(f"{what} {odd[0]} is named", f"there are {size:,}")


def _check_lengths(call: Call, what: str, count: int, *lists: Sized) -> None:
    for one in lists:
        if len(one) != count:
            call.contradict(f"lists of {what} have {count} and {len(one)} elements")


def _numbers(listed: Sequence[float], tensor: Weight | None) -> Array:
    """Return the values of an attribute that is a list or a tensor."""
    return (
        np.asarray(listed, np.float32) if tensor is None else tensor.array.reshape(-1)
    )


def _weights(
    call: Call, nodes: int, targets: int, at: Array, ids: Array, weights: Array
) -> tuple[Array, Array]:
    """Return `weights` and `has_weight` of a forest."""
    if nodes * targets * weights.itemsize > _MOST_BYTES:
        call.contradict(
            f"{nodes:,} nodes of {targets:,} targets",
            f"a table of their weights takes at most {_MOST_BYTES:,} bytes",
        )
    _check_range(call, "target", ids, targets)
    table = np.zeros((nodes, targets), weights.dtype)
    has_weight = np.zeros((nodes, targets), np.bool_)
    np.add.at(table, (at, ids), weights)
    has_weight[at, ids] = True
    return table, has_weight


# --- the attributes of a file ---------------------------------------------------------


class _Nodes(TypedDict, total=False):
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


def _named_nodes(
    call: Call,
    nodes: _Nodes,
    leaves: tuple[Ints, Ints, Ints],
    weights: Array,
    targets: int,
) -> _Forest:
    """Read trees whose nodes are named by tree and number.

    leaves  trees, numbers and targets of the weights
    """
    tree, number, feature, *after = (
        np.asarray(nodes.get(f"nodes_{name}", ()), np.int64)
        for name in ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    )
    words, count = nodes.get("nodes_modes", ()), len(tree)
    values = _numbers(
        nodes.get("nodes_values", ()), nodes.get("nodes_values_as_tensor")
    )
    missing = nodes.get("nodes_missing_value_tracks_true") or (0,) * count
    _check_lengths(call, "nodes", count, number, words, values, feature, missing)
    _check_lengths(call, "nodes", count, *after)
    _check_lengths(call, "weights", len(weights), *leaves)
    keys = list(zip(tree.tolist(), number.tolist(), strict=True))
    places = {key: at for at, key in enumerate(keys)}
    if len(places) != count or not count:
        call.contradict(f"{count} nodes with {len(places)} names", "each has its own")

    def located(trees: Array, numbers: Array) -> Array:
        keys = list(zip(trees.tolist(), numbers.tolist(), strict=True))
        for tree, number in (key for key in keys if key not in places):
            call.contradict(f"tree {tree} has no node {number}", "one is named")
        return np.array([places[key] for key in keys], np.int64)

    is_leaf = np.array([word == "LEAF" for word in words])
    branches, yes, no = np.flatnonzero(~is_leaf), np.arange(count), np.arange(count)
    for step, names in ((yes, after[0]), (no, after[1])):
        step[branches] = located(tree[branches], names[branches])
    modes = np.zeros(count, np.int64)
    for branch in branches:
        name = words[branch].removeprefix("BRANCH_")
        if name == words[branch] or name not in _MODES[:-1]:
            call.contradict(f"a node's mode is {words[branch]!r}", "BRANCH_LEQ …, LEAF")
        modes[branch] = _MODES.index(name)
    roots = np.setdiff1d(np.arange(count), [yes[branches], no[branches]])
    if np.sort(tree[roots]).tolist() != (trees := np.unique(tree)).tolist():
        call.contradict(
            f"{len(roots)} nodes are below no other",
            f"there are {len(trees)} trees, of one root each",
        )
    at, ids = located(*map(np.asarray, leaves[:2])), np.asarray(leaves[2], np.int64)
    return _Forest(
        np.where(is_leaf, 0, feature),
        np.where(is_leaf, 0, values).astype(values.dtype),
        modes,
        is_leaf,
        yes,
        no,
        np.asarray(missing, np.bool_),
        roots,
        *_weights(call, count, targets, at, ids, weights),
        np.zeros((count, 0), values.dtype),
    )


class _Branches(TypedDict, total=False):
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


def _listed_branches(call: Call, given: _Branches, targets: int) -> _Forest:
    """Read trees whose branches and leaves are two lists; leaves come last here."""
    splits, weights, modes = (
        given[name].array.reshape(-1)
        for name in ("nodes_splits", "leaf_weights", "nodes_modes")
    )
    modes = modes.astype(np.int64)
    branches, leaves = len(splits), len(weights)
    feature, ids, roots, *after = (
        np.asarray(given.get(name, ()), np.int64)
        for name in (
            *("nodes_featureids", "leaf_targetids", "tree_roots"),
            *("nodes_truenodeids", "nodes_trueleafs"),
            *("nodes_falsenodeids", "nodes_falseleafs"),
        )
    )
    missing = given.get("nodes_missing_value_tracks_true") or (0,) * branches
    _check_lengths(call, "branches", branches, modes, missing, feature, *after)
    _check_lengths(call, "leaves", leaves, ids)
    _check_range(call, "mode", modes, len(_MODES))
    own, steps = branches + np.arange(leaves), list[Array]()
    for to, ends in (after[:2], after[2:]):
        _check_range(call, "leaf", to[ends != 0], leaves)
        _check_range(call, "branch", to[ends == 0], branches)
        steps.append(np.concatenate([np.where(ends, branches + to, to), own]))
    _check_range(call, "node", roots, branches + leaves)
    return _Forest(
        np.pad(feature, (0, leaves)),
        np.pad(splits, (0, leaves)),
        np.pad(modes, (0, leaves)),
        np.arange(branches + leaves) >= branches,
        steps[0],
        steps[1],
        np.pad(np.asarray(missing, np.bool_), (0, leaves)),
        roots,
        *_weights(call, branches + leaves, targets, own, ids, weights),
        _members(call, modes, leaves, given.get("membership_values")),
    )


def _members(call: Call, modes: Array, leaves: int, values: Weight | None) -> Array:
    """Return the table of the sets, which a file separates by NaN."""
    owners = np.flatnonzero(modes == _MODES.index("MEMBER"))
    listed = np.zeros(0, np.float32) if values is None else values.array.reshape(-1)
    if not len(owners):
        return np.zeros((len(modes) + leaves, 0), listed.dtype)
    sets = np.split(listed, np.flatnonzero(np.isnan(listed)) + 1)
    sets = sets if len(sets[-1]) else sets[:-1]
    if len(sets) != len(owners):
        call.contradict(f"{len(sets)} sets for {len(owners)} branches", "one for each")
    most = max(map(len, sets))
    table = np.full((len(modes) + leaves, most), np.nan, listed.dtype)
    for at, one in zip(owners, sets, strict=True):
        table[at, : len(one)] = one
    return table


# --- the graph ------------------------------------------------------------------------


def _leaves(call: Call, x: Tensor, forest: _Forest) -> Tensor:
    """The leaf [N, T] (i32) that each row of x [N, F] reaches in each tree."""
    g, branches = call.g, ~forest.is_leaf
    _check_range(call, "feature", forest.feature[branches], int(x.shape[1]))
    feature, yes, no, mode, roots = (
        one.astype(np.int32)
        for one in (forest.feature, forest.yes, forest.no, forest.mode, forest.roots)
    )
    present = np.unique(mode[branches]).tolist()
    at: Tensor | None = None

    def of_nodes(table: Array) -> Tensor:
        """Look nodes up. The first are the same for all rows: the table is cut."""
        cut: Tensor = call.hold(table[roots] if at is None else table)
        return cut if at is None else g.gather(cut, at)

    for _ in range(forest.depth(call)):
        pick = g.gather if at is None else g.gather_elements
        value, ways = pick(x, of_nodes(feature), 1), []
        for kind in present:
            way = _compared(call, kind, value, forest, of_nodes)
            ways.append(way & g.eq(of_nodes(mode), kind) if len(present) > 1 else way)
        if forest.missing[branches].any():
            ways.append(g.isnan(value) & of_nodes(forest.missing))
        goes = ways[0]
        for way in ways[1:]:
            goes = goes | way
        at = g.where(goes, of_nodes(yes), of_nodes(no))
    return g.expand(call.hold(roots), (x.shape[0], len(roots))) if at is None else at


def _compared(
    call: Call,
    mode: int,
    x: Tensor,
    forest: _Forest,
    of_nodes: Callable[[Array], Tensor],
) -> Tensor:
    g, dtype = call.g, x.dtype.numpy
    if mode < len(_COMPARE):
        return g.apply(_COMPARE[mode], x, of_nodes(forest.threshold.astype(dtype)))
    same = g.eq(g.unsqueeze(x, -1), of_nodes(forest.members.astype(dtype)))
    return g.gt(g.sum(g.cast(same, DType.I32), -1), 0)


def _scored(
    call: Call, x: Tensor, forest: _Forest, aggregate: str, base: Array
) -> tuple[Tensor, Tensor | None]:
    """The scores [N, targets], and which of them exist; None: all.

    base  of each target, or empty
    """
    targets = forest.weights.shape[1]
    if len(base) not in (0, targets):
        call.contradict(f"{len(base)} base values", f"one for each of {targets}")
    if aggregate not in _AGGREGATES:
        call.contradict(f"aggregate_function is {aggregate!r}")
    g, leaves = call.g, _leaves(call, x, forest)
    is_extreme, exists = aggregate in ("MIN", "MAX"), None
    if not forest.has_weight[forest.is_leaf].all() and (is_extreme or not len(base)):
        counts = g.gather(call.hold(forest.has_weight.astype(np.int32)), leaves)
        exists = g.gt(g.sum(counts, 1), 0)
    weights = forest.weights.astype(x.dtype.numpy)
    if is_extreme:
        far = np.inf if aggregate == "MIN" else -np.inf
        weights = np.where(forest.has_weight, weights, far).astype(weights.dtype)
    reached = g.gather(call.hold(weights), leaves)  # [N, T, targets]
    fold = {"MIN": g.min, "MAX": g.max}.get(aggregate, g.sum)
    scores: Tensor = fold(reached, 1)
    if is_extreme and exists is not None:
        scores = g.where(exists, scores, 0.0)
    if aggregate == "AVERAGE":
        scores = scores / float(len(forest.roots))
    if len(base):
        scores = scores + call.hold(base.astype(x.dtype.numpy))
    return scores, exists


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
    **nodes: Unpack[_Nodes],
) -> Tensor:
    weights = _numbers(target_weights, target_weights_as_tensor)
    leaves = (target_treeids, target_nodeids, target_ids)
    forest = _named_nodes(call, nodes, leaves, weights, n_targets)
    base = _numbers(base_values, base_values_as_tensor)
    scores, _ = _scored(call, as_real(call, x), forest, aggregate_function, base)
    return call.g.cast(transformed(call, scores, post_transform), DType.F32)


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
    **nodes: Unpack[_Nodes],
) -> tuple[Tensor, Tensor]:
    """Classify; weights of one of two classes are read as ONNX Runtime reads them."""
    g, count = call.g, len(classlabels_int64s or classlabels_strings)
    weights = _numbers(class_weights, class_weights_as_tensor)
    base = _numbers(base_values, base_values_as_tensor)
    kinds = set(class_ids)
    one = count == 2 and len(kinds) == 1
    if count < 2 or (one and (len(base) > 1 or (len(base) and kinds != {0}))):
        call.refuse(
            f"{count} classes, weights for {len(kinds)} of them and "
            f"{len(base)} base values",
            "ONNX does not define their meaning",
        )
    leaves = (class_treeids, class_nodeids, (0,) * len(class_ids) if one else class_ids)
    forest = _named_nodes(call, nodes, leaves, weights, 1 if one else count)
    scores, exists = _scored(call, as_real(call, x), forest, "SUM", base)
    if not one:
        known = scores if exists is None else g.where(exists, scores, -np.inf)
        which = g.argmax(known, 1)
        scores = transformed(call, scores, post_transform)
    else:
        positive = bool((weights >= 0).all())
        which = g.cast(g.gt(scores, 0.5 if positive else 0.0), DType.I32).reshape((-1,))
        if kinds == {0}:
            scores = of_two(call, scores, post_transform, positive)
        else:
            both = g.concat([scores * 0.0, scores], 1)
            scores = transformed(call, both, post_transform)
    labels = labelled(call, which, classlabels_int64s, classlabels_strings)
    return labels, g.cast(scores, DType.F32)


@converts("TreeEnsemble", since=5, domain=DOMAIN)
def _ensemble(
    call: Call,
    x: Tensor,
    *,
    aggregate_function: int = 1,
    n_targets: int = 1,
    post_transform: int = 0,
    **given: Unpack[_Branches],
) -> Tensor:
    for name, at, all_ in (
        ("aggregate_function", aggregate_function, _AGGREGATES),
        ("post_transform", post_transform, POST),
    ):
        if not 0 <= at < len(all_):
            call.contradict(f"{name} is {at}", f"0 to {len(all_) - 1}")
    forest, how = _listed_branches(call, given, n_targets), _AGGREGATES
    none = np.zeros(0, np.float32)
    scores, _ = _scored(call, as_real(call, x), forest, how[aggregate_function], none)
    return transformed(call, scores, POST[post_transform])
