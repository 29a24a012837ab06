"""WebAssembly by hand: functions as bytes, for the Python of a browser.

There a compiler is too much to load, and modules are small. What is written here is a
side module that shares the memory of Python's own: `ctypes.CDLL` opens it from a file
as it would a library, and addresses of arrays are addresses in it.

Source: the WebAssembly specification 2.0, binary format; for the section "dylink.0" the
tool conventions of dynamic linking.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

IN_A_TAB = sys.platform == "emscripten"
"""Is this Python itself WebAssembly, so that its modules can be opened?"""

VECTOR: Final = 16
"""Bytes of a vector."""
_KINDS: Final = {"i32": 0x7F, "f32": 0x7D, "v128": 0x7B}
_PLAIN: Final = {
    "block": b"\x02\x40",
    "loop": b"\x03\x40",
    "if": b"\x04\x40",
    "else": b"\x05",
    "end": b"\x0b",
    "select": b"\x1b",
    "i32.eqz": b"\x45",
    "i32.eq": b"\x46",
    "i32.lt_u": b"\x49",
    "i32.gt_u": b"\x4b",
    "i32.le_u": b"\x4d",
    "i32.ge_u": b"\x4f",
    "i32.add": b"\x6a",
    "i32.sub": b"\x6b",
    "i32.mul": b"\x6c",
    "i32.div_u": b"\x6e",
    "i32.rem_u": b"\x70",
    "i32.and": b"\x71",
    "i32.shl": b"\x74",
    "i32.shr_s": b"\x75",
    "i32.shr_u": b"\x76",
    "f32.add": b"\x92",
}
_VECTORS: Final = {  # after the prefix 0xfd
    "i32x4.splat": 0x11,
    "f32x4.splat": 0x13,
    "i32x4.eq": 0x37,
    "i32x4.ne": 0x38,
    "i32x4.lt_s": 0x39,
    "i32x4.lt_u": 0x3A,
    "i32x4.gt_s": 0x3B,
    "i32x4.gt_u": 0x3C,
    "i32x4.le_s": 0x3D,
    "i32x4.le_u": 0x3E,
    "i32x4.ge_s": 0x3F,
    "i32x4.ge_u": 0x40,
    "f32x4.eq": 0x41,
    "f32x4.ne": 0x42,
    "f32x4.lt": 0x43,
    "f32x4.gt": 0x44,
    "f32x4.le": 0x45,
    "f32x4.ge": 0x46,
    "v128.not": 0x4D,
    "v128.and": 0x4E,
    "v128.or": 0x50,
    "v128.xor": 0x51,
    "v128.bitselect": 0x52,
    "v128.any_true": 0x53,
    "f32x4.ceil": 0x67,
    "f32x4.floor": 0x68,
    "f32x4.trunc": 0x69,
    "f32x4.nearest": 0x6A,
    "i8x16.narrow_i16x8_u": 0x66,
    "i16x8.narrow_i32x4_u": 0x86,
    "i16x8.extend_low_i8x16_u": 0x89,
    "i32x4.extend_low_i16x8_u": 0xA9,
    "i32x4.abs": 0xA0,
    "i32x4.neg": 0xA1,
    "i32x4.shl": 0xAB,
    "i32x4.shr_s": 0xAC,
    "i32x4.shr_u": 0xAD,
    "i32x4.add": 0xAE,
    "i32x4.sub": 0xB1,
    "i32x4.mul": 0xB5,
    "f32x4.abs": 0xE0,
    "f32x4.neg": 0xE1,
    "f32x4.sqrt": 0xE3,
    "f32x4.add": 0xE4,
    "f32x4.sub": 0xE5,
    "f32x4.mul": 0xE6,
    "f32x4.div": 0xE7,
    "f32x4.pmin": 0xEA,
    "f32x4.pmax": 0xEB,
    "i32x4.trunc_sat_f32x4_s": 0xF8,
    "i32x4.trunc_sat_f32x4_u": 0xF9,
    "f32x4.convert_i32x4_s": 0xFA,
    "f32x4.convert_i32x4_u": 0xFB,
    "f32x4.relaxed_madd": 0x105,
}
_MEMORY: Final = {  # with the alignment that they state, as a power of two
    "f32.load": (b"\x2a", 2),
    "f32.store": (b"\x38", 2),
    "v128.load": (b"\xfd\x00", 2),
    "v128.load32_splat": (b"\xfd\x09", 2),
    "v128.store": (b"\xfd\x0b", 2),
    "v128.load32_zero": (b"\xfd\x5c", 0),
    "i32.load": (b"\x28", 2),
    "i32.load8_u": (b"\x2d", 0),
    "i32.store": (b"\x36", 2),
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


_OF_A_JOB: Final = 0
"""The type of functions of one argument, in every module."""


class Function:
    """One function of i32 arguments that returns nothing, said statement by statement.

    Locals are named; operands go onto the stack as they do in the text format.
    """

    def __init__(self, name: str, *arguments: str) -> None:
        self.name, self.arguments = name, arguments
        self._at = {one: at for at, one in enumerate(arguments)}
        self._kinds: list[str] = []
        self._head, self._body = bytearray(), bytearray()
        self.uses_table = False

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
            elif word in _PLAIN:
                self._body += _PLAIN[word]
            else:
                self._body += b"\xfd" + unsigned(_VECTORS[word])

    def put(self, name: str, *words: str | int) -> None:
        """What the words leave, into a variable."""
        self.say(*words)
        self._body += b"\x21" + unsigned(self._at[name])

    def constant(self, name: str, lane: bytes) -> None:
        """A vector of four equal lanes, there from the beginning."""
        self._head += b"\xfd\x0c" + 4 * lane
        self._head += b"\x21" + unsigned(self._at[name])

    def lanes(self, name: str, numbers: Iterable[int]) -> None:
        """A vector of four whole numbers, there from the beginning."""
        self._head += b"\xfd\x0c" + struct.pack("<4i", *numbers)
        self._head += b"\x21" + unsigned(self._at[name])

    def lane(self, what: str, at: int) -> None:
        """`extract` or `replace` a lane of 32 bits, or `extract f32`."""
        code = {"extract": 0x1B, "replace": 0x1C, "extract f32": 0x1F}[what]
        self._body += b"\xfd" + unsigned(code) + bytes([at])

    def load_lane(self, at: int) -> None:
        """32 bits from the address below a vector on the stack into a lane of it."""
        self._body += b"\xfd\x56\x02\x00" + bytes([at])

    def store_lane(self) -> None:
        """The first 32 bits of a vector to the address below it on the stack."""
        self._body += b"\xfd\x5a\x00\x00\x00"

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

    def call_at(self) -> None:
        """The function of one argument that is at a place of the shared table: the
        argument is on the stack, the place above it.
        """
        self.uses_table = True
        self._body += b"\x11" + unsigned(_OF_A_JOB) + b"\x00"

    def add_shared(self) -> None:
        """A number onto that at the address below it on the stack, at once for all
        threads; what was there before is left.
        """
        self._body += b"\xfe\x1e\x02\x00"

    def add_product(self, total: str, a: str, b: str, *, fused: bool) -> None:
        """A · b onto a vector of sums; fused: the product need not be rounded."""
        both = (a, b, total, "f32x4.relaxed_madd")
        apart = (a, b, "f32x4.mul", total, "f32x4.add")
        self.put(total, *(both if fused else apart))

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
        made = _many(kinds) + bytes(self._head) + bytes(self._body) + b"\x0b"
        return unsigned(len(made)) + made


_OWN_MEMORY: Final = b"\x02\x00\x00"
_SHARED_MEMORY: Final = b"\x02\x03\x00" + unsigned(1 << 16)
"""As imports: of any size; shared by threads, of at most as many pages as there are."""


def module(functions: Sequence[Function], *, shared: bool = False) -> bytes:
    """A side module that exports all of them.

    shared   for a memory that several threads have
    """
    counts = sorted({1, *(len(one.arguments) for one in functions)})
    assert counts[_OF_A_JOB] == 1
    types = [b"\x60" + _many([b"\x7f"] * count) + _many([]) for count in counts]
    memory = _SHARED_MEMORY if shared else _OWN_MEMORY
    imports = [_named("env") + _named("memory") + memory]
    if any(one.uses_table for one in functions):
        named = _named("env") + _named("__indirect_function_table")
        imports.append(named + b"\x01\x70\x00\x00")
    own = [unsigned(counts.index(len(one.arguments))) for one in functions]
    exports = [
        _named(one.name) + b"\x00" + unsigned(at) for at, one in enumerate(functions)
    ]
    # No memory and no table of its own.
    linked = _named("dylink.0") + b"\x01" + unsigned(4) + bytes(4)
    sections = (
        (0, linked),
        (1, _many(types)),
        (2, _many(imports)),
        (3, _many(own)),
        (7, _many(exports)),
        (10, _many([one.code() for one in functions])),
    )
    told = [bytes([at]) + unsigned(len(body)) + body for at, body in sections]
    return b"\0asm\x01\0\0\0" + b"".join(told)


def opened(code: bytes, *names: str) -> tuple[Callable[..., None], ...]:
    """Functions of a module. Errors  OSError where a browser refuses it."""
    # Loaded where there is something to open: a page waits for every import.
    import tempfile
    from ctypes import CDLL

    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(code)
        file.flush()
        library = CDLL(file.name)
    functions = tuple(library[name] for name in names)
    for one in functions:
        one.restype = None
    return functions


class _Fused(Protocol):
    def __call__(self, *, fused: bool) -> bytes: ...


def opened_fused(make: _Fused, *names: str) -> tuple[Callable[..., None], ...]:
    """Functions of `make(fused=…)`: with products that need not be rounded before they
    are added, where the browser knows such additions (relaxed SIMD), else without.

    Errors  OSError where it refuses both.
    """
    try:
        return opened(make(fused=True), *names)
    except OSError:
        return opened(make(fused=False), *names)
