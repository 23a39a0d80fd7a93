"""Takes one release's flags into the table: `python -m tests.render.write_vllm_flags RELEASE < ANSWER`.

RELEASE is a minor release such as 0.34; ANSWER is what `read_vllm_parser.py` says in a Python that has that release
(its question may be `{"commands": [], "configs": []}`). The table then tells the release apart from those around it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from specfleet.engines import vllm_tables
from specfleet.engines.flags import Flag
from specfleet.engines.release import Minor

TABLE = Path(vllm_tables.__file__).with_name("vllm_flags.tsv")
HEAD = (
    "# Command-line flags of `vllm serve` as its own argument parser has them "
    "(read by tests/render/read_vllm_parser.py).\n"
    "# first release\tlast release (- is the newest known)\tvalue: none, one, many or optional\tspellings\n"
)
Row = tuple[str, str]
Releases = dict[Minor, set[Row]]


def by_release(flags: tuple[Flag, ...], newest: Minor) -> Releases:
    """Spellings and arity of each release's flags, from the table."""
    releases = [Minor(newest.major, minor) for minor in range(vllm_tables.PARSERS_SINCE.minor, newest.minor + 1)]
    return {
        release: {
            (" ".join(flag.spellings), flag.arity.value)
            for flag in flags
            if flag.since <= release and (flag.until is None or flag.until >= release)
        }
        for release in releases
    }


def table_text(releases: Releases) -> str:
    """The table: one line for each run of releases in which a flag is the same."""
    order = sorted(releases)
    lines = []
    for row in sorted({row for rows in releases.values() for row in rows}):
        since: Minor | None = None
        for release, after in zip(order, [*order[1:], None], strict=True):
            if row not in releases[release]:
                continue
            since = since or release
            if after is None or row not in releases[after]:
                until = "-" if after is None else str(release)
                lines.append((row[0].lstrip("-"), since, f"{since}\t{until}\t{row[1]}\t{row[0]}\n"))
                since = None
    return HEAD + "".join(text for _, _, text in sorted(lines))


def main(release: Minor, answer: dict[str, Any]) -> None:
    """Writes the table with the release in it."""
    releases = by_release(vllm_tables.all_flags(), vllm_tables.NEWEST)
    releases[release] = {(" ".join(spellings), arity) for spellings, arity in answer["flags"]}
    TABLE.write_text(table_text(releases), encoding="utf-8")


if __name__ == "__main__":
    main(Minor.parse(sys.argv[1]), json.load(sys.stdin))
