"""The table of flags is what its own writer writes, and a new release changes only what is new in it."""

from __future__ import annotations

from specfleet.engines.flags import parse_table
from specfleet.engines.release import Minor
from specfleet.engines.vllm_tables import NEWEST, all_flags
from tests.render.write_vllm_flags import TABLE, by_release, table_text


def test_the_table_is_what_its_writer_writes() -> None:
    assert table_text(by_release(all_flags(), NEWEST)) == TABLE.read_text(encoding="utf-8")


def test_a_new_release_ends_what_it_lost_and_begins_what_it_brought() -> None:
    releases = by_release(all_flags(), NEWEST)
    later = Minor(NEWEST.major, NEWEST.minor + 1)
    releases[later] = releases[NEWEST] - {("--seed", "one")} | {("--brand-new", "none")}

    flags = {flag.name: flag for flag in parse_table(table_text(releases))}

    assert flags["seed"].until == NEWEST
    assert (flags["brand-new"].since, flags["brand-new"].until) == (later, None)
    assert flags["max-model-len"].until is None
