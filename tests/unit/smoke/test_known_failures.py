"""Known failures of the smoke check: the cases an entry covers, its effect on a report,
and its file.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from rlxweb.core.errors import RecordingError, UsageError
from rlxweb.smoke.known_failure_files import (
    load_known_failures,
    packaged_failures,
    parse_known_failures,
)
from rlxweb.smoke.known_failure_matching import KnownFailure, mark_known_failures
from tests.howto_pages import code_blocks
from tests.unit.smoke.report_factory import make_engine, make_report, make_row

ENTRY_TOML = """\
[[failure]]
backend = "vulkan"
driver = "Mesa"
versions = ">=22.3, <23"
op = "fft*"
reason = "a barrier is dropped"
evidence = "tests/ops/test_fft_lengths.py on 22.3.6"
"""


def make_entry(**fields: object) -> KnownFailure:
    return KnownFailure(reason="it folds", evidence="seen", **fields)  # type: ignore[arg-type]


def test_a_known_failure_does_not_fail_the_run() -> None:
    """A known failure does not fail the run; another wrong op still does."""
    document = make_report(
        make_engine(
            "vulkan:llvmpipe",
            make_row("samples/fft/1", "wrong"),
            make_row("samples/add/0"),
        ),
        make_engine("opengl", make_row("samples/fft/1", "wrong"), backend="opengl"),
    )
    covered, not_covered = mark_known_failures(
        document, parse_known_failures(ENTRY_TOML, "mine.toml")
    )["engines"]
    assert covered["word"] == "right"
    assert covered["counts"]["known"] == 1
    assert covered["counts"]["wrong"] == 0
    assert covered["rows"][0]["word"] == "known"
    assert covered["rows"][0]["known"]["reason"] == "a barrier is dropped"
    assert covered["rows"][0]["known"]["where"] == "mine.toml:1"
    assert covered["rows"][0]["why"] == "wrong for a reason"
    assert not_covered["word"] == "wrong"
    assert document["engines"][0]["word"] == "wrong"  # a new document was made


def test_an_unexpected_pass_is_reported() -> None:
    """An unexpected pass is reported, unless the entry is flaky."""
    document = make_report(
        make_engine(
            "vulkan", make_row("samples/fft/1"), make_row("samples/fft/2", "wrong")
        )
    )
    (covered,) = mark_known_failures(document, [make_entry(op="fft")])["engines"]
    assert [case_row["word"] for case_row in covered["rows"]] == [
        "unexpected pass",
        "known",
    ]
    assert (
        "this case is listed as a known failure: it folds" in covered["rows"][0]["why"]
    )
    assert covered["counts"]["unexpected pass"] == 1
    (covered,) = mark_known_failures(document, [make_entry(op="fft", flaky=True)])[
        "engines"
    ]
    assert [case_row["word"] for case_row in covered["rows"]] == ["right", "known"]


@pytest.mark.parametrize("word", ["crashed", "hung", "out of memory", "lost"])
def test_a_failure_of_the_whole_driver_is_never_excused(word: str) -> None:
    """A failure of the whole driver, or a case refused or not run, is not excused."""
    rows = make_row("samples/fft/1", "not run"), make_row("samples/fft/2", "refused")
    document = make_report(make_engine("vulkan", *rows, word=word))
    assert mark_known_failures(document, [make_entry(op="*", backend="*")]) == document


@pytest.mark.parametrize("raised", ["crashed", "hung", "DeviceLost", "GpuTimeout"])
def test_a_case_that_killed_its_process_is_never_excused(raised: str) -> None:
    """A case that crashed, hung or lost its device is never excused."""
    document = make_report(
        make_engine("vulkan", make_row("samples/fft/1", "wrong", raised=raised))
    )
    assert mark_known_failures(document, [make_entry(op="*", backend="*")]) == document


def test_an_engine_that_does_not_reopen_is_never_excused() -> None:
    """An engine that does not reopen is wrong, though all its wrong cases are known."""
    rows = make_row("samples/fft/1", "wrong"), make_row("samples/fft/2", "not run")
    document = make_report(
        make_engine("vulkan", *rows, why="the device cannot be opened: no driver")
    )
    (covered,) = mark_known_failures(document, [make_entry(op="fft")])["engines"]
    assert (covered["word"], covered["counts"]["known"]) == ("wrong", 1)


@pytest.mark.parametrize(
    ("driver", "fields", "covered"),
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
def test_drivers_match_by_text_and_version_range(
    driver: str, fields: dict[str, str], covered: bool
) -> None:
    """The version is the first one after the named text; a driver without one does not
    match.
    """
    assert (
        make_entry(**fields).covers_engine(make_engine("vulkan", driver=driver))
        is covered
    )


@pytest.mark.parametrize("name", ["device", "backend", "adapter", "vendor", "compiler"])
def test_each_part_of_an_engine_can_be_named(name: str) -> None:
    """Parts of an engine match a pattern, ignoring case."""
    engine_part = make_engine("vulkan", **{name: "Some Thing 5"})
    assert make_entry(**{name: "some*"}).covers_engine(engine_part)
    assert not make_entry(**{name: "thing"}).covers_engine(engine_part)


def test_each_part_of_a_case_can_be_named() -> None:
    """A case is selected by op, family, variant or name."""
    case_row = make_row("views/fft/3", variant="fft.four_step")
    for name, pattern in (
        ("family", "views"),
        ("op", "f?t"),
        ("variant", "fft.*"),
        ("case", "views/*/3"),
    ):
        assert make_entry(**{name: pattern}).covers_case(case_row)
        assert not make_entry(**{name: "no"}).covers_case(case_row)


# --- files ------------------------------------------------------------------------


def test_the_packaged_file_can_be_read_and_switched_off(tmp_path: Path) -> None:
    """A user's file adds to the packaged one unless that is switched off."""
    mine = tmp_path / "mine.toml"
    mine.write_text(ENTRY_TOML, "utf-8")
    assert load_known_failures() == packaged_failures()
    assert load_known_failures(["none"]) == []
    assert len(load_known_failures([str(mine)])) == len(packaged_failures()) + 1
    (only,) = load_known_failures(["none", str(mine)])
    assert only.where == f"{mine}:1"
    assert only.versions == ">=22.3, <23"


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        (("op = ", "oop = "), 5, "unknown key 'oop'; did you mean 'op'"),
        (('"Mesa"', "3"), 3, "driver = 3; driver must be a non-empty string"),
        (('"Mesa"', '""'), 3, "driver = ''"),
        (('">=22.3, <23"', '"22.3 to 23"'), 4, "versions = '22.3 to 23'"),
        (('evidence = "', 'flaky = "'), 7, "flaky = "),
        (("reason =", "case ="), 1, "table has no key 'reason'"),
        (('op = "fft*"\n', ""), 1, "no key that selects a case"),
        (("[[failure]]", "[[failures]]"), 1, "unexpected 'failures'"),
        (("[[failure]]", "[failure]"), 1, "must be a list of tables"),
        (("[[failure]]", "[[failure]"), 1, "invalid TOML"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(
    change: tuple[str, str], line: int, message: str
) -> None:
    """A malformed file is refused with its line and the correction."""
    with pytest.raises(UsageError) as error_info:
        parse_known_failures(ENTRY_TOML.replace(*change), "mine.toml")
    assert message in str(error_info.value)
    assert f"line {line}" in str(error_info.value)
    assert "'mine.toml'" in str(error_info.value)


def test_the_line_is_that_of_the_entry_at_fault() -> None:
    """The line is that of the faulty entry, not of the first with such a key."""
    text = ENTRY_TOML + "\n" + ENTRY_TOML.replace("op =", "ops =")
    with pytest.raises(UsageError, match=r"line 13.*'ops'"):
        parse_known_failures(text, "mine.toml")


def test_inline_tables_are_read() -> None:
    """A list of inline tables is read like an array of tables."""
    text = 'failure = [{op = "fft", backend = "a", reason = "r", evidence = "e"}]'
    (only,) = parse_known_failures(text, "x")
    assert (only.op, only.where) == ("fft", "x:1")


def test_unreadable_files_are_reported(tmp_path: Path) -> None:
    """A missing file and one that is not text are reported."""
    with pytest.raises(RecordingError, match="No such file"):
        load_known_failures([str(tmp_path / "none.toml")])
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(RecordingError, match="decode"):
        load_known_failures([str(tmp_path / "bytes.toml")])


def test_the_example_in_the_manual_is_a_valid_entry() -> None:
    """The manual's example, which people copy, is a valid entry."""
    (text,) = code_blocks("smoke-reports", "toml")
    (only,) = parse_known_failures(text, "manual")
    assert (only.versions, only.case) == (">=22.3, <23.1", "variants/*")


def test_the_example_in_the_packaged_file_is_a_valid_entry() -> None:
    """The packaged file's example, which people copy, is a valid entry."""
    path = Path(__file__).resolve().parents[3] / "rlxweb/smoke/known-failures.toml"
    lines = path.read_text("utf-8").splitlines()
    example = "\n".join(x.removeprefix("#") for x in lines if x.startswith("#   "))
    example = "\n".join(x for x in example.splitlines() if "=" in x or "[[" in x)
    assert tomllib.loads(example)["failure"]
    (only,) = parse_known_failures(example, "example")
    assert only.versions == ">=22.3, <22.3.7"
