"""WebAssembly by hand: functions as bytes, for the Python of a browser.

There a compiler is too much to load, and modules are small. What is written here is a
side module that shares the memory of Python's own: `ctypes.CDLL` opens it from a file
as it would a library, and addresses of arrays are addresses in it.

Source: the WebAssembly specification 2.0, binary format; for the section "dylink.0" the
tool conventions of dynamic linking.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

_KINDS: Final = {"i32": 0x7F, "f32": 0x7D, "v128": 0x7B}
_PLAIN: Final = {
    "block": b"\x02\x40",
    "loop": b"\x03\x40",
    "if": b"\x04\x40",
    "else": b"\x05",
    "end": b"\x0b",
    "i32.eq": b"\x46",
    "i32.lt_u": b"\x49",
    "i32.gt_u": b"\x4b",
    "i32.le_u": b"\x4d",
    "i32.ge_u": b"\x4f",
    "i32.add": b"\x6a",
    "i32.sub": b"\x6b",
    "i32.mul": b"\x6c",
    "select": b"\x1b",
    "f32x4.add": b"\xfd\xe4\x01",
    "f32x4.mul": b"\xfd\xe6\x01",
}
_MEMORY: Final = {  # with the alignment that they state, as a power of two
    "f32.load": (b"\x2a", 2),
    "f32.store": (b"\x38", 2),
    "v128.load": (b"\xfd\x00", 2),
    "v128.load32_splat": (b"\xfd\x09", 2),
    "v128.store": (b"\xfd\x0b", 2),
}


def unsigned(number: int) -> bytes:
    """LEB128."""
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def signed(number: int) -> bytes:
    """LEB128 of a number that may be negative."""
    made = bytearray()
    while not -64 <= number < 64:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number & 127])


def _many(parts: Sequence[bytes]) -> bytes:
    return unsigned(len(parts)) + b"".join(parts)


def _named(name: str) -> bytes:
    return _many([bytes([b]) for b in name.encode()])


class Function:
    """One function of i32 arguments that returns nothing, said statement by statement.

    Locals are named; operands go onto the stack as they do in the text format.
    """

    def __init__(self, name: str, *arguments: str) -> None:
        self.name, self.arguments = name, arguments
        self._at = {one: at for at, one in enumerate(arguments)}
        self._kinds: list[str] = []
        self._body = bytearray()

    def local(self, kind: str, *names: str) -> None:
        """Variables of a type: i32, f32 or v128; they begin as 0."""
        for one in names:
            self._at[one] = len(self._at)
            self._kinds.append(kind)

    def say(self, *words: str | int) -> None:
        """Names of variables are read, numbers are i32 constants, words operations."""
        for word in words:
            if isinstance(word, int):
                self._body += b"\x41" + signed(word)
            elif word in self._at:
                self._body += b"\x20" + unsigned(self._at[word])
            else:
                self._body += _PLAIN[word]

    def put(self, name: str, *words: str | int) -> None:
        """What the words leave, into a variable."""
        self.say(*words)
        self._body += b"\x21" + unsigned(self._at[name])

    def move(self, what: str, offset: int = 0) -> None:
        """A load or a store at the address on the stack, so many bytes further."""
        code, align = _MEMORY[what]
        self._body += code + unsigned(align) + unsigned(offset)

    def leave(self, depth: int) -> None:
        """Out of so many blocks, if the stack says so."""
        self._body += b"\x0d" + unsigned(depth)

    def call(self, function: int) -> None:
        """The function of the module with that number."""
        self._body += b"\x10" + unsigned(function)

    @contextmanager
    def repeated(self, *until: str | int) -> Iterator[None]:
        """Again and again until the words leave a truth."""
        self.say("block", "loop", *until)
        self.leave(1)
        yield
        self._body += b"\x0c\x00"
        self.say("end", "end")

    @contextmanager
    def only_if(self, *words: str | int) -> Iterator[None]:
        """Once, where the words leave a truth."""
        self.say(*words, "if")
        yield
        self.say("end")

    def code(self) -> bytes:
        """Its locals and its body."""
        kinds = [unsigned(1) + bytes([_KINDS[kind]]) for kind in self._kinds]
        made = _many(kinds) + bytes(self._body) + b"\x0b"
        return unsigned(len(made)) + made


def module(functions: Sequence[Function]) -> bytes:
    """A side module that exports all of them."""
    counts = sorted({len(one.arguments) for one in functions})
    types = [b"\x60" + _many([b"\x7f"] * count) + _many([]) for count in counts]
    memory = _named("env") + _named("memory") + b"\x02\x00\x00"
    own = [unsigned(counts.index(len(one.arguments))) for one in functions]
    exports = [
        _named(one.name) + b"\x00" + unsigned(at) for at, one in enumerate(functions)
    ]
    # No memory and no table of its own.
    linked = _named("dylink.0") + b"\x01" + unsigned(4) + bytes(4)
    sections = (
        (0, linked),
        (1, _many(types)),
        (2, _many([memory])),
        (3, _many(own)),
        (7, _many(exports)),
        (10, _many([one.code() for one in functions])),
    )
    told = [bytes([at]) + unsigned(len(body)) + body for at, body in sections]
    return b"\0asm\x01\0\0\0" + b"".join(told)
