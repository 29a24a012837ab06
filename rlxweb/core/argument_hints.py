"""Hints that name arguments: as keywords in Python, as flags on the command line.

An argument is a keyword in Python and a flag on the command line: `precision="f32"` and
`--precision f32`. Whoever gives the advice names the argument and its value once, and
knows neither place.
"""

from __future__ import annotations

from typing import Any


class Blank(str):
    """Placeholder for a value that the reader has to fill in: `Blank("HZ")`.

    Also a value that is shown as it is written here.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Advice(str):
    """Hint that names arguments: text with one `{}` for each argument, in order.

    As a string it is written for Python; `as_flags` is the same for a command line.

    Example  str(Advice("give {}", fs=Blank("HZ"))) is "give fs=HZ"
    """

    __slots__ = ("arguments", "text")

    text: str
    arguments: dict[str, object]

    def __new__(cls, text: str, /, **arguments: object) -> Advice:
        advice = super().__new__(
            cls, text.format(*map(_format_keyword, arguments.items()))
        )
        advice.text, advice.arguments = text, arguments
        return advice

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.text,), self.arguments

    def before(self, argument: str, what: str) -> Advice:
        """Return the same advice with `what` to be done first: "use {what} and k=3".

        As it is where it does not name the argument.
        """
        if argument not in self.arguments:
            return self
        parts = self.text.split("{}")
        parts[list(self.arguments).index(argument)] += f"{what} and "
        return Advice("{}".join(parts), **self.arguments)

    @property
    def as_flags(self) -> str:
        """The advice with arguments written as command-line flags."""
        return self.text.format(*map(_format_flag, self.arguments.items()))


def _format_keyword(argument: tuple[str, object]) -> str:
    """Return an argument as a Python keyword: `fs=100`."""
    name, value = argument
    return f"{name}={value!r}"


def _format_flag(argument: tuple[str, object]) -> str:
    """Return an argument as a command-line flag: `--fs 100`."""
    from shlex import quote  # of no use in a tab

    name, value = argument
    if value is True:
        return f"--{name.replace('_', '-')}"
    parts = value if isinstance(value, tuple) else (value,)
    shown = ",".join(p if isinstance(p, Blank) else quote(str(p)) for p in parts)
    return f"--{name.replace('_', '-')} {shown}"
