"""Small discrete Fourier transforms as straight lines of instructions on named values.

`Butterflies` says which additions and multiplications there are, in no language;
`Emitter` writes them as WGSL on scalars. A value is a pair of names (re, im); constants
are folded in, so a butterfly holds no trigonometry, no arrays and no branches. Knows
nothing about where values come from or go.
"""

from __future__ import annotations

import cmath
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np

from rlxweb.recipes.fft_plan import prime_factors

Pair = tuple[str, str]


def number(value: float) -> str:
    """A WGSL literal of the nearest float32."""
    return f"f32({float(np.float32(value))!r})"


class Butterflies(ABC):
    """Transforms of a few values, whatever language they are written in."""

    @abstractmethod
    def plus(self, a: str, b: str) -> str:
        """The sum of two real values."""

    @abstractmethod
    def minus(self, a: str, b: str) -> str:
        """Their difference."""

    @abstractmethod
    def negated(self, a: str) -> str: ...

    @abstractmethod
    def scaled(self, a: str, factor: float, added: str = "") -> str:
        """A real value times a number, and `added` to it where there is such."""

    @abstractmethod
    def turned_by(self, x: Pair, factor: complex) -> Pair:
        """The value times a constant."""

    def add(self, x: Pair, y: Pair) -> Pair:
        return self.plus(x[0], y[0]), self.plus(x[1], y[1])

    def sub(self, x: Pair, y: Pair) -> Pair:
        return self.minus(x[0], y[0]), self.minus(x[1], y[1])

    def turned(self, x: Pair, factor: complex) -> Pair:
        """The value times a constant; quarter turns cost a sign."""
        re, im = factor.real, factor.imag
        if abs(re - 1) < 1e-12:
            return x
        if abs(re + 1) < 1e-12:
            return self.negated(x[0]), self.negated(x[1])
        if abs(im + 1) < 1e-12:
            return x[1], self.negated(x[0])
        if abs(im - 1) < 1e-12:
            return self.negated(x[1]), x[0]
        return self.turned_by(x, factor)

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
            odd = ("", "")
            for turn, s, d in zip(turns, sums, diffs, strict=True):
                c, w = cmath.cos(turn).real, cmath.sin(turn).real
                even = self._both_scaled(s, c, even)
                odd = self._both_scaled(d, w, odd)
            out[k] = self.plus(even[0], odd[1]), self.minus(even[1], odd[0])
            out[p - k] = self.minus(even[0], odd[1]), self.plus(even[1], odd[0])
        return out

    def _both_scaled(self, x: Pair, factor: float, added: Pair) -> Pair:
        re, im = (self.scaled(v, factor, a) for v, a in zip(x, added, strict=True))
        return re, im


@dataclass(slots=True)
class Emitter(Butterflies):
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

    def plus(self, a: str, b: str) -> str:
        return self.let(f"{a} + {b}")

    def minus(self, a: str, b: str) -> str:
        return self.let(f"{a} - {b}")

    def negated(self, a: str) -> str:
        return self.let(f"-{a}")

    def scaled(self, a: str, factor: float, added: str = "") -> str:
        by = number(factor)
        return self.let(f"fma({a}, {by}, {added})" if added else f"{a} * {by}")

    def turned_by(self, x: Pair, factor: complex) -> Pair:
        return self.times(x, number(factor.real), number(factor.imag))

    def times(self, x: Pair, re: str, im: str) -> Pair:
        """The value times a complex one given by two names."""
        return (
            self.let(f"fma({x[0]}, {re}, -({x[1]} * {im}))"),
            self.let(f"fma({x[0]}, {im}, {x[1]} * {re})"),
        )

    def power(self, x: Pair) -> str:
        return self.let(f"fma({x[0]}, {x[0]}, {x[1]} * {x[1]})")
