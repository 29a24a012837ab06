"""Equal labels are numbered; channels are selected by name, label or pattern."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.core.errors import RecordingError, UnknownName, UsageError
from rlxweb.io.channel_selection import (
    TRIGGER_REASON,
    choose_channels,
    is_trigger,
    unique_names,
)
from rlxweb.io.format_reader_interface import FileChannel

LABELS = ["EEG Fp1", "EEG Fp2", "EEG Fp1", "ECG", "Status", "X [1]"]
FILE_CHANNELS = [
    FileChannel(label, "", TRIGGER_REASON if is_trigger(label) else "")
    for label in LABELS
]
NAMES = unique_names(LABELS)


def select_names(*patterns: str) -> list[str]:
    return [
        NAMES[i] for i in choose_channels("reading 'x'", FILE_CHANNELS, NAMES, patterns)
    ]


def test_equal_labels_get_a_number() -> None:
    """The second of two equal labels is (2), and so on."""
    assert unique_names(["a", "b", "a", "a"]) == ("a", "b", "a (2)", "a (3)")


def test_numbers_of_existing_labels_are_skipped() -> None:
    """A generated name never equals a real one."""
    assert unique_names(["a", "a", "a (2)"]) == ("a", "a (3)", "a (2)")


def test_an_empty_label_is_named_by_its_place() -> None:
    """Channels without a label are ch1, ch2 …"""
    assert unique_names(["", "x", "  "]) == ("ch1", "x", "ch3")


@given(st.lists(st.sampled_from(["a", "a (2)", "a (3)", "", "ch1", "ch2"])))
def test_names_are_always_unique(labels: list[str]) -> None:
    """No two channels ever share a name, and a unique label keeps its own."""
    names = unique_names(labels)
    assert len(set(names)) == len(labels)
    for label, name in zip(labels, names, strict=True):
        if label and labels.count(label) == 1 and not label.startswith("ch"):
            assert name == label


@pytest.mark.parametrize(
    "label", "Status|STATUS|STI 014|STI101|stim|TRIG|Trigger 2|TRIG_in|Event".split("|")
)
def test_trigger_labels_are_known(label: str) -> None:
    """The names under which devices store their trigger lines."""
    assert is_trigger(label)


@pytest.mark.parametrize(
    "label", ["Fp1", "EEG STI", "Trigeminal", "eventual", "Stirrup", "Stimulation"]
)
def test_signals_that_only_sound_like_triggers_stay(label: str) -> None:
    """No channel is excluded because of the first letters of its name."""
    assert not is_trigger(label)


def test_all_but_triggers_are_selected_by_default() -> None:
    """The file's order is kept."""
    indices = choose_channels("", FILE_CHANNELS, NAMES, None)
    assert indices == (0, 1, 2, 3, 5)


def test_a_unique_name_picks_its_channel() -> None:
    """The exact name comes first, whatever else it could mean."""
    assert select_names("EEG Fp2") == ["EEG Fp2"]
    assert select_names("EEG Fp1 (2)") == ["EEG Fp1 (2)"]
    assert select_names("X [1]") == ["X [1]"]
    assert select_names("ecg") == ["ECG"]


@pytest.mark.parametrize("label", ["EEG Fp1", "eeg fp1", " EEG Fp1 "])
def test_an_ambiguous_label_is_refused(label: str) -> None:
    """The message says how each is picked; a pattern picks both."""
    with pytest.raises(UsageError, match=r"2 channels match 'EEG Fp1'|'eeg fp1'") as e:
        select_names(label)
    assert (
        "'EEG Fp1 (1)', 'EEG Fp1 (2)'; "
        f"or pass '{label.strip()}*' to select all names with this prefix"
    ) in str(e.value)
    assert select_names("EEG Fp1 (1)") == ["EEG Fp1"]
    assert select_names("EEG Fp1*") == ["EEG Fp1", "EEG Fp1 (2)"]


def test_labels_that_differ_in_case_are_two() -> None:
    """Labels that differ in case are two channels; any other case is ambiguous."""
    channels = [FileChannel("fz"), FileChannel("Fz"), FileChannel("Fz (1)")]
    names = unique_names([channel.label for channel in channels])
    assert choose_channels("", channels, names, ["Fz", "fz", "Fz (1)"]) == (1, 0, 2)
    with pytest.raises(UsageError, match="pass one of 'fz', 'Fz';"):
        choose_channels("", channels, names, ["FZ"])


def test_an_unusable_channel_does_not_make_a_label_ambiguous() -> None:
    """The only signal among equal labels is selected."""
    channels = [
        FileChannel("Fz", "", "has no calibration", is_selectable=False),
        FileChannel("Fz"),
    ]
    names = unique_names(["Fz", "Fz"])
    assert choose_channels("", channels, names, ["fz"]) == (1,)
    assert choose_channels("", channels, names, ["Fz (2)"]) == (1,)


def test_a_pattern_picks_signals_only() -> None:
    """A trigger is selected by its own name, never by a pattern."""
    assert select_names("EEG*") == ["EEG Fp1", "EEG Fp2", "EEG Fp1 (2)"]
    assert "Status" not in select_names("*")
    assert select_names("status") == ["Status"]


def test_the_order_asked_for_is_kept_without_repeats() -> None:
    """Asking twice takes a channel once."""
    assert select_names("ECG", "EEG Fp2", "E*") == [
        "ECG",
        "EEG Fp2",
        "EEG Fp1",
        "EEG Fp1 (2)",
    ]


def test_an_unknown_channel_lists_near_ones() -> None:
    """The message lists the existing names and the likely one."""
    for name, words in (
        ("EEG Fp3", r"no channel is named 'EEG Fp3'.*did you mean.*EEG Fp1"),
        ("zzzzzz", "pattern such as"),
        ("Q*", r"'Q\*'"),
    ):
        with pytest.raises(UnknownName, match=words):
            select_names(name)


def test_an_empty_or_odd_request_is_refused() -> None:
    """No channels, or numbers for names, is a usage error."""
    with pytest.raises(UsageError, match="no channel is selected"):
        choose_channels("", FILE_CHANNELS, NAMES, [])
    with pytest.raises(UsageError, match="3 is not a channel name"):
        choose_channels("", FILE_CHANNELS, NAMES, [3])


def test_a_file_of_triggers_only_is_refused_by_default() -> None:
    """A file without signals is refused with the reason."""
    with pytest.raises(RecordingError, match="'Status' contains triggers"):
        choose_channels("", [FILE_CHANNELS[4]], ["Status"], None)


@given(
    labels=st.lists(
        st.sampled_from(["EEG", "EEG (1)", "EEG (2)", "EEG (1) (1)", "X"]), min_size=1
    )
)
def test_names_offered_by_the_message_select_each_channel(labels: list[str]) -> None:
    """Every channel of a shared label is offered once, and the offer picks that one."""
    channels, names = [FileChannel(label) for label in labels], unique_names(labels)
    for label in {other for other in labels if labels.count(other) > 1}:
        with pytest.raises(UsageError) as e:
            choose_channels("", channels, names, [label])
        offers = re.findall(r"'([^']*)'", str(e.value).split("pass one of ")[1])[:-1]
        indices = [i for i, other in enumerate(labels) if other == label][: len(offers)]
        assert [choose_channels("", channels, names, [o]) for o in offers] == [
            (i,) for i in indices
        ]
