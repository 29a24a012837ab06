"""Geometry of sorting and searching on a device.

Every number goes by a whole one that is the larger the later it comes, so that one
kernel sorts every type both ways. A line is brought to a power of two and goes through
Batcher's bitonic network, a pass for each of its columns: what an element becomes
depends on two, so every axis may be cut. Pure arithmetic; knows no op's meaning.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref, Scratch, wrapped
from rlxweb.recipes.entry import MAIN_LINES
from rlxweb.recipes.reduce_calls import scalar_of, type_include

_MOST = (1 << 32) - 1
_IN, _OUT = Ref("in"), Ref("out")
Pair = tuple[Ref, Ref]
"""Where the places (i32) and the keys (u32) of lines are."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines along the middle axis of a dense [outer, n, inner]."""

    outer: int
    n: int
    inner: int
    dtype: DType
    descending: bool

    @property
    def around(self) -> tuple[Axis, Axis]:
        return Axis("outer", self.outer), Axis("inner", self.inner)

    @property
    def count(self) -> int:
        return self.outer * self.inner

    @property
    def x(self) -> tuple[int, int, int]:
        """Strides of the operand over (outer, inner, n)."""
        return self.n * self.inner, 1, self.inner


def ranked(lines: Lines) -> dict[str, int]:
    """The uniforms that make a key of a rank: (rank ^ flipped) + shifted.

    NaN has the lowest rank of all, 0: below it there is only the highest key.
    """
    first = lines.dtype.is_float and not lines.descending
    return {
        "flipped": _MOST if lines.descending else 0,
        "shifted": _MOST if first else 0,
    }


def sort_recipe(lines: Lines) -> Recipe:
    """The places, i32, in sorted order, where the elements were."""
    length = 1 << max(lines.n - 1, 0).bit_length()
    pairs = [(Ref("scratch", 2 * p), Ref("scratch", 2 * p + 1)) for p in (0, 1)]
    calls = [_keyed(lines, length, pairs[0])]
    if length > lines.n:
        calls.append(_filled(lines, length, pairs[0]))
    columns = []
    width = 2
    while width <= length:
        # Of two sorted runs the second is met from its end: both halves of the pair
        # are then bitonic, and neighbours at half the distance follow.
        columns.append((width, True))
        columns += [(width >> s, False) for s in range(1, width.bit_length() - 1)]
        width *= 2
    for at, (width, is_turned) in enumerate(columns):
        source, target = pairs[at % 2], pairs[(at + 1) % 2]
        blocks = lines.count * length // width
        calls.append(_exchange((blocks, width), is_turned, source, target))
    calls.append(_taken(lines, length, pairs[len(columns) % 2][0]))
    numel = lines.count * length
    room = (Scratch(numel, "i32"), Scratch(numel, "u32"))
    return Recipe(tuple(calls), room * 2)


def _dense(lines: Lines, length: int) -> tuple[int, int, int]:
    return lines.inner * length, length, 1


def _keyed(lines: Lines, length: int, into: Pair) -> Call:
    """Keys and places of the elements themselves."""
    z = _dense(lines, length)
    source = [
        *MAIN_LINES,
        "  let j = item % u.n;",
        "  let inner = item / u.n % u.inner;",
        "  let outer = item / u.n / u.inner;",
        "  let v = ld0(outer * u.x_outer + inner + j * u.x_n);",
        "  let at = outer * u.z_outer + inner * u.z_inner + j;",
        "  st1(at, i32(u.at_n + j));",
        "  st2(at, (key_of(v) ^ u.flipped) + u.shifted);",
        "}",
    ]
    return Call(
        shader="keys to sort by",
        axes=(*lines.around, Axis("n", lines.n)),
        accesses=(
            Access(_IN, lines.x),
            *(Access(one, z, "write") for one in into),
        ),
        grid=(("outer", 1), ("inner", 1), ("n", 1)),
        values={
            "x_outer": lines.x[0],
            "x_n": lines.x[2],
            "z_outer": z[0],
            "z_inner": z[1],
            **ranked(lines),
        },
        uses=(f"rank_{scalar_of(lines.dtype)}",),
        source="\n".join(source),
    )


def _filled(lines: Lines, length: int, into: Pair) -> Call:
    """Behind them what comes last, to a power of two."""
    source = [
        *MAIN_LINES,
        "  let at = item / u.n * u.length + item % u.n;",
        "  st0(at, i32(u.begin + u.at_n + item % u.n));",
        f"  st1(at, {_MOST}u);",
        "}",
    ]
    strides = (length, 1)
    return Call(
        shader="ends of lines to sort",
        axes=(Axis("line", lines.count), Axis("n", length - lines.n)),
        accesses=tuple(Access(one, strides, "write", lines.n) for one in into),
        grid=(("line", 1), ("n", 1)),
        values={"length": length, "begin": lines.n},
        source="\n".join(source),
    )


