"""WebAssembly encoder: builds functions and modules as bytes, for Python in a browser.

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

IN_BROWSER = sys.platform == "emscripten"
"""True if this Python itself runs as WebAssembly, so that modules can be loaded."""

VECTOR_NBYTES: Final = 16
"""Bytes of a SIMD vector."""
_VALUE_TYPES: Final = {"i32": 0x7F, "f32": 0x7D, "v128": 0x7B}
_OPCODES: Final = {
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
_SIMD_OPCODES: Final = {  # after the prefix 0xfd
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
    "f32x4.min": 0xE8,
    "f32x4.max": 0xE9,
    "f32x4.pmin": 0xEA,
    "f32x4.pmax": 0xEB,
    "i32x4.trunc_sat_f32x4_s": 0xF8,
    "i32x4.trunc_sat_f32x4_u": 0xF9,
    "f32x4.convert_i32x4_s": 0xFA,
    "f32x4.convert_i32x4_u": 0xFB,
    "f32x4.demote_f64x2_zero": 0x5E,
    "f64x2.promote_low_f32x4": 0x5F,
    "f64x2.add": 0xF0,
    "f64x2.eq": 0x47,
    "f64x2.sub": 0xF1,
    "f64x2.mul": 0xF2,
    "f64x2.div": 0xF3,
    "f64x2.convert_low_i32x4_u": 0xFF,
    "f32x4.relaxed_madd": 0x105,
}
_MEMORY_OPCODES: Final = {  # with the alignment that they state, as a power of two
    "f32.load": (b"\x2a", 2),
    "f32.store": (b"\x38", 2),
    "v128.load": (b"\xfd\x00", 2),
    "v128.load32_splat": (b"\xfd\x09", 2),
    "v128.store": (b"\xfd\x0b", 2),
    "v128.load32_zero": (b"\xfd\x5c", 0),
    "i32.load": (b"\x28", 2),
    "i32.load8_u": (b"\x2d", 0),
    "i32.store": (b"\x36", 2),
    "i32.store8": (b"\x3a", 0),
}


def encode_unsigned(number: int) -> bytes:
    """Encode an unsigned integer as LEB128."""
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def encode_signed(number: int) -> bytes:
    """Encode a signed integer as LEB128."""
    encoded = bytearray()
    while not -64 <= number < 64:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number & 127])


def _encode_vector(items: Sequence[bytes]) -> bytes:
    return encode_unsigned(len(items)) + b"".join(items)


def _encode_name(name: str) -> bytes:
    return _encode_vector([bytes([byte]) for byte in name.encode()])


_JOB_TYPE_INDEX: Final = 0
"""Index, in every module, of the type of functions with one argument."""


class WasmFunctionBuilder:
    """Builder of one WebAssembly function of i32 arguments that returns nothing.

    Locals are named; operands go onto the stack as they do in the text format.
    """

    def __init__(self, name: str, *arguments: str) -> None:
        self.name, self.arguments = name, arguments
        self._local_indices = {
            argument: index for index, argument in enumerate(arguments)
        }
        self._local_types: list[str] = []
        self._prologue, self._body = bytearray(), bytearray()
        self.uses_table = False

    def declare_locals(self, value_type: str, *names: str) -> None:
        """Declare local variables of a type: i32, f32 or v128; they start as 0."""
        for name in names:
            self._local_indices[name] = len(self._local_indices)
            self._local_types.append(value_type)

    def emit(self, *words: str | int) -> None:
        """Emit words: names push locals, numbers push i32 constants, other words are
        instructions.
        """
        for word in words:
            if isinstance(word, int):
                self._body += b"\x41" + encode_signed(word)
            elif word in self._local_indices:
                self._body += b"\x20" + encode_unsigned(self._local_indices[word])
            elif word in _OPCODES:
                self._body += _OPCODES[word]
            else:
                self._body += b"\xfd" + encode_unsigned(_SIMD_OPCODES[word])

    def set_local(self, name: str, *words: str | int) -> None:
        """Emit the words and store the value they leave on the stack in a local."""
        self.emit(*words)
        self._body += b"\x21" + encode_unsigned(self._local_indices[name])

    def splat_constant(self, name: str, lane: bytes) -> None:
        """Set a local at function entry to a vector of four equal lanes."""
        self._prologue += b"\xfd\x0c" + 4 * lane
        self._prologue += b"\x21" + encode_unsigned(self._local_indices[name])

    def lane_constants(self, name: str, numbers: Iterable[int]) -> None:
        """Set a local at function entry to a vector of four integers."""
        self._prologue += b"\xfd\x0c" + struct.pack("<4i", *numbers)
        self._prologue += b"\x21" + encode_unsigned(self._local_indices[name])

    def emit_lane_access(self, operation: str, lane: int) -> None:
        """Emit an access to a 32-bit lane: `extract`, `replace` or `extract f32`."""
        code = {"extract": 0x1B, "replace": 0x1C, "extract f32": 0x1F}[operation]
        self._body += b"\xfd" + encode_unsigned(code) + bytes([lane])

    def shuffle_lanes(self, lanes: Sequence[int]) -> None:
        """Select four lanes of 32 bits of two vectors on the stack: 0 to 3 of the
        first, 4 to 7 of the second.
        """
        places = bytes(4 * lane + byte for lane in lanes for byte in range(4))
        self._body += b"\xfd" + encode_unsigned(0x0D) + places

    def load_lane(self, lane: int) -> None:
        """Load 32 bits into a lane of the vector on the stack, from the address below
        it.
        """
        self._body += b"\xfd\x56\x02\x00" + bytes([lane])

    def store_lane(self) -> None:
        """Store the first 32 bits of the vector on the stack to the address below
        it.
        """
        self._body += b"\xfd\x5a\x00\x00\x00"

    def emit_memory_access(self, operation: str, offset: int = 0) -> None:
        """Emit a load or store at the address on the stack plus a byte offset."""
        code, align = _MEMORY_OPCODES[operation]
        self._body += code + encode_unsigned(align) + encode_unsigned(offset)

    def branch_if(self, depth: int) -> None:
        """Branch out of `depth` enclosing blocks if the value on the stack is
        nonzero.
        """
        self._body += b"\x0d" + encode_unsigned(depth)

    def call(self, function_index: int) -> None:
        """Call the module's function with this index."""
        self._body += b"\x10" + encode_unsigned(function_index)

    def call_indirect(self) -> None:
        """Call the one-argument function at an index of the shared table: the argument
        is on the stack, the index above it.
        """
        self.uses_table = True
        self._body += b"\x11" + encode_unsigned(_JOB_TYPE_INDEX) + b"\x00"

    def atomic_add(self) -> None:
        """Atomically add the number on the stack to the word at the address below it;
        leaves the previous value.
        """
        self._body += b"\xfe\x1e\x02\x00"

    def add_product(self, total: str, a: str, b: str, *, fused: bool) -> None:
        """Add a · b to a vector of sums; if fused, the product need not be rounded."""
        fused_words = (a, b, total, "f32x4.relaxed_madd")
        separate_words = (a, b, "f32x4.mul", total, "f32x4.add")
        self.set_local(total, *(fused_words if fused else separate_words))

    @contextmanager
    def loop_until(self, *condition: str | int) -> Iterator[None]:
        """Emit a loop that ends when the condition's words leave a nonzero value."""
        self.emit("block", "loop", *condition)
        self.branch_if(1)
        yield
        self._body += b"\x0c\x00"
        self.emit("end", "end")

    @contextmanager
    def if_block(self, *condition: str | int) -> Iterator[None]:
        """Emit a block that runs if the condition's words leave a nonzero value."""
        self.emit(*condition, "if")
        yield
        self.emit("end")

    def encode(self) -> bytes:
        """Return the encoded locals and body."""
        local_types = [
            encode_unsigned(1) + bytes([_VALUE_TYPES[value_type]])
            for value_type in self._local_types
        ]
        encoded = (
            _encode_vector(local_types)
            + bytes(self._prologue)
            + bytes(self._body)
            + b"\x0b"
        )
        return encode_unsigned(len(encoded)) + encoded


