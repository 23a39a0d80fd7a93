"""Writes `docs/reference/engines.md`: `python -m specfleet.engines.reference [--check]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from specfleet.api.v1alpha1 import EngineType
from specfleet.engines import sglang_tables, trtllm_tables
from specfleet.engines.capabilities import CapabilityTable, Checkpoint, Span, capabilities, runs_text
from specfleet.engines.sglang_tables import SGLangTable
from specfleet.engines.trtllm_tables import TrtllmTable
from specfleet.engines.vllm_tables import NEWEST, OLDEST

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "engines.md"
_CHECKPOINTS = {
    Checkpoint.NONE: "none",
    Checkpoint.DRAFT: "`drafts[].model`",
    Checkpoint.TARGET: "the target's, or `drafts[].model`",
}
_HEAD = """\
# Draft modes by engine and release

Generated from the tables that validation and rendering use, by `python -m specfleet.engines.reference`;
`specfleet engines` prints them. Releases, flags, keys and method names were read in the sources of released wheels
([how](../contributing/api-and-engines.md#a-release-of-an-engine)), those of TensorRT-LLM in the documentation of its
releases; the last table of each engine says where the rest was read. None of it was tried on GPUs.

[External pools](external.md) need none of this: what their pods were started with counts.
"""


def page() -> str:
    """The whole page."""
    table = capabilities(EngineType.VLLM)
    return "\n".join([_HEAD, *_engine(table), *_sglang(sglang_tables.table()), *_trtllm(trtllm_tables.table())])


def _engine(table: CapabilityTable) -> Iterator[str]:
    newest = table.facts.releases[-1]
    yield f"## {table.engine}\n"
    yield (
        f"Facts of {table.facts.releases[0]} to {newest}; rendered: {OLDEST} to {NEWEST}, newer ones like {NEWEST}, "
        "with a warning.\n"
    )
    yield "| mode | `method` | releases | checkpoint | KV slots ahead | needs |"
    yield "|---|---|---|---|---|---|"
    for mode in table.modes:
        releases = runs_text(table.having(mode.mode), table.facts.releases)
        gaps = "".join(f"; {one.releases.since} to {one.releases.until} {one.why}" for one in mode.unusable)
        if mode.first_engine is not None:
            gaps += f"; {_span(mode.first_engine)} on the V0 engine only"
        yield _row(
            f"`{mode.mode}`",
            f"`{table.method(mode.mode, newest) or mode.methods[0]}`",
            releases + gaps,
            _CHECKPOINTS[mode.checkpoint],
            mode.lookahead,
            "; ".join(mode.needs),
        )
    yield "\nk is `drafts[].tokens`.\n"
    yield from _aliases(table)
    yield from _flags(table)
    yield from _args(table)
    yield from _common(table)
    yield from _mtp_targets(table)
    yield from _eagle3(table)
    yield from _sources(table)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _aliases(table: CapabilityTable) -> Iterator[str]:
    yield "### Names of MTP\n"
    yield "From 0.11 on every name is read as `mtp`, which is what is rendered.\n"
    yield "| name | releases |"
    yield "|---|---|"
    rows = [fact for fact in table.facts.sections["methods"] if fact.name.endswith("mtp")]
    for fact in sorted(rows, key=lambda fact: (fact.since, fact.name)):
        having = tuple(one for one in table.facts.releases if fact.since <= one <= fact.until)
        yield _row(f"`{fact.name}`", runs_text(having, table.facts.releases))
    yield ""


def _span(span: Span) -> str:
    if span.since is None and span.until is None:
        return "all"
    if span.since is None:
        return f"up to {span.until}"
    return f"since {span.since}" if span.until is None else f"{span.since} to {span.until}"


def _flags(table: CapabilityTable) -> Iterator[str]:
    yield "### Flags that cannot be combined\n"
    yield "Refused in `engine.args` and `engine.extraArgs`, since vLLM would not start.\n"
    yield "| mode | flag | releases | what vLLM does |"
    yield "|---|---|---|---|"
    for mode in table.modes:
        for flag in mode.flags:
            yield _row(f"`{mode.mode}`", f"`{flag.name}`", _span(flag.releases), flag.why)
    yield ""


def _args(table: CapabilityTable) -> Iterator[str]:
    yield "### `drafts[].args`\n"
    yield "Keys of the speculative config, with the releases that have them, and the modes that take them.\n"
    yield "| key | type in its source | releases | modes | changes answers |"
    yield "|---|---|---|---|---|"
    offered = {name for mode in table.modes for name in mode.args} | table.common_args
    newest = table.facts.releases[-1]
    types = {fact.name: fact.detail for fact in table.facts.of("keys", newest)}
    for name in sorted(offered):
        having = tuple(one for one in table.facts.releases if name in table.facts.names("keys", one))
        modes = "all" if name in table.common_args else ", ".join(_modes_with(table, name))
        values = table.lossy_choices.get(name)
        lossy = ", ".join(f"`{value}`" for value in sorted(values)) if values else "yes" if name in table.lossy else ""
        yield _row(f"`{name}`", f"`{types.get(name, '')}`", runs_text(having, table.facts.releases), modes, lossy)
    yield "\nNot offered:\n"
    yield from (f"- `{name}`: {why}" for name, why in sorted(table.not_offered.items()))
    yield ""


def _modes_with(table: CapabilityTable, name: str) -> list[str]:
    return [f"`{mode.mode}`" for mode in table.modes if name in mode.args]


def _common(table: CapabilityTable) -> Iterator[str]:
    yield "### For every mode\n"
    for row in table.refused_fields:
        yield (
            f"- Request fields answered with 400 under speculation, {_span(row.releases)}: {', '.join(row.fields)}. "
            "Such requests go to baseline."
        )
    yield f"- Acceptance is attributed {table.attribution}."
    yield f"- Metrics of the engine: {table.metrics}."
    yield from (f"- {note}" for note in table.notes)
    yield ""


def _mtp_targets(table: CapabilityTable) -> Iterator[str]:
    yield "### Targets of MTP\n"
    yield "Of a target's own layers; a list by `model_type` in some releases, later any that vLLM has a class for.\n"
    yield "| releases | `model_type` |"
    yield "|---|---|"
    for mode in table.modes:
        for listed in mode.targets:
            yield _row(_span(listed.releases), ", ".join(f"`{kind}`" for kind in listed.types))
    yield ""


def _eagle3(table: CapabilityTable) -> Iterator[str]:
    newest = table.facts.releases[-1]
    facts = table.facts.sections["eagle3Targets"]
    last = max(fact.until for fact in facts)
    listed = sorted(facts, key=lambda fact: (fact.since, fact.name))
    yield "### Targets of EAGLE-3\n"
    yield f"Up to {last} vLLM has a list; a target's `model_type` has to contain one of its words:\n"
    yield "| word | releases |"
    yield "|---|---|"
    for fact in listed:
        yield _row(f"`{fact.name}`", f"{fact.since} to {fact.until}")
    names = sorted(table.facts.names("eagle3Models", newest))
    yield (
        "\nAfter that the target's class has to support it, itself or by a class that it is made from. The "
        f"{len(names)} architectures of {newest} that do:\n"
    )
    yield ", ".join(f"`{name}`" for name in names)
    yield ""


def _sources(table: CapabilityTable) -> Iterator[str]:
    yield "### Sources of vLLM\n"
    yield "Paths are below `vllm/` in the wheels.\n"
    yield "| what | read in |"
    yield "|---|---|"
    yield _row("for every mode", ", ".join(f"`{one}`" for one in table.sources))
    for mode in table.modes:
        yield _row(f"`{mode.mode}`", ", ".join(f"`{one}`" for one in mode.sources))


def _sglang(table: SGLangTable) -> Iterator[str]:
    order = table.facts.releases
    yield f"\n## {EngineType.SGLANG}\n"
    yield (
        f"Facts of {order[0]} to {table.newest}; rendered: {table.releases[0]} to {table.newest}. "
        "There is no mode Suffix and no mode Medusa.\n"
    )
    yield "| mode | algorithm | releases | checkpoint | needs |"
    yield "|---|---|---|---|---|"
    for mode in table.modes:
        releases = runs_text(table.having(mode.mode), order)
        checkpoint = _CHECKPOINTS[mode.checkpoint]
        yield _row(f"`{mode.mode}`", f"`{mode.algorithm}`", releases, checkpoint, "; ".join(mode.needs))
    yield "\n### Flags that do not go with a mode of SGLang\n"
    yield "| mode | flag | releases | what SGLang does |"
    yield "|---|---|---|---|"
    for mode in table.modes:
        for conflict in mode.conflicts:
            flag = conflict.flag if conflict.value is None else f"{conflict.flag}={conflict.value}"
            until = f" to {conflict.until}" if conflict.until is not None else " and later"
            yield _row(f"`{mode.mode}`", f"`{flag}`", f"{conflict.since}{until}", conflict.why)
    yield "\n### `drafts[].args` of SGLang\n"
    yield "Flags without dashes, with the releases that have them, and the modes that take them.\n"
    yield "| flag | releases | modes | changes answers |"
    yield "|---|---|---|---|"
    for name in sorted({name for mode in table.modes for name in mode.args}):
        having = tuple(one for one in order if table.knows(name, one))
        modes = ", ".join(f"`{mode.mode}`" for mode in table.modes if name in mode.args)
        yield _row(f"`{name}`", runs_text(having, order), modes, "yes" if name in table.lossy else "")
    yield "\n### For every mode of SGLang\n"
    yield f"- Acceptance is attributed {table.attribution}."
    yield f"- Metrics of the engine: {table.metrics}."
    yield from (f"- {note}" for note in table.notes)
    yield "\n### Sources of SGLang\n"
    yield "Paths are below `sglang/srt/` in the wheels.\n"
    yield "| what | read in |"
    yield "|---|---|"
    yield _row("for every mode", ", ".join(f"`{one}`" for one in table.sources))
    for mode in table.modes:
        yield _row(f"`{mode.mode}`", ", ".join(f"`{one}`" for one in mode.sources))


def _trtllm(table: TrtllmTable) -> Iterator[str]:
    order = table.sections["types"].read
    yield f"\n## {EngineType.TENSORRTLLM}\n"
    yield (
        f"Read: {', '.join(str(one) for one in order)}; rendered: {trtllm_tables.OLDEST} to {table.newest}, newer ones "
        f"like {table.newest}, with a warning. There is no mode Suffix, Medusa and EAGLE.\n"
    )
    yield "| mode | `decoding_type` | releases that were read and have it | k is in | checkpoint | needs |"
    yield "|---|---|---|---|---|---|"
    for mode in table.modes:
        keys = ", ".join(f"`{key}`" + (f" up to {until}" if until else "") for until, key in mode.tokens_keys)
        yield _row(
            f"`{mode.mode}`",
            ", ".join(f"`{one}` ({table.sections['types'].spans(one)})" for one in mode.types),
            runs_text(table.having(mode.mode), order),
            keys,
            "the target's" if mode.checkpoint is Checkpoint.TARGET else _CHECKPOINTS[mode.checkpoint],
            "; ".join(mode.needs),
        )
    yield "\n### `drafts[].args` of TensorRT-LLM\n"
    yield "Keys of `speculative_config`, with the releases that were read and have them, and the modes with them.\n"
    yield "| key | releases | modes | changes answers |"
    yield "|---|---|---|---|"
    offered = {name: [mode for mode in table.modes if name in mode.args] for mode in table.modes for name in mode.args}
    for name in sorted({*offered, *table.common_args}):
        modes = offered.get(name, [])
        spans = table.key_spans(name, modes[0].mode if modes else table.modes[0].mode)
        told = ", ".join(f"`{mode.mode}`" for mode in modes) or "all"
        yield _row(f"`{name}`", spans, told, "yes" if name in table.lossy else "")
    yield "\nNot offered:\n"
    yield from (f"- `{name}`: {why}" for name, why in sorted(table.not_offered.items()))
    yield "\n### For every mode of TensorRT-LLM\n"
    yield f"- Acceptance is attributed {table.attribution}."
    yield f"- Metrics of the engine: {table.metrics}."
    yield from (f"- {note}" for note in table.notes)
    yield "\n### What rests on little\n"
    yield from (f"- {note}" for note in table.weak)
    yield from (f"- `{mode.mode}`: {note}" for mode in table.modes for note in mode.weak)
    yield "\n### Sources of TensorRT-LLM\n"
    yield "Pages are below `https://nvidia.github.io/TensorRT-LLM/`, numbers are its repository's pull requests.\n"
    yield "| what | read in |"
    yield "|---|---|"
    yield _row("for every mode", ", ".join(f"`{one}`" for one in table.sources))
    for mode in table.modes:
        yield _row(f"`{mode.mode}`", ", ".join(f"`{one}`" for one in mode.sources))
    for release, one in sorted(table.documented.items()):
        commit = f" (generated from commit {one.commit})" if one.commit else ""
        yield _row(f"facts of {release}{commit}", ", ".join(f"`{page}`" for page in one.pages))


def main(arguments: list[str]) -> int:
    """Writes the page, or with `--check` says whether it differs. Returns the exit status."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m specfleet.engines.reference [--check]", file=sys.stderr)
        return 2
    text = page() + "\n"
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    if arguments:
        print(
            f"docs/reference/{PAGE.name} differs from the tables: run python -m specfleet.engines.reference",
            file=sys.stderr,
        )
        return 1
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote docs/reference/{PAGE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
