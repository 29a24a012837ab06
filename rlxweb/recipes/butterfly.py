"""Straight-line WGSL for small discrete Fourier transforms on scalar names.

A value is a pair of names (re, im); constants are folded into the text as float32, so
a butterfly holds no trigonometry, no arrays and no branches. Knows nothing about where
values come from or go.
"""

from __future__ import annotations

import cmath
from dataclasses import dataclass, field

import numpy as np

from rlxweb.recipes.fft_plan import prime_factors

Pair = tuple[str, str]


def number(value: float) -> str:
    """A WGSL literal of the nearest float32."""
    return f"f32({float(np.float32(value))!r})"


@dataclass(slots=True)
class Emitter:
    """Lines of WGSL, each naming one value. `prefix` keeps two texts' names apart."""

    prefix: str = "v"
    lines: list[str] = field(default_factory=list)

    def let(self, expression: str) -> str:
        name = f"{self.prefix}{len(self.lines)}"
        self.lines.append(f"let {name} = {expression};")
        return name

    def do(self, statement: str) -> None:
        self.lines.append(statement)

    def text(self, indent: str = "    ") -> str:
        return "\n".join(indent + line for line in self.lines)

    def add(self, x: Pair, y: Pair) -> Pair:
        return self.let(f"{x[0]} + {y[0]}"), self.let(f"{x[1]} + {y[1]}")

    def sub(self, x: Pair, y: Pair) -> Pair:
        return self.let(f"{x[0]} - {y[0]}"), self.let(f"{x[1]} - {y[1]}")

    def times(self, x: Pair, re: str, im: str) -> Pair:
        """The value times a complex one given by two names."""
        return (
            self.let(f"fma({x[0]}, {re}, -({x[1]} * {im}))"),
            self.let(f"fma({x[0]}, {im}, {x[1]} * {re})"),
        )

    def turned(self, x: Pair, factor: complex) -> Pair:
        """The value times a constant; quarter turns cost a sign."""
        re, im = factor.real, factor.imag
        if abs(re - 1) < 1e-12:
            return x
        if abs(re + 1) < 1e-12:
            return self.let(f"-{x[0]}"), self.let(f"-{x[1]}")
        if abs(im + 1) < 1e-12:
            return x[1], self.let(f"-{x[0]}")
        if abs(im - 1) < 1e-12:
            return self.let(f"-{x[1]}"), x[0]
        return self.times(x, number(re), number(im))

    def _scaled(self, x: Pair, factor: str, plus: Pair) -> Pair:
        """Both parts times one number, and what is there already added."""
        re, im = (
            self.let(f"fma({v}, {factor}, {p})" if p else f"{v} * {factor}")
            for v, p in zip(x, plus, strict=True)
        )
        return re, im

    def power(self, x: Pair) -> str:
        return self.let(f"fma({x[0]}, {x[0]}, {x[1]} * {x[1]})")

    def dft(self, xs: list[Pair]) -> list[Pair]:
        """Forward DFT of the values, any count, split by its smallest prime factor."""
        n = len(xs)
        if n == 1:
            return xs
        p = prime_factors(n)[0]
        if p == n:
            return self._prime(xs)
        parts = [self.dft(xs[q::p]) for q in range(p)]
        m, out = n // p, [xs[0]] * n
        for k in range(m):
            column = [
                self.turned(parts[q][k], cmath.exp(-2j * cmath.pi * q * k / n))
                for q in range(p)
            ]
            for i, y in enumerate(self._prime(column)):
                out[k + i * m] = y
        return out

    def _prime(self, xs: list[Pair]) -> list[Pair]:
        p = len(xs)
        if p == 2:
            return [self.add(*xs), self.sub(*xs)]
        # Opposite inputs share their cosines and differ in the sign of their sines.
        half = range(1, p // 2 + 1)
        sums = [self.add(xs[q], xs[p - q]) for q in half]
        diffs = [self.sub(xs[q], xs[p - q]) for q in half]
        total = xs[0]
        for pair in sums:
            total = self.add(total, pair)
        out = [total] * p
        for k in half:
            turns = [2 * cmath.pi * (q * k % p) / p for q in half]
            even = xs[0]
            odd: Pair = ("", "")
            for turn, s, d in zip(turns, sums, diffs, strict=True):
                c, w = number(cmath.cos(turn).real), number(cmath.sin(turn).real)
                even, odd = self._scaled(s, c, even), self._scaled(d, w, odd)
            out[k] = (
                self.let(f"{even[0]} + {odd[1]}"),
                self.let(f"{even[1]} - {odd[0]}"),
            )
            out[p - k] = (
                self.let(f"{even[0]} - {odd[1]}"),
                self.let(f"{even[1]} + {odd[0]}"),
            )
        return out
