"""Equal labels are told apart; channels are picked by name, label or pattern."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.errors import RecordingError, UnknownName, UsageError
from rlxweb.io.channels import TRIGGER_REASON, choose_channels, is_trigger, unique_names
from rlxweb.io.contents import Found

LABELS = ["EEG Fp1", "EEG Fp2", "EEG Fp1", "ECG", "Status", "X [1]"]
FOUND = [
    Found(label, "", TRIGGER_REASON if is_trigger(label) else "") for label in LABELS
]
NAMES = unique_names(LABELS)


def pick(*wanted: str) -> list[str]:
    return [NAMES[at] for at in choose_channels("reading 'x'", FOUND, NAMES, wanted)]


def test_equal_labels_get_a_number() -> None:
    """The second of two equal labels is (2), and so on."""
    assert unique_names(["a", "b", "a", "a"]) == ("a", "b", "a (2)", "a (3)")


def test_a_number_another_label_carries_is_passed_over() -> None:
    """A made name never takes a real one."""
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
    """Nothing is left out because of the first letters of its name."""
    assert not is_trigger(label)


def test_by_default_all_but_the_triggers_are_taken() -> None:
    """The file's order is kept."""
    taken = choose_channels("", FOUND, NAMES, None)
    assert taken == (0, 1, 2, 3, 5)


def test_a_unique_name_picks_its_channel() -> None:
    """The exact name comes first, whatever else it could mean."""
    assert pick("EEG Fp2") == ["EEG Fp2"]
    assert pick("EEG Fp1 (2)") == ["EEG Fp1 (2)"]
    assert pick("X [1]") == ["X [1]"]
    assert pick("ecg") == ["ECG"]


@pytest.mark.parametrize("wanted", ["EEG Fp1", "eeg fp1", " EEG Fp1 "])
def test_a_label_of_two_channels_picks_none_silently(wanted: str) -> None:
    """The message says how each is picked; a pattern picks both."""
    with pytest.raises(
        UsageError, match=r"2 channels are called 'EEG Fp1'|'eeg fp1'"
    ) as e:
        pick(wanted)
    assert "'EEG Fp1 (1)', 'EEG Fp1 (2)'; or all that begin so" in str(e.value)
    assert pick("EEG Fp1 (1)") == ["EEG Fp1"]
    assert pick("EEG Fp1*") == ["EEG Fp1", "EEG Fp1 (2)"]


def test_labels_that_differ_in_case_are_two() -> None:
    """Labels that differ in case are two channels; any other case is ambiguous."""
    found = [Found("fz"), Found("Fz"), Found("Fz (1)")]
    names = unique_names([channel.label for channel in found])
    assert choose_channels("", found, names, ["Fz", "fz", "Fz (1)"]) == (1, 0, 2)
    with pytest.raises(UsageError, match="say which: 'fz', 'Fz';"):
        choose_channels("", found, names, ["FZ"])


def test_a_channel_that_cannot_be_taken_is_in_nobodys_way() -> None:
    """Of two equal labels only one is a signal: that one is meant."""
    found = [Found("Fz", "", "has no calibration", nameable=False), Found("Fz")]
    names = unique_names(["Fz", "Fz"])
    assert choose_channels("", found, names, ["fz"]) == (1,)
    assert choose_channels("", found, names, ["Fz (2)"]) == (1,)


def test_a_pattern_picks_signals_only() -> None:
    """A trigger is taken by its own name, never by a pattern."""
    assert pick("EEG*") == ["EEG Fp1", "EEG Fp2", "EEG Fp1 (2)"]
    assert "Status" not in pick("*")
    assert pick("status") == ["Status"]


def test_the_order_asked_for_is_kept_without_repeats() -> None:
    """Asking twice takes a channel once."""
    assert pick("ECG", "EEG Fp2", "E*") == ["ECG", "EEG Fp2", "EEG Fp1", "EEG Fp1 (2)"]


def test_an_unknown_channel_lists_near_ones() -> None:
    """The message holds the names there are and the likely meant one."""
    for wanted, words in (
        ("EEG Fp3", r"no channel 'EEG Fp3'.*did you mean.*EEG Fp1"),
        ("zzzzzz", "pattern such as"),
        ("Q*", r"'Q\*'"),
    ):
        with pytest.raises(UnknownName, match=words):
            pick(wanted)


def test_an_empty_or_odd_request_is_refused() -> None:
    """No channels, or numbers for names, is a usage error."""
    with pytest.raises(UsageError, match="no channel was asked for"):
        choose_channels("", FOUND, NAMES, [])
    with pytest.raises(UsageError, match="3 is not a channel name"):
        choose_channels("", FOUND, NAMES, [3])


def test_a_file_of_triggers_only_is_refused_by_default() -> None:
    """Nothing left is an error that says why."""
    with pytest.raises(RecordingError, match="'Status' holds triggers"):
        choose_channels("", [FOUND[4]], ["Status"], None)


@given(
    labels=st.lists(
        st.sampled_from(["EEG", "EEG (1)", "EEG (2)", "EEG (1) (1)", "X"]), min_size=1
    )
)
def test_what_the_message_offers_picks_each(labels: list[str]) -> None:
    """Every channel of a shared label is offered once, and the offer picks that one."""
    found, names = [Found(label) for label in labels], unique_names(labels)
    for label in {one for one in labels if labels.count(one) > 1}:
        with pytest.raises(UsageError) as e:
            choose_channels("", found, names, [label])
        offers = re.findall(r"'([^']*)'", str(e.value).split("say which: ")[1])[:-1]
        places = [at for at, one in enumerate(labels) if one == label][: len(offers)]
        assert [choose_channels("", found, names, [o]) for o in offers] == [
            (at,) for at in places
        ]
