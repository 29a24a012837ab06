"""Scaled dot-product attention of float32 as machine code, head by head.

Keys are transposed once a task; then a few queries at a time have their scores, the
softmax of them and the weighted values while all of it lies in the nearest caches. What
is left of a length is done with some of what was done before: the same numbers again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rlxweb.machine import functions
from rlxweb.machine.folds import LARGEST, folded, summed_in_runs
from rlxweb.machine.jobs import job_text
from rlxweb.machine.text import Shape, Value, Whole, Writer, transposed

SIGNATURE: Final = (
    "void @attention(ptr %job, float %scale, ptr %room, i64 %floats, ptr %taken)"
)
"""job     `FIELDS`, 64 bits each
room    `floats` for each thread, `room_for` at least
taken   where the threads that call it together count the tasks they took, and behind
        it how many they are
"""
_OPERANDS: Final = ("q", "k", "v", "out", "bias")
FIELDS: Final = (
    *_OPERANDS,
    *(f"{one}_{step}" for one in _OPERANDS for step in ("batch", "head", "row")),
    *("heads", "group", "tasks", "blocks", "each", "SQ", "SK", "D", "DV"),
)
"""Addresses; elements from one batch, head and row to the next, 0 where all have the
same; query heads, those that share a key head, tasks in all, tasks of a head, queries
of a task, and the lengths. What is added to the scores lies key by key.
"""
QUERIES: Final = 6
"""Side by side: as many as leave registers for what they meet."""


def room_for(keys: int, size: int) -> int:
    """Floats for transposed keys, scores, and what the scores are divided by."""
    return keys * size + QUERIES * keys + QUERIES


class _Head(NamedTuple):
    """What a task works on: where things begin."""

    q: Value
    k: Value
    v: Value
    out: Value
    bias: Value
    turned: Value
    scores: Value
    factors: Value


def attention_text(nbytes: int) -> str:
    """The function, for vectors of so many bytes. D and DV are multiples of 16, SK is
    16 or more and SQ as many as `QUERIES`.
    """
    return _Attention(Shape("float", nbytes // 4)).text()


class _Attention:
    def __init__(self, shape: Shape) -> None:
        w = self.w = Writer(SIGNATURE, shape)
        self.lanes, self.room = shape.lanes, ""
        self.abreast = 4 if shape.nbytes == 64 else 2
        self.of = w.fields(FIELDS, _OPERANDS)

    def text(self) -> str:
        w = self.w
        mine = w.let(f"atomicrmw add ptr {w.at('%taken', 1, 'i64')}, i64 1 monotonic")
        self.room = w.at("%room", w.multiple(mine, "%floats"))
        w.claimed("%taken", 1, self.of["tasks"], self._task)
        w.say("ret void")
        return w.text + job_text(SIGNATURE)

    def _task(self, task: Value) -> None:
        w, of = self.w, self.of
        head = w.let(f"udiv i64 {task}, {of['blocks']}")
        block = w.let(f"urem i64 {task}, {of['blocks']}")
        batch = w.let(f"udiv i64 {head}, {of['heads']}")
        own = w.let(f"urem i64 {head}, {of['heads']}")
        shared = w.let(f"udiv i64 {own}, {of['group']}")

        def base(name: str, which: Value) -> Value:
            far = w.sum(
                w.multiple(batch, of[f"{name}_batch"]),
                w.multiple(which, of[f"{name}_head"]),
            )
            return w.at(of[name], far)

        scores = w.at(self.room, w.multiple(of["D"], of["SK"]))
        here = _Head(
            base("q", own),
            base("k", shared),
            base("v", shared),
            base("out", own),
            base("bias", own),
            self.room,
            scores,
            w.at(scores, w.multiple(QUERIES, of["SK"])),
        )
        self._turn_keys(here)
        begin = w.multiple(block, of["each"])
        count = w.least(of["each"], w.difference(of["SQ"], begin))
        more = w.sum(count, QUERIES - 1)
        last = w.difference(of["SQ"], QUERIES)

        def some(i: Whole) -> None:
            first = w.least(w.sum(begin, w.multiple(i, QUERIES)), last)
            self._score(here, first)
            w.loop(QUERIES, lambda r: self._weigh(here, r))
            self._mix(here, first)

        w.loop(w.let(f"udiv i64 {more}, {QUERIES}"), some)

    def _turn_keys(self, here: _Head) -> None:
        """Keys [SK, D] as [D, SK]."""
        w, of, lanes = self.w, self.of, self.lanes

        def block(i: Whole) -> None:
            key = self._key(i)

            def part(j: Whole) -> None:
                size = w.multiple(j, lanes)
                rows = []
                for lane in range(lanes):
                    row = w.multiple(w.sum(key, lane), of["k_row"])
                    rows.append(w.load(w.at(here.k, w.sum(row, size))))
                for lane, made in enumerate(transposed(w, rows)):
                    row = w.multiple(w.sum(size, lane), of["SK"])
                    w.store(made, w.at(here.turned, w.sum(row, key)))

            w.loop(w.let(f"udiv i64 {of['D']}, {lanes}"), part)

        w.loop(self._key_vectors(), block)

    def _key_vectors(self) -> Whole:
        more = self.w.sum(self.of["SK"], self.lanes - 1)
        return self.w.let(f"udiv i64 {more}, {self.lanes}")

    def _key(self, i: Whole) -> Whole:
        """The first key of a vector of them."""
        last = self.w.difference(self.of["SK"], self.lanes)
        return self.w.least(self.w.multiple(i, self.lanes), last)

    def _in_groups(self, count: Whole, body: object) -> None:
        """`body(first, how many)` for vectors in groups, then one by one."""
        assert callable(body)
        w, abreast = self.w, self.abreast
        groups = w.let(f"udiv i64 {count}, {abreast}")
        w.loop(groups, lambda i: body(w.multiple(i, abreast), abreast))
        done = w.multiple(groups, abreast)
        w.loop(w.difference(count, done), lambda i: body(w.sum(done, i), 1))

    def _products(
        self, count: Whole, rows: list[Value], vectors: list[Value], step: Value
    ) -> list[list[Value]]:
        """For each row of numbers and each of the vectors that begin there and follow
        by `step`, the sum of their products.
        """
        w, wide = self.w, len(vectors)

        def turn(i: Whole, *so_far: Value) -> list[Value]:
            there = w.multiple(i, step)
            given = [w.load(w.at(one, there)) for one in vectors]
            made = []
            for at, row in enumerate(rows):
                number = w.spread(w.one(row, i))
                made += [
                    functions.fused(w, number, one, so_far[at * wide + place])
                    for place, one in enumerate(given)
                ]
            return made

        nothing = (w.shape.vector, "zeroinitializer")
        flat = w.loop(count, turn, [nothing] * (len(rows) * wide))
        return [flat[at * wide : (at + 1) * wide] for at in range(len(rows))]

    def _rows(self, base: Value, first: Whole, step: Value) -> list[Value]:
        w = self.w
        return [w.at(base, w.multiple(w.sum(first, r), step)) for r in range(QUERIES)]

    def _score(self, here: _Head, first: Whole) -> None:
        """Scores of the queries from `first` on, times the scale, and the bias."""
        w, of = self.w, self.of
        queries = self._rows(here.q, first, of["q_row"])
        biases = self._rows(here.bias, first, of["bias_row"])
        scale = w.spread("%scale")

        def body(at: Whole, how_many: int) -> None:
            keys = [self._key(w.sum(at, place)) for place in range(how_many)]
            vectors = [w.at(here.turned, key) for key in keys]
            made = self._products(of["D"], queries, vectors, of["SK"])
            for r, values in enumerate(made):
                row = w.at(here.scores, w.multiple(r, of["SK"]))
                for key, value in zip(keys, values, strict=True):
                    bias = w.load(w.at(biases[r], key))
                    w.store(w.plus(w.times(value, scale), bias), w.at(row, key))

        self._in_groups(self._key_vectors(), body)

    def _weigh(self, here: _Head, r: Whole) -> None:
        """A row of scores as exponentials, and 1 over their sum."""
        w, keys = self.w, self.of["SK"]
        row = w.at(here.scores, w.multiple(r, keys))
        # What a NaN does shows where it is subtracted.
        most = folded(w, keys, lambda i: w.load(w.at(row, i)), LARGEST, any_nan=True)

        def exponential(i: Whole) -> Value:
            less = w.minus(w.load(w.at(row, i)), w.spread(most))
            e = functions.exp_falling(w, less)
            w.store(e, w.at(row, i))
            return e

        inverse = w.let(f"fdiv double 1.0, {summed_in_runs(w, keys, exponential)}")
        factor = w.let(f"fptrunc double {inverse} to float")
        w.say(f"store float {factor}, ptr {w.at(here.factors, r)}, align 4")

    def _mix(self, here: _Head, first: Whole) -> None:
        """Values by their weights, as the queries' answers."""
        w, of = self.w, self.of
        weights = self._rows(here.scores, 0, of["SK"])
        outs = self._rows(here.out, first, of["out_row"])

        def body(at: Whole, how_many: int) -> None:
            places = [
                w.multiple(w.sum(at, place), self.lanes) for place in range(how_many)
            ]
            vectors = [w.at(here.v, place) for place in places]
            made = self._products(of["SK"], weights, vectors, of["v_row"])
            for r, values in enumerate(made):
                factor = w.spread(w.one(here.factors, r))
                for place, value in zip(places, values, strict=True):
                    w.store(w.times(value, factor), w.at(outs[r], place))

        self._in_groups(w.let(f"udiv i64 {of['DV']}, {self.lanes}"), body)