_PRIVATE_MEMORY_IMPORT: Final = b"\x02\x00\x00"
_SHARED_MEMORY_IMPORT: Final = b"\x02\x03\x00" + encode_unsigned(1 << 16)
"""Memory import that threads share, with the largest possible number of pages."""


def encode_module(
    functions: Sequence[WasmFunctionBuilder], *, shared: bool = False
) -> bytes:
    """Encode a side module that exports all the functions.

    shared   for a memory that several threads have
    """
    counts = sorted({1, *(len(function.arguments) for function in functions)})
    assert counts[_JOB_TYPE_INDEX] == 1
    types = [
        b"\x60" + _encode_vector([b"\x7f"] * count) + _encode_vector([])
        for count in counts
    ]
    memory = _SHARED_MEMORY_IMPORT if shared else _PRIVATE_MEMORY_IMPORT
    imports = [_encode_name("env") + _encode_name("memory") + memory]
    if any(function.uses_table for function in functions):
        table_name = _encode_name("env") + _encode_name("__indirect_function_table")
        imports.append(table_name + b"\x01\x70\x00\x00")
    type_indices = [
        encode_unsigned(counts.index(len(function.arguments))) for function in functions
    ]
    exports = [
        _encode_name(function.name) + b"\x00" + encode_unsigned(index)
        for index, function in enumerate(functions)
    ]
    # No memory and no table of its own.
    dylink = _encode_name("dylink.0") + b"\x01" + encode_unsigned(4) + bytes(4)
    sections = (
        (0, dylink),
        (1, _encode_vector(types)),
        (2, _encode_vector(imports)),
        (3, _encode_vector(type_indices)),
        (7, _encode_vector(exports)),
        (10, _encode_vector([function.encode() for function in functions])),
    )
    encoded_sections = [
        bytes([index]) + encode_unsigned(len(body)) + body for index, body in sections
    ]
    return b"\0asm\x01\0\0\0" + b"".join(encoded_sections)


def load_module(code: bytes, *names: str) -> tuple[Callable[..., None], ...]:
    """Load a module and return its functions by name. Errors  OSError if the browser
    refuses it.
    """
    # Loaded where there is something to open: a page waits for every import.
    import tempfile
    from ctypes import CDLL

    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(code)
        file.flush()
        library = CDLL(file.name)
    functions = tuple(library[name] for name in names)
    for function in functions:
        function.restype = None
    return functions


class _FusedModuleFactory(Protocol):
    def __call__(self, *, fused: bool) -> bytes: ...


def load_fused_module(
    build_module: _FusedModuleFactory, *names: str
) -> tuple[Callable[..., None], ...]:
    """Load `build_module(fused=…)`: with unrounded multiply-adds (relaxed SIMD) if the
    browser supports them, else without.

    Errors  OSError where it refuses both.
    """
    try:
        return load_module(build_module(fused=True), *names)
    except OSError:
        return load_module(build_module(fused=False), *names)
