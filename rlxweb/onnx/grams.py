"""Counting runs of numbers: TfIdfVectorizer. Text stays refused."""

from __future__ import annotations

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts

Ints = tuple[int, ...]
MODES = ("TF", "IDF", "TFIDF")


@converts("TfIdfVectorizer", since=9)
def _vectorized(
    call: Call,
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
    """How often each run of the pool is in a row, with up to so many left out between
    neighbours; each weighs what is said of its place.
    """
    g = call.g
    if pool_strings is not None or pool_int64s is None:
        call.refuse("its pool is text", "rlxweb computes with numbers")
    if mode not in MODES or not ngram_indexes or x.rank not in (1, 2):
        call.contradict(
            f"mode {mode!r}, {len(ngram_indexes)} runs, x of rank {x.rank}",
            "TF, IDF or TFIDF of rows or of one",
        )
    if len(set(ngram_indexes)) != len(ngram_indexes) or min(ngram_indexes) < 0:
        call.contradict("its indices", "each run has a place of its own")
    # As wide as the pool's numbers are: one beyond i32 is like none that is.
    rows = (x if x.rank == 2 else x.reshape((1, -1))).cast(DType.I64)
    found: list[Tensor] = []
    known = _pools(call, pool_int64s, ngram_counts, len(ngram_indexes))
    for length, pool in known:
        none = np.zeros((rows.shape[0], len(pool)), np.float32)
        made = g.constant(none)
        if min_gram_length <= length <= max_gram_length and len(pool):
            for skip in range(max_skip_count + 1 if length > 1 else 1):
                made = made + _counted(call, rows, pool, skip)
        found.append(made)
    size = max(ngram_indexes) + 1
    counts = g.concat([*found, g.constant(np.zeros((rows.shape[0], 1), np.float32))], 1)
    places = np.full(size, len(ngram_indexes), np.int32)
    places[list(ngram_indexes)] = np.arange(len(ngram_indexes))
    counts = g.gather(counts, g.constant(places), 1)
    if mode != "TF":
        weighed = np.ones(size, np.float32)
        if weights is not None:
            if len(weights) != size:
                call.contradict(f"{len(weights)} weights", f"there are {size} places")
            weighed = np.array(weights, np.float32)
        # Without weights IDF tells what is there.
        there = g.cast(counts > 0.0, DType.F32) if mode == "IDF" else counts
        counts = there * g.constant(weighed)
    return counts if x.rank == 2 else counts.reshape((size,))


def _pools(
    call: Call, pool: Ints, begins: Ints, count: int
) -> list[tuple[int, np.ndarray[tuple[int, int], np.dtype[np.int64]]]]:
    """(length, runs of that length) in their order. Errors  ModelError."""
    ends = (*begins[1:], len(pool))
    made, seen = [], 0
    for length, (begin, end) in enumerate(zip(begins, ends, strict=True), 1):
        if not 0 <= begin <= end <= len(pool) or (end - begin) % length:
            call.contradict(
                f"runs of {length} from {begin} to {end} of {len(pool)} numbers",
                "they lie one behind the other",
            )
        part = np.array(pool[begin:end], np.int64).reshape(-1, length)
        seen += len(part)
        made.append((length, part))
    if seen != count:
        call.contradict(f"{seen} runs and {count} indices", "one for each")
    return made


def _counted(
    call: Call,
    rows: Tensor,
    pool: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    skip: int,
) -> Tensor:
    """[rows, runs]: how often each is there, `skip` left out between neighbours."""
    g, length = call.g, pool.shape[1]
    reach = (length - 1) * (skip + 1) + 1
    if reach > rows.shape[1]:
        return g.constant(np.zeros((rows.shape[0], len(pool)), np.float32))
    places = rows.shape[1] - reach + 1
    same = None
    for at in range(length):
        begin = at * (skip + 1)
        own = g.narrow(rows, 1, begin, places).reshape((-1, places, 1))
        wanted = g.constant(pool[:, at].reshape(1, 1, -1))
        is_one = g.eq(own, wanted)
        same = is_one if same is None else g.logical_and(same, is_one)
    assert same is not None
    return g.sum(g.cast(same, DType.F32), 1)
