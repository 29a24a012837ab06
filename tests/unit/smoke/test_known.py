"""Known failures: what an entry covers, what it does to a report, and its file."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from rlxweb.errors import RecordingError, UsageError
from rlxweb.smoke.known import KnownFailure, with_known
from rlxweb.smoke.known_files import known_failures, parsed, shipped
from tests.unit.smoke.made_report import engine, report, row

ENTRY = """\
[[failure]]
backend = "vulkan"
driver = "Mesa"
versions = ">=22.3, <23"
op = "fft*"
reason = "a barrier is dropped"
evidence = "tests/ops/test_fft_lengths.py on 22.3.6"
"""


def entry(**more: object) -> KnownFailure:
    return KnownFailure(reason="it folds", evidence="seen", **more)  # type: ignore[arg-type]


def test_a_wrong_result_that_is_known_fails_nothing() -> None:
    """Another op that is wrong still does."""
    made = report(
        engine("vulkan:llvmpipe", row("samples/fft/1", "wrong"), row("samples/add/0")),
        engine("opengl", row("samples/fft/1", "wrong"), backend="opengl"),
    )
    here, other = with_known(made, parsed(ENTRY, "mine.toml"))["engines"]
    assert here["word"] == "right"
    assert here["counts"]["known"] == 1
    assert here["counts"]["wrong"] == 0
    assert here["rows"][0]["word"] == "known"
    assert here["rows"][0]["known"]["reason"] == "a barrier is dropped"
    assert here["rows"][0]["known"]["where"] == "mine.toml:1"
    assert here["rows"][0]["why"] == "wrong for a reason"
    assert other["word"] == "wrong"
    assert made["engines"][0]["word"] == "wrong"  # a new document was made


def test_a_right_result_that_is_known_to_fail_is_told() -> None:
    """A right result that is known to fail is told, unless the entry is flaky."""
    made = report(engine("vulkan", row("samples/fft/1"), row("samples/fft/2", "wrong")))
    (here,) = with_known(made, [entry(op="fft")])["engines"]
    assert [one["word"] for one in here["rows"]] == ["unexpected pass", "known"]
    assert "known to fail: it folds" in here["rows"][0]["why"]
    assert here["counts"]["unexpected pass"] == 1
    (here,) = with_known(made, [entry(op="fft", flaky=True)])["engines"]
    assert [one["word"] for one in here["rows"]] == ["right", "known"]


@pytest.mark.parametrize("word", ["crashed", "hung", "out of memory", "lost"])
def test_a_driver_that_fails_as_a_whole_is_never_excused(word: str) -> None:
    """A driver that fails as a whole, or a case refused or not run, is not excused."""
    rows = row("samples/fft/1", "not run"), row("samples/fft/2", "refused")
    made = report(engine("vulkan", *rows, word=word))
    assert with_known(made, [entry(op="*", backend="*")]) == made


@pytest.mark.parametrize("raised", ["crashed", "hung", "DeviceLost", "GpuTimeout"])
def test_a_case_that_ended_its_process_is_never_excused(raised: str) -> None:
    """A case that crashed, hung or lost its device is never excused."""
    made = report(engine("vulkan", row("samples/fft/1", "wrong", raised=raised)))
    assert with_known(made, [entry(op="*", backend="*")]) == made


def test_an_engine_that_cannot_be_opened_again_is_never_excused() -> None:
    """An engine that does not open again is wrong, though all its cases are known."""
    rows = row("samples/fft/1", "wrong"), row("samples/fft/2", "not run")
    made = report(engine("vulkan", *rows, why="it cannot be opened: no driver"))
    (here,) = with_known(made, [entry(op="fft")])["engines"]
    assert (here["word"], here["counts"]["known"]) == ("wrong", 1)


@pytest.mark.parametrize(
    ("driver", "more", "covered"),
    [
        ("Mesa 22.3.6 (LLVM 15.0.6)", {"driver": "Mesa", "versions": ">=22.3"}, True),
        ("Mesa 22.3.6 (LLVM 15.0.6)", {"driver": "LLVM", "versions": "<15.1"}, True),
        ("Mesa 22.3.6 (LLVM 15.0.6)", {"driver": "LLVM", "versions": "<15"}, False),
        ("Mesa 22.10.0", {"driver": "Mesa", "versions": ">22.9, !=22.10.1"}, True),
        ("Mesa 22.3", {"versions": "==22.3.0"}, True),
        ("535.129.03", {"versions": "<=535.129.2"}, False),
        ("4.5 (Core Profile) Mesa 22.3.6", {"driver": "mesa 22.*"}, False),
        ("4.5 (Core Profile) Mesa 22.3.6", {"driver": "*mesa 22.*"}, True),
        ("unnamed", {"versions": ">=0"}, False),
        ("", {"driver": "Mesa"}, False),
    ],
)
def test_drivers_are_met_by_text_and_by_range(
    driver: str, more: dict[str, str], covered: bool
) -> None:
    """A version is the first after the text that is named; none is no match."""
    assert entry(**more).covers_engine(engine("vulkan", driver=driver)) is covered


@pytest.mark.parametrize("name", ["device", "backend", "adapter", "vendor", "compiler"])
def test_each_part_of_an_engine_can_be_named(name: str) -> None:
    """Parts of an engine are named by pattern, in any case."""
    made = engine("vulkan", **{name: "Some Thing 5"})
    assert entry(**{name: "some*"}).covers_engine(made)
    assert not entry(**{name: "thing"}).covers_engine(made)


def test_each_part_of_a_case_can_be_named() -> None:
    """A case is named by op, family, variant or name."""
    made = row("views/fft/3", variant="fft.four_step")
    for name, pattern in (
        ("family", "views"),
        ("op", "f?t"),
        ("variant", "fft.*"),
        ("case", "views/*/3"),
    ):
        assert entry(**{name: pattern}).covers_case(made)
        assert not entry(**{name: "no"}).covers_case(made)


# --- files ------------------------------------------------------------------------


def test_the_shipped_file_can_be_read_and_switched_off(tmp_path: Path) -> None:
    """A user's own file adds to it."""
    mine = tmp_path / "mine.toml"
    mine.write_text(ENTRY, "utf-8")
    assert known_failures() == shipped()
    assert known_failures(["none"]) == []
    assert len(known_failures([str(mine)])) == len(shipped()) + 1
    (only,) = known_failures(["none", str(mine)])
    assert only.where == f"{mine}:1"
    assert only.versions == ">=22.3, <23"


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (("op = ", "oop = "), 5, "no such key 'oop'; did you mean 'op'"),
        (('"Mesa"', "3"), 3, "driver = 3; it must be a text"),
        (('"Mesa"', '""'), 3, "driver = ''"),
        (('">=22.3, <23"', '"22.3 to 23"'), 4, "versions = '22.3 to 23'"),
        (('evidence = "', 'flaky = "'), 7, "flaky = "),
        (("reason =", "case ="), 1, "this failure has no reason"),
        (('op = "fft*"\n', ""), 1, "names no part of a case"),
        (("[[failure]]", "[[failures]]"), 1, "it has 'failures'"),
        (("[[failure]]", "[failure]"), 1, "no list of tables"),
        (("[[failure]]", "[[failure]"), 1, "it is no TOML"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(
    change: tuple[str, str], line: int, said: str
) -> None:
    """A malformed file is refused with its line and with what to write instead."""
    with pytest.raises(UsageError) as told:
        parsed(ENTRY.replace(*change), "mine.toml")
    assert said in str(told.value)
    assert f"line {line}" in str(told.value)
    assert "'mine.toml'" in str(told.value)


def test_the_line_is_that_of_the_entry_at_fault() -> None:
    """The line is that of the entry at fault, not of the first with such a key."""
    text = ENTRY + "\n" + ENTRY.replace("op =", "ops =")
    with pytest.raises(UsageError, match=r"line 13.*'ops'"):
        parsed(text, "mine.toml")


def test_tables_of_any_form_are_read() -> None:
    """TOML has more than one way to write a list of tables."""
    text = 'failure = [{op = "fft", backend = "a", reason = "r", evidence = "e"}]'
    (only,) = parsed(text, "x")
    assert (only.op, only.where) == ("fft", "x:1")


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """A file is told that is not there or is no text."""
    with pytest.raises(RecordingError, match="No such file"):
        known_failures([str(tmp_path / "none.toml")])
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(RecordingError, match="decode"):
        known_failures([str(tmp_path / "bytes.toml")])


def test_the_example_in_the_manual_is_a_valid_entry() -> None:
    """The manual's example, which people copy, is a valid entry."""
    path = Path(__file__).resolve().parents[3] / "site/pages/howto/smoke-reports.md"
    text = path.read_text("utf-8").partition("```toml\n")[2].partition("```")[0]
    (only,) = parsed(text, "manual")
    assert (only.versions, only.case) == (">=22.3, <23.1", "variants/*")


def test_the_example_in_the_shipped_file_is_a_valid_entry() -> None:
    """The shipped file's example, which people copy, is a valid entry."""
    path = Path(__file__).resolve().parents[3] / "rlxweb/smoke/known-failures.toml"
    lines = path.read_text("utf-8").splitlines()
    example = "\n".join(x.removeprefix("#") for x in lines if x.startswith("#   "))
    example = "\n".join(x for x in example.splitlines() if "=" in x or "[[" in x)
    assert tomllib.loads(example)["failure"]
    (only,) = parsed(example, "example")
    assert only.versions == ">=22.3, <22.3.7"
