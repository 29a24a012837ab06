"""Shapes of queries, keys and values in each layout of attention."""

from __future__ import annotations

Shape = tuple[int, ...]


def shapes_of(
    layout: str,
    batch: int,
    heads: int,
    keys_of: int,
    queries: int,
    keys: int,
    size: int,
    value: int,
) -> tuple[Shape, Shape, Shape] | None:
    """Shapes of so many heads, key heads, queries and keys, and sizes of a head.

    None where they would be read as another layout.
    """
    if layout == "flat":
        q, k = (batch, queries, heads * size), (batch, keys, keys_of * size)
        return q, k, (batch, keys, keys_of * value)
    if layout == "heads":
        k = (batch, keys_of, keys, size)
        return (batch, heads, queries, size), k, (*k[:3], value)
    k = (batch, keys, keys_of, size)
    return (
        None
        if queries == heads
        else ((batch, queries, heads, size), k, (*k[:3], value))
    )
