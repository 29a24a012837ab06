"""Python side of the playground: run the visitor's code and post output line by line,
the last value, short tracebacks.

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
FILE_NAME = "your code"
MAX_CHARACTERS = 200_000
MAX_LINE = 5_000
INITIAL_OPS = {op.name: op for op in registry}
HINTS = {
    ModuleNotFoundError: "only Python's standard library, NumPy and rlxweb are "
    "available here; use plot(x, y) and heat(array) to draw",
    MemoryError: "a browser tab has 2 to 4 GB of memory; use smaller arrays",
}


class PostedLines(io.TextIOBase):
    """Stream that posts each line to the page as soon as it is complete."""

    def __init__(self, kind, budget):
        self.kind, self.budget, self.rest = kind, budget, ""

    def writable(self):
        return True

    def write(self, text):
        self.rest += text
        if "\n" in self.rest or len(self.rest) > MAX_LINE:
            *lines, self.rest = self.rest.split("\n")
            for line in lines:
                self.give(line)
            if len(self.rest) > MAX_LINE:
                self.flush()
        return len(text)

    def flush(self):
        if self.rest:
            line, self.rest = self.rest, ""
            self.give(line)

    def give(self, line):
        self.budget.left -= len(line) + 1
        if self.budget.left >= 0:
            post({self.kind: line[:MAX_LINE]})
        else:
            self.budget.dropped += 1


class OutputBudget:
    """Output that a run may still show, so that an endless loop cannot flood the
    page.
    """

    def __init__(self):
        self.left, self.dropped = MAX_CHARACTERS, 0


async def run(args, buffers):
    """Run the code; return {"error": …} when it failed, and the number of lines not
    shown.
    """
    budget = OutputBudget()
    out, err = PostedLines("out", budget), PostedLines("err", budget)
    error = None
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings_as_lines(err),
    ):
        try:
            await execute(args["code"], (out, err))
        except BaseException as raised:  # SystemExit and KeyboardInterrupt too
            error = error_as_json(raised)
    for stream in (out, err):
        stream.flush()
    restore_registry()
    return {"error": error, "dropped": budget.dropped}


async def execute(code, streams):
    """Run the statements, and post the value of the last one if it is an expression."""
    lines = code.splitlines(keepends=True)
    linecache.cache[FILE_NAME] = (len(code), None, lines, FILE_NAME)
    tree = ast.parse(code, FILE_NAME)
    names = fresh_namespace()
    last = (
        tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    )
    await evaluate(tree, "exec", names)
    if last is not None:
        value = await evaluate(ast.Expression(last.value), "eval", names)
        for stream in streams:
            stream.flush()
        if value is not None:
            post({"value": shorten(repr(value))})


async def evaluate(tree, mode, names):
    """Run or evaluate a tree that may have `await` at the top level."""
    code = compile(tree, FILE_NAME, mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        return await eval(code, names)
    return eval(code, names)


def fresh_namespace():
    """Return the names that are defined when the code starts."""
    playground = sys.modules["playground"]
    playground.start_afresh()
    return {
        "__name__": "__main__",
        "__builtins__": builtins,
        "plot": playground.plot,
        "heat": playground.heat,
        "input": refuse_input,
    }


def refuse_input(prompt=""):
    """Raise in place of input(), which has no keyboard here."""
    raise RuntimeError(
        "input() is not supported here; assign a value to the variable instead"
    )


def shorten(text):
    """Return a long text without its middle."""
    if len(text) <= MAX_LINE:
        return text
    half = MAX_LINE // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters …\n{text[-half:]}"


@contextlib.contextmanager
def warnings_as_lines(stream):
    """Write each warning as one line, every time."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, category, *where, **more: stream.write(
            f"{category.__name__}: {message}\n"
        )
        yield


def restore_registry():
    """Restore the op registry, and free what the run left on the devices."""
    for op in list(registry):
        if op.name not in INITIAL_OPS:
            registry.unregister(op.name)
    for name, op in INITIAL_OPS.items():
        if registry.get(name) is not op:
            registry.register(op, replace=True)
    gc.collect()


# --- errors -------------------------------------------------------------------------


def error_as_json(error):
    """Describe an exception for the page: the frames of the visitor's code, the
    message, a hint.
    """
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
        if f.filename == FILE_NAME
    ]
    if isinstance(error, SyntaxError) and error.filename == FILE_NAME:
        text = (error.text or "").rstrip("\n")
        mark = " " * max((error.offset or 1) - 1, 0) + "^"
        frames = [{"line": error.lineno, "name": "", "text": f"{text}\n{mark}"}]
    return {
        "type": type(error).__name__,
        "message": error_message(error),
        "frames": frames if len(frames) <= 8 else [*frames[:4], None, *frames[-4:]],
        "hint": hint_for(error),
        "ours": isinstance(error, RlxError),
    }


def error_message(error):
    """Return the message of an exception."""
    if isinstance(error, SyntaxError):
        return error.msg
    return str(error)


def hint_for(error):
    """Return a hint where Python itself gives none."""
    return next((h for kind, h in HINTS.items() if isinstance(error, kind)), "")
