"""Every family of NumPy's functions that can be traced; it fills the tables."""

from __future__ import annotations

from rlxweb.tracing import (
    complex_ufuncs as complex_ufuncs,
)
from rlxweb.tracing import (
    creation as creation,
)
from rlxweb.tracing import (
    moves as moves,
)
from rlxweb.tracing import (
    picks as picks,
)
from rlxweb.tracing import (
    products as products,
)
from rlxweb.tracing import (
    reductions as reductions,
)
from rlxweb.tracing import (
    statistics as statistics,
)
from rlxweb.tracing import (
    systems as systems,
)
from rlxweb.tracing import (
    transforms as transforms,
)
from rlxweb.tracing import (
    ufuncs as ufuncs,
)
from rlxweb.tracing.table import FUNCTIONS, REAL, name_of


def names() -> list[str]:
    """The functions of NumPy that a traced function may call, in alphabetical order."""
    return sorted(
        {name_of(one) for one in FUNCTIONS} | {f"np.{one.__name__}" for one in REAL}
    )
