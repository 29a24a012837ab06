"""The vocabulary: one record per op, declared once, in families.

The families register themselves when they are loaded; `vocabulary.py` loads all. Not
done here: a thread that imports one of them while another loads all would wait for it.
"""

FAMILIES = (
    "leaf",
    "elementwise",
    "activation",
    "functions",
    "gates",
    "remainder",
    "logic",
    "movement",
    "slices",
    "remapped",
    "reduce",
    "select",
    "sorting",
    "nonzero",
    "suppression",
    "roi",
    "picking",
    "linalg",
    "solve",
    "conv",
    "conv_transpose",
    "pool",
    "resize",
    "grid_sample",
    "norm",
    "nn",
    "rotary",
    "glu",
    "lora",
    "grouped",
    "recurrent",
    "selective_scan",
    "spectral",
    "mel",
    "welch",
    "segments",
)
