"""How a Welch kernel that works in fours ends: power written out, or peaks picked.

Each ending gets the bins four at a time, in no order, by a text that names `four`,
their sums, `bin`, where they lie in the whole spectrum, and `counts`, which of them are
not there twice. Peaks are those of `welch_select.py`: strongest first, ties to the
smaller bin, a NaN passed over. Written with plain scalars: where a binding is of vec4,
so are the includes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rlxweb.recipes.butterfly import Emitter
from rlxweb.recipes.welch_plan import WelchPlan
from rlxweb.recipes.welch_select import MOST_INSERTED, NOTHING

# Only told at run time: compilers refuse a constant that is not a number.
_NAN = "bitcast<f32>(select(0u, 0x7fc00000u, q < u.k))"


def _powers(case: WelchPlan) -> str:
    """`p4`, the powers of bins `i4`; what is there twice is no number's."""
    n = case.nfft
    lines = [f"let i4 = min(bin, vec4<u32>({n}u) - bin);"]
    if not case.doubling or case.bins < 2:
        weights = "vec4<f32>(u.at_ends)"
    else:
        ends = "(i4 == vec4<u32>())"
        if n % 2 == 0:
            ends = f"({ends} | (i4 == vec4<u32>({case.bins - 1}u)))"
        weights = f"select(vec4<f32>(u.inside), vec4<f32>(u.at_ends), {ends})"
    lines.append(f"let p4 = four * {weights};")
    return "\n".join("    " + line for line in lines)


@dataclass(frozen=True, slots=True)
class FourPlain:
    """Every power is written."""

    case: WelchPlan
    store: str

    def each(self, e: Emitter) -> str:
        """What is done with four bins."""
        return f"""{e.text()}
{_powers(self.case)}
    for (var c = 0u; c < 4u; c++) {{
      if (counts[c]) {{ {self.store}(row * {self.case.bins}u + i4[c], p4[c]); }}
    }}"""

    def around(self, walk: str) -> str:
        """The whole ending."""
        return walk


