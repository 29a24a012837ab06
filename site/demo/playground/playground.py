"""Runs what the visitor wrote: output line by line, the last value, short tracebacks.

Each run starts afresh: its own names, and the op registry as it was. Everything that is
to be seen goes to the page by `post`, which the Worker puts in this module's names, as
{"out": …}, {"err": …}, {"value": …}, {"plot": …} or {"heat": …}.
"""

import ast
import builtins
import contextlib
import gc
import inspect
import io
import linecache
import sys
import traceback
import warnings

from rlxweb.errors import RlxError
from rlxweb.ir.op import registry

post = globals()["post"]  # by the Worker
NAME = "your code"
MOST_CHARACTERS = 200_000
LONGEST_LINE = 5_000
KNOWN_OPS = {op.name: op for op in registry}
HINTS = {
    ModuleNotFoundError: "here are Python's own library, NumPy and rlxweb; "
    "plot(x, y) and heat(array) draw",
    MemoryError: "a tab has 2 to 4 GB; make the arrays smaller",
}


class Lines(io.TextIOBase):
    """A stream that hands each line to the page as soon as it is whole."""

    def __init__(self, kind, budget):
        self.kind, self.budget, self.rest = kind, budget, ""

    def writable(self):
        return True

    def write(self, text):
        self.rest += text
        if "\n" in self.rest or len(self.rest) > LONGEST_LINE:
            *lines, self.rest = self.rest.split("\n")
            for line in lines:
                self.give(line)
            if len(self.rest) > LONGEST_LINE:
                self.flush()
        return len(text)

    def flush(self):
        if self.rest:
            line, self.rest = self.rest, ""
            self.give(line)

    def give(self, line):
        self.budget.left -= len(line) + 1
        if self.budget.left >= 0:
            post({self.kind: line[:LONGEST_LINE]})
        else:
            self.budget.dropped += 1


class Budget:
    """How much output a run may still show; an endless loop must not drown the page."""

    def __init__(self):
        self.left, self.dropped = MOST_CHARACTERS, 0


async def run(args, buffers):
    """Run the code; {"error": …} when it failed, {"dropped": lines not shown}."""
    budget = Budget()
    out, err = Lines("out", budget), Lines("err", budget)
    error = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), shown(err):
        try:
            await execute(args["code"], (out, err))
        except BaseException as raised:  # SystemExit and KeyboardInterrupt too
            error = told(raised)
    for stream in (out, err):
        stream.flush()
    forget()
    return {"error": error, "dropped": budget.dropped}


async def execute(code, streams):
    """The statements, then the value of the last one if it is an expression."""
    lines = code.splitlines(keepends=True)
    linecache.cache[NAME] = (len(code), None, lines, NAME)
    tree = ast.parse(code, NAME)
    names = fresh_names()
    last = (
        tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    )
    await evaluate(tree, "exec", names)
    if last is not None:
        value = await evaluate(ast.Expression(last.value), "eval", names)
        for stream in streams:
            stream.flush()
        if value is not None:
            post({"value": shortened(repr(value))})


async def evaluate(tree, mode, names):
    """Run or evaluate a tree in which `await` may stand at the top."""
    code = compile(tree, NAME, mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        return await eval(code, names)
    return eval(code, names)


def fresh_names():
    """What the code finds when it starts."""
    drawing = sys.modules["playground"]
    drawing.start_afresh()
    return {
        "__name__": "__main__",
        "__builtins__": builtins,
        "plot": drawing.plot,
        "heat": drawing.heat,
        "input": nobody_to_ask,
    }


def nobody_to_ask(prompt=""):
    """In place of input(), which has no keyboard here."""
    raise RuntimeError(
        "input() has nobody to ask here; give the variable a value instead"
    )


def shortened(text):
    """A long text without its middle."""
    if len(text) <= LONGEST_LINE:
        return text
    half = LONGEST_LINE // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters …\n{text[-half:]}"


@contextlib.contextmanager
def shown(stream):
    """Warnings as one line each, every time."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, category, *where, **more: stream.write(
            f"{category.__name__}: {message}\n"
        )
        yield


def forget():
    """Put the op registry back and free what the run left on the devices."""
    for op in list(registry):
        if op.name not in KNOWN_OPS:
            registry.unregister(op.name)
    for name, op in KNOWN_OPS.items():
        if registry.get(name) is not op:
            registry.register(op, replace=True)
    gc.collect()


# --- errors -------------------------------------------------------------------------


def told(error):
    """An exception as the page shows it: its own frames, the sentence, a hint."""
    if isinstance(error, SystemExit):
        if not error.code:
            return None
        return {"type": "SystemExit", "message": f"exit({error.code!r})", "frames": []}
    lines = traceback.TracebackException.from_exception(error, capture_locals=False)
    frames = [
        {
            "line": f.lineno,
            "name": "" if f.name == "<module>" else f.name,
            "text": f.line,
        }
        for f in lines.stack
        if f.filename == NAME
    ]
    if isinstance(error, SyntaxError) and error.filename == NAME:
        text = (error.text or "").rstrip("\n")
        mark = " " * max((error.offset or 1) - 1, 0) + "^"
        frames = [{"line": error.lineno, "name": "", "text": f"{text}\n{mark}"}]
    return {
        "type": type(error).__name__,
        "message": message_of(error),
        "frames": frames if len(frames) <= 8 else [*frames[:4], None, *frames[-4:]],
        "hint": hint_for(error),
        "ours": isinstance(error, RlxError),
    }


def message_of(error):
    """What it says for itself; a bare KeyError says little, so its key is named."""
    if isinstance(error, SyntaxError):
        return error.msg
    return str(error)


def hint_for(error):
    """What to do next, where Python itself does not say."""
    return next((h for kind, h in HINTS.items() if isinstance(error, kind)), "")
