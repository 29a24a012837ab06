"""Small discrete Fourier transforms as straight-line instructions on named values.

`ButterflyBuilder` says which additions and multiplications there are, in no language;
`WgslButterflyBuilder` writes them as WGSL on scalars. A value is a pair of names (re,
im); constants are folded in, so a butterfly holds no trigonometry, no arrays and no
branches. Knows nothing about where values come from or go.
"""

from __future__ import annotations

import cmath
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np

from rlxweb.codegen.fft_arithmetic import prime_factors

ComplexNames = tuple[str, str]


def f32_literal(value: float) -> str:
    """Return the WGSL literal of the nearest float32."""
    return f"f32({float(np.float32(value))!r})"


class ButterflyBuilder(ABC):
    """Builder of small transforms in any target language."""

    @abstractmethod
    def add_reals(self, a: str, b: str) -> str:
        """Add two real values."""

    @abstractmethod
    def subtract_reals(self, a: str, b: str) -> str:
        """Subtract the second real value from the first."""

    @abstractmethod
    def negate_real(self, a: str) -> str: ...

    @abstractmethod
    def scale_real(self, a: str, factor: float, addend: str = "") -> str:
        """Multiply a real value by a constant, and add `addend` if there is one."""

    @abstractmethod
    def emit_constant_product(self, x: ComplexNames, factor: complex) -> ComplexNames:
        """Multiply a complex value by a constant, without shortcuts."""

    def add_complex(self, x: ComplexNames, y: ComplexNames) -> ComplexNames:
        """Add two complex values."""
        return self.add_reals(x[0], y[0]), self.add_reals(x[1], y[1])

    def subtract_complex(self, x: ComplexNames, y: ComplexNames) -> ComplexNames:
        """Subtract the second complex value from the first."""
        return self.subtract_reals(x[0], y[0]), self.subtract_reals(x[1], y[1])

    def multiply_by_constant(self, x: ComplexNames, factor: complex) -> ComplexNames:
        """Multiply a complex value by a constant; quarter turns cost at most
        negations.
        """
        re, im = factor.real, factor.imag
        if abs(re - 1) < 1e-12:
            return x
        if abs(re + 1) < 1e-12:
            return self.negate_real(x[0]), self.negate_real(x[1])
        if abs(im + 1) < 1e-12:
            return x[1], self.negate_real(x[0])
        if abs(im - 1) < 1e-12:
            return self.negate_real(x[1]), x[0]
        return self.emit_constant_product(x, factor)

    def dft(self, xs: list[ComplexNames]) -> list[ComplexNames]:
        """Return the forward DFT of any number of values, split by the smallest prime
        factor.
        """
        n = len(xs)
        if n == 1:
            return xs
        p = prime_factors(n)[0]
        if p == n:
            return self._prime_dft(xs)
        parts = [self.dft(xs[q::p]) for q in range(p)]
        m, out = n // p, [xs[0]] * n
        for k in range(m):
            column = [
                self.multiply_by_constant(
                    parts[q][k], cmath.exp(-2j * cmath.pi * q * k / n)
                )
                for q in range(p)
            ]
            for i, y in enumerate(self._prime_dft(column)):
                out[k + i * m] = y
        return out

    def _prime_dft(self, xs: list[ComplexNames]) -> list[ComplexNames]:
        """Return the forward DFT of a prime number of values."""
        p = len(xs)
        if p == 2:
            return [self.add_complex(*xs), self.subtract_complex(*xs)]
        # Opposite inputs share their cosines and differ in the sign of their sines.
        half = range(1, p // 2 + 1)
        sums = [self.add_complex(xs[q], xs[p - q]) for q in half]
        diffs = [self.subtract_complex(xs[q], xs[p - q]) for q in half]
        total = xs[0]
        for pair in sums:
            total = self.add_complex(total, pair)
        out = [total] * p
        for k in half:
            angles = [2 * cmath.pi * (q * k % p) / p for q in half]
            even = xs[0]
            odd = ("", "")
            for angle, s, d in zip(angles, sums, diffs, strict=True):
                c, w = cmath.cos(angle).real, cmath.sin(angle).real
                even = self._scale_complex(s, c, even)
                odd = self._scale_complex(d, w, odd)
            out[k] = (
                self.add_reals(even[0], odd[1]),
                self.subtract_reals(even[1], odd[0]),
            )
            out[p - k] = (
                self.subtract_reals(even[0], odd[1]),
                self.add_reals(even[1], odd[0]),
            )
        return out

    def _scale_complex(
        self, x: ComplexNames, factor: float, addend: ComplexNames
    ) -> ComplexNames:
        """Multiply both parts of a complex value by a real constant and add a complex
        value.
        """
        re, im = (self.scale_real(v, factor, a) for v, a in zip(x, addend, strict=True))
        return re, im


@dataclass(slots=True)
class WgslButterflyBuilder(ButterflyBuilder):
    """Builder of WGSL lines, each of which names one value. `prefix` keeps the names of
    two texts distinct.
    """

    prefix: str = "v"
    lines: list[str] = field(default_factory=list)

    def emit_let(self, expression: str) -> str:
        """Emit a `let` declaration and return its name."""
        name = f"{self.prefix}{len(self.lines)}"
        self.lines.append(f"let {name} = {expression};")
        return name

    def emit_statement(self, statement: str) -> None:
        """Emit a statement."""
        self.lines.append(statement)

    def render(self, indent: str = "    ") -> str:
        """Return the emitted lines, indented."""
        return "\n".join(indent + line for line in self.lines)

    def add_reals(self, a: str, b: str) -> str:
        return self.emit_let(f"{a} + {b}")

    def subtract_reals(self, a: str, b: str) -> str:
        return self.emit_let(f"{a} - {b}")

    def negate_real(self, a: str) -> str:
        return self.emit_let(f"-{a}")

    def scale_real(self, a: str, factor: float, addend: str = "") -> str:
        literal = f32_literal(factor)
        return self.emit_let(
            f"fma({a}, {literal}, {addend})" if addend else f"{a} * {literal}"
        )

    def emit_constant_product(self, x: ComplexNames, factor: complex) -> ComplexNames:
        return self.multiply_complex(
            x, f32_literal(factor.real), f32_literal(factor.imag)
        )

    def multiply_complex(self, x: ComplexNames, re: str, im: str) -> ComplexNames:
        """Multiply a complex value by another that is given by two names."""
        return (
            self.emit_let(f"fma({x[0]}, {re}, -({x[1]} * {im}))"),
            self.emit_let(f"fma({x[0]}, {im}, {x[1]} * {re})"),
        )

    def squared_magnitude(self, x: ComplexNames) -> str:
        """Emit the squared magnitude of a complex value."""
        return self.emit_let(f"fma({x[0]}, {x[0]}, {x[1]} * {x[1]})")