def most_peaks(case: WelchPlan) -> int:
    """So many are noted in a lane's own memory, and one more behind them."""
    return min(MOST_INSERTED, case.nfft // 4 // 2)


@dataclass(frozen=True, slots=True)
class FourPeaks:
    """A lane finds the power of its k-th strongest bin, then the bins that reach it.

    Lanes run in step: what one of them inserts into a list all of them walk through. So
    the first walk over the bins sorts powers alone, by networks of min and max, the
    second one notes those that are strong enough, by rising bins; their places follow
    from the sorted powers. No uniform can count registers: there are as many as the
    next power of two.

    get, put   a lane's own memory, four cells at once, of `blocks` x `last` cells:
               array 1 takes the powers
    found      the array that takes the bins that were noted
    """

    case: WelchPlan
    store: str
    k: int
    blocks: int
    last: int
    get: Callable[[int, str], str]
    put: Callable[[int, str, str], str]
    found: int

    @property
    def places(self) -> int:
        """A power of two, k or more."""
        return max(4, 1 << (self.k - 1).bit_length())

    @property
    def fours(self) -> int:
        """Fours of bins that are looked at."""
        return (self.blocks // 2 + 1) * (self.last // 4)

    def each(self, e: Emitter) -> str:
        """What is done with four bins."""
        kept = f"select(vec4<f32>({NOTHING}), p4, counts & (p4 > vec4<f32>({NOTHING})))"
        return f"""{e.text()}
{_powers(self.case)}
    {self.put(1, f"b * {self.last // 4}u + g", kept)}"""

    def around(self, walk: str) -> str:
        """The whole ending."""
        return walk + self._threshold() + self._noted() + self._placed()

    def _threshold(self) -> str:
        """The k-th largest power."""
        places, step = self.places, self.places // 4
        up = -(-self.fours // step) * step
        nothing = f"vec4<f32>({NOTHING})"
        fill = "".join(
            f"  {self.put(1, f'{four}u', nothing)}\n" for four in range(self.fours, up)
        )
        tops = "".join(f"  var top{q} = {NOTHING};\n" for q in range(places))
        e = Emitter("t")
        news = []
        for four in range(step):
            v = e.let(self.get(1, f"t + {four}u"))
            news += [f"{v}.{part}" for part in "xyzw"]
        for i, j in _sorting(places):
            news[i], news[j] = _larger_first(e, news[i], news[j])
        # Both fall: the larger of each and its opposite are the largest of all.
        both = [e.let(f"max(top{q}, {news[places - 1 - q]})") for q in range(places)]
        for i, j in _merging(places):
            both[i], both[j] = _larger_first(e, both[i], both[j])
        keep = "".join(f"    top{q} = {both[q]};\n" for q in range(places))
        above = "".join(f"  above += u32(top{q} > least);\n" for q in range(places))
        pick = "".join(
            f"  least = select(least, top{q}, u.k == {q + 1}u);\n"
            for q in range(places)
        )
        return f"""{fill}{tops}  for (var t = 0u; t < {up}u; t += {step}u) {{
{e.text()}
{keep}  }}
  var least = {NOTHING};
{pick}  var above = 0u;
{above}"""

    def _noted(self) -> str:
        """The bins above it, and of those that equal it the first."""
        n, blocks, last = self.case.nfft, self.blocks, self.last
        note = self.put(self.found, "count", "vec4<f32>(p, f32(i), 0.0, 0.0)")
        # Every bin is written where the next one goes that is strong enough: a store is
        # less than a loop around it that lanes may skip.
        return f"""  var count = 0u;
  var equal = u.k - above;
  for (var i = 0u; i < {self.case.bins}u; i++) {{
    let own = select({n}u - i, i, (i % {blocks}u) * 2u <= {blocks}u);
    let cell = (own % {blocks}u) * {last}u + own / {blocks}u;
    let p = {self.get(1, "cell / 4u")}[cell % 4u];
    let ties = p == least && equal > 0u && p > {NOTHING};
    {note}
    count += select(0u, 1u, p > least || ties);
    equal -= select(0u, 1u, ties);
  }}
"""

    def _placed(self) -> str:
        """Each to its place: behind those above it, and those that equal it and came
        before.
        """
        above = " + ".join(f"u32(top{q} > v.x)" for q in range(self.places))
        return f"""  let list = row * u.k * 2u;
  var taken = 0u;
  for (var q = 0u; q < count; q++) {{
    let v = {self.get(self.found, "q")};
    let least_place = {above};
    let place = least_place + firstTrailingBit(~(taken >> least_place));
    taken |= 1u << place;
    {self.store}(list + 2u * place, v.y);
    {self.store}(list + 2u * place + 1u, v.x);
  }}
  for (var q = count; q < u.k; q++) {{
    {self.store}(list + 2u * q, f32(q));
    {self.store}(list + 2u * q + 1u, {_NAN});
  }}
"""


def _larger_first(e: Emitter, a: str, b: str) -> tuple[str, str]:
    return e.let(f"max({a}, {b})"), e.let(f"min({a}, {b})")


def _sorting(n: int) -> Iterator[tuple[int, int]]:
    """Batcher's odd-even merge sort of n values, a power of two."""
    run = 1
    while run < n:
        gap = run
        while gap:
            for start in range(gap % run, n - gap, 2 * gap):
                for i in range(start, min(start + gap, n - gap)):
                    if i // (2 * run) == (i + gap) // (2 * run):
                        yield i, i + gap
            gap //= 2
        run *= 2


def _merging(n: int) -> Iterator[tuple[int, int]]:
    """What sorts n values that rise and then fall, or the other way round."""
    gap = n // 2
    while gap:
        yield from ((i, i + gap) for i in range(n) if not i & gap)
        gap //= 2
