"""Converter of TfIdfVectorizer, which counts n-grams of numbers; text is not
supported.
"""

from __future__ import annotations

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, converts

Ints = tuple[int, ...]
MODES = ("TF", "IDF", "TFIDF")


@converts("TfIdfVectorizer", since=9)
def _tfidf_vectorizer(
    ctx: ConversionContext,
    x: Tensor,
    *,
    mode: str,
    ngram_indexes: Ints,
    ngram_counts: Ints,
    max_skip_count: int,
    min_gram_length: int,
    max_gram_length: int,
    pool_int64s: Ints | None = None,
    pool_strings: tuple[str, ...] | None = None,
    weights: tuple[float, ...] | None = None,
) -> Tensor:
    """Count each n-gram of the pool in every row, with up to `max_skip_count` elements
    skipped between neighbours, and weight the counts.
    """
    g = ctx.graph
    if pool_strings is not None or pool_int64s is None:
        problem = "the pool contains strings"
        problem = "pool_int64s is missing" if pool_strings is None else problem
        ctx.raise_unsupported(problem, "only pools of numbers are supported")
    if mode not in MODES or not ngram_indexes or x.rank not in (1, 2):
        ctx.raise_invalid_model(
            f"mode is {mode!r}, the number of n-grams is {len(ngram_indexes)} and "
            f"the rank of x is {x.rank}",
            "mode must be TF, IDF or TFIDF, the number of n-grams at least 1 and the "
            "rank 1 or 2",
        )
    if len(set(ngram_indexes)) != len(ngram_indexes) or min(ngram_indexes) < 0:
        ctx.raise_invalid_model(
            "ngram_indexes contains duplicates or negative numbers",
            "each n-gram must have a unique index >= 0",
        )
    # As wide as the pool's numbers are: one beyond i32 is like none that is.
    rows = (x if x.rank == 2 else x.reshape((1, -1))).cast(DType.I64)
    counts_by_length: list[Tensor] = []
    pools = _pools_by_length(ctx, pool_int64s, ngram_counts, len(ngram_indexes))
    for length, pool in pools:
        zeros = np.zeros((rows.shape[0], len(pool)), np.float32)
        length_counts = g.constant(zeros)
        if min_gram_length <= length <= max_gram_length and len(pool):
            for skip in range(max_skip_count + 1 if length > 1 else 1):
                length_counts = length_counts + _count_ngrams(ctx, rows, pool, skip)
        counts_by_length.append(length_counts)
    size = max(ngram_indexes) + 1
    counts = g.concat(
        [*counts_by_length, g.constant(np.zeros((rows.shape[0], 1), np.float32))], 1
    )
    source_columns = np.full(size, len(ngram_indexes), np.int32)
    source_columns[list(ngram_indexes)] = np.arange(len(ngram_indexes))
    counts = g.gather(counts, g.constant(source_columns), 1)
    if mode != "TF":
        column_weights = np.ones(size, np.float32)
        if weights is not None:
            if len(weights) != size:
                ctx.raise_invalid_model(
                    f"got {len(weights)} weights",
                    f"expected one for each of {size} output columns",
                )
            column_weights = np.array(weights, np.float32)
        # Without weights IDF tells what is there.
        term_values = g.cast(counts > 0.0, DType.F32) if mode == "IDF" else counts
        counts = term_values * g.constant(column_weights)
    return counts if x.rank == 2 else counts.reshape((size,))


def _pools_by_length(
    ctx: ConversionContext, pool: Ints, starts: Ints, count: int
) -> list[tuple[int, np.ndarray[tuple[int, int], np.dtype[np.int64]]]]:
    """Return (n-gram length, n-grams of that length) in order. Raises ModelError."""
    ends = (*starts[1:], len(pool))
    pools, total = [], 0
    for length, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        if not 0 <= start <= end <= len(pool) or (end - start) % length:
            ctx.raise_invalid_model(
                f"the {length}-grams start at element {start} and end before element "
                f"{end} of a pool of {len(pool)} elements",
                "the starts in ngram_counts must be ascending and within the pool, and "
                "the elements from each start to the next must be whole n-grams",
            )
        ngrams = np.array(pool[start:end], np.int64).reshape(-1, length)
        total += len(ngrams)
        pools.append((length, ngrams))
    if total != count:
        ctx.raise_invalid_model(
            f"the pool has {total} n-grams, and ngram_indexes has {count} elements",
            "the counts must be equal",
        )
    return pools


def _count_ngrams(
    ctx: ConversionContext,
    rows: Tensor,
    pool: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    skip: int,
) -> Tensor:
    """Count each n-gram in every row, [rows, n-grams], with `skip` elements skipped
    between neighbours.
    """
    g, length = ctx.graph, pool.shape[1]
    span = (length - 1) * (skip + 1) + 1
    if span > rows.shape[1]:
        return g.constant(np.zeros((rows.shape[0], len(pool)), np.float32))
    position_count = rows.shape[1] - span + 1
    matches = None
    for position in range(length):
        start = position * (skip + 1)
        elements = g.narrow(rows, 1, start, position_count).reshape(
            (-1, position_count, 1)
        )
        expected = g.constant(pool[:, position].reshape(1, 1, -1))
        is_equal = g.eq(elements, expected)
        matches = is_equal if matches is None else g.logical_and(matches, is_equal)
    assert matches is not None
    return g.sum(g.cast(matches, DType.F32), 1)
