"""What to do next, said in the words of the place where it is read.

An argument is a keyword in Python and a flag on the command line: `precision="f32"` and
`--precision f32`. Whoever gives the advice names the argument and its value once, and
knows neither place.
"""

from __future__ import annotations

from typing import Any


class Blank(str):
    """Stands for a value that the reader has to fill in: `Blank("HZ")`.

    Also a value that is shown as it is written here.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Advice(str):
    """A hint that names arguments: text with a `{}` for each, in their order.

    As a string it is written for Python; `as_flags` is the same for a command line.

    Example  str(Advice("give {}", fs=Blank("HZ"))) is "give fs=HZ"
    """

    __slots__ = ("arguments", "text")

    text: str
    arguments: dict[str, object]

    def __new__(cls, text: str, /, **arguments: object) -> Advice:
        said = super().__new__(cls, text.format(*map(_keyword, arguments.items())))
        said.text, said.arguments = text, arguments
        return said

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.text,), self.arguments

    def before(self, argument: str, what: str) -> Advice:
        """The same with `what` to be done at an argument, "use {what} and k=3".

        As it is where it does not name the argument.
        """
        if argument not in self.arguments:
            return self
        parts = self.text.split("{}")
        parts[list(self.arguments).index(argument)] += f"{what} and "
        return Advice("{}".join(parts), **self.arguments)

    @property
    def as_flags(self) -> str:
        """The advice for a command line."""
        return self.text.format(*map(_flag, self.arguments.items()))


def _keyword(argument: tuple[str, object]) -> str:
    name, value = argument
    return f"{name}={value!r}"


def _flag(argument: tuple[str, object]) -> str:
    from shlex import quote  # of no use in a tab

    name, value = argument
    if value is True:
        return f"--{name.replace('_', '-')}"
    parts = value if isinstance(value, tuple) else (value,)
    shown = ",".join(p if isinstance(p, Blank) else quote(str(p)) for p in parts)
    return f"--{name.replace('_', '-')} {shown}"
