"""Shapes of queries, keys and values in each attention layout."""

from __future__ import annotations

Shape = tuple[int, ...]


def attention_shapes(
    layout: str,
    batch: int,
    heads: int,
    key_heads: int,
    queries: int,
    keys: int,
    head_size: int,
    value_size: int,
) -> tuple[Shape, Shape, Shape] | None:
    """Return the shapes of query, key and value for the given numbers and sizes of
    heads.

    None where they would be read as another layout.
    """
    if layout == "flat":
        q, k = (batch, queries, heads * head_size), (batch, keys, key_heads * head_size)
        return q, k, (batch, keys, key_heads * value_size)
    if layout == "heads":
        k = (batch, key_heads, keys, head_size)
        return (batch, heads, queries, head_size), k, (*k[:3], value_size)
    k = (batch, keys, key_heads, head_size)
    return (
        None
        if queries == heads
        else ((batch, queries, heads, head_size), k, (*k[:3], value_size))
    )