def _exchange(
    sizes: tuple[int, int], is_turned: bool, source: Pair, target: Pair
) -> Call:
    """One column of blocks: elements half a block apart, or at its mirrored places.

    sizes   how many blocks, and elements of each

    Accesses 0 and 1 are an element's, 2 and 3 those of the one it is compared with.
    """
    blocks, width = sizes
    half = width // 2
    own = (width, half, 1)
    if is_turned:
        other, first = (width, -half, -1), width - 1
    else:
        other, first = (width, -half, 1), half
    lines = [
        *MAIN_LINES,
        "  let o = item % u.o;",
        "  let side = item / u.o % u.half;",
        "  let block = item / u.o / u.half;",
        "  let at = block * u.width + side * u.middle + o;",
        "  let to = block * u.width - side * u.middle + o * u.turned;",
        "  let place = ld0(at);",
        "  let key = ld1(at);",
        "  let place2 = ld2(to);",
        "  let key2 = ld3(to);",
        "  let is_first = key < key2 || (key == key2 && place < place2);",
        "  let stays = is_first == (u.at_half + side == 0u);",
        "  st4(at, select(place2, place, stays));",
        "  st5(at, select(key2, key, stays));",
        "}",
    ]
    return Call(
        shader="column of a sorting network",
        axes=(Axis("block", blocks), Axis("half", 2), Axis("o", half)),
        accesses=(
            *(Access(one, own) for one in source),
            *(Access(one, other, "read", first) for one in source),
            *(Access(one, own, "write") for one in target),
        ),
        grid=(("block", 1), ("half", 1), ("o", 1)),
        values={
            "width": width,
            "middle": half,
            "turned": wrapped(-1 if is_turned else 1),
        },
        source="\n".join(lines),
    )


def _taken(lines: Lines, length: int, places: Ref) -> Call:
    """The places of the elements, without what was put behind them."""
    z = _dense(lines, length)
    source = [
        *MAIN_LINES,
        "  let j = item % u.n;",
        "  let inner = item / u.n % u.inner;",
        "  let outer = item / u.n / u.inner;",
        "  let place = ld0(outer * u.z_outer + inner * u.z_inner + j);",
        "  st1(outer * u.x_outer + inner + j * u.x_n, place);",
        "}",
    ]
    return Call(
        shader="places in sorted order",
        axes=(*lines.around, Axis("n", lines.n)),
        accesses=(Access(places, z), Access(_OUT, lines.x, "write")),
        grid=(("outer", 1), ("inner", 1), ("n", 1)),
        values={
            "x_outer": lines.x[0],
            "x_n": lines.x[2],
            "z_outer": z[0],
            "z_inner": z[1],
        },
        source="\n".join(source),
    )


def search_recipe(
    rows: int, n: int, count: int, dtype: DType, is_right: bool
) -> Recipe:
    """Where `count` values of each row go into its `n` sorted ones, by halving.

    As many as stand before a value in the pieces of a row stand before it in the row.
    """
    goes_on = "!overtakes(other, v)" if is_right else "overtakes(v, other)"
    lines = [
        *MAIN_LINES,
        "  let row = item / u.m;",
        "  let at = row * u.count + item % u.m;",
        "  let v = ld1(at);",
        "  var low = 0u;",
        "  var high = u.n;",
        "  while (low < high) {",
        "    let half = (low + high) / 2u;",
        "    let other = ld0(row * u.line + half);",
        f"    if ({goes_on}) {{ low = half + 1u; }} else {{ high = half; }}",
        "  }",
        "  var before = 0;",
        "  if (u.at_n != 0u) { before = ld2(at); }",
        "  st2(at, before + i32(low));",
        "}",
    ]
    call = Call(
        shader="search of sorted rows",
        axes=(Axis("row", rows), Axis("m", count), Axis("n", n, "serial")),
        accesses=(
            Access(_IN, (n, 0, 1)),
            Access(Ref("in", 1), (count, 1, 0)),
            Access(_OUT, (count, 1, 0), "update"),
        ),
        grid=(("row", 1), ("m", 1)),
        values={"line": n, "count": count},
        uses=(type_include(dtype),),
        source="\n".join(lines),
        turns=(n.bit_length() + 1) / max(n, 1),
    )
    return Recipe((call,))
