"""FFT by teams of lanes: `Smooth` and the recipes of fft, rfft and irfft."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rlxweb.ir.lowering import Access
from rlxweb.limits import Limits
from rlxweb.recipes.butterfly import Emitter
from rlxweb.recipes.entry import MAIN_TEXT
from rlxweb.recipes.fft_calls import Rows, Smooth, Work, any_length
from rlxweb.recipes.fft_rows import Last
from rlxweb.recipes.fft_team import MOST_RADIX, Team, team_of, transform, turn_table
from rlxweb.recipes.fft_variants import RecipeFor, by_rule, reader, values_of, writer


def turn_reader(access: int) -> str:
    """The function by which a text of `transform` reads its table of roots."""
    return f"fn turn(i: u32) -> vec4<f32> {{ return ld{access}(i); }}\n"


def team_rows(teams: Callable[[int], Team]) -> Smooth:
    """Every row by the team there is for its length."""

    def smooth(
        work: Work, n: int, source: Rows, target: Rows, keep: int, scale: float
    ) -> None:
        team = teams(n)
        work.call(
            f"fft_team_{n}",
            1,
            (source.access(), turns_of(work, team), target.access("write")),
            values_of(source, target, scale),
            grid=(("rows", team.rows),),
            per="workgroup",
            workgroup=team.workgroup,
            source=_text(team, source, writer(target, "st2", keep, n)),
            shared_bytes=team.shared_bytes,
            in_bounds=True,
        )

    return smooth


def turns_of(work: Work, team: Team) -> Access:
    """The table of roots, read a vec4 at a time."""
    table = turn_table(team)
    access = work.table(f"turns {team.n}", lambda: table, table.size)
    return replace(access, wide=True)


def _text(team: Team, source: Rows, last: Last) -> str:
    e, stores = Emitter(), Emitter("s")
    for k, value in transform(team, e, reader(source)):
        last(stores, k, "", value)
    return (
        f"{turn_reader(1)}{team.room()}{MAIN_TEXT}{team.head()}"
        "  let row_in = row * u.in_pitch;\n  let row_out = row * u.out_pitch;\n"
        f"{e.text('  ')}\n  if (on) {{\n{stores.text()}\n  }}\n}}\n"
    )


def team_recipe(
    swizzled: bool = True, most_radix: int = MOST_RADIX
) -> Callable[[str], RecipeFor]:
    """A team of lanes a row; other arguments than these only to see what they bring."""

    @by_rule
    def recipe(rows: int, lengths: tuple[int, ...], limits: Limits) -> Smooth | None:
        teams = {n: team_of(n, limits, 0, most_radix) for n in lengths}
        found = {n: team for n, team in teams.items() if team is not None}
        if len(found) < len(teams):
            return None
        if not swizzled:
            found = {n: replace(team, shifts=()) for n, team in found.items()}
        return any_length(team_rows(found.__getitem__))

    return recipe
