"""Which Deployment speculates. Pure."""

from __future__ import annotations

from specfleet.cli.adopting.scene import AdoptError
from specfleet.cli.adopting.side import Side


def one_role(side: Side, notes: list[str]) -> tuple[Side | None, Side | None]:
    """The Deployment as (speculative, baseline), by its arguments."""
    if side.read.shell:
        notes.append(
            f"whether {side.name} speculates cannot be seen from its arguments: it is taken for the speculative pool; "
            "write its Service under baseline if it is not"
        )
        return side, None
    return (side, None) if side.read.speculative is not None else (None, side)


def two_roles(speculative: Side, baseline: Side) -> tuple[Side, Side]:
    """The pair as it was given. Raises AdoptError where arguments say otherwise."""
    if speculative.name == baseline.name:
        raise AdoptError(
            f"both pools would be Deployment {baseline.name}: name two Deployments, or leave out --baseline"
        )
    if not speculative.read.shell and speculative.read.speculative is None:
        if baseline.read.speculative is not None:
            raise AdoptError(
                f"the two are swapped: {baseline.name} speculates and {speculative.name} does not; write "
                f"deployment/{baseline.name} --baseline deployment/{speculative.name}"
            )
        raise AdoptError(
            f"neither {speculative.name} nor {baseline.name} speculates: start {speculative.name} with speculation "
            "(vLLM: --speculative-config, SGLang: --speculative-algorithm), or leave out --baseline"
        )
    if baseline.read.speculative is not None:
        raise AdoptError(
            f"{baseline.name} speculates too ({baseline.read.mode or 'by its arguments'}): the baseline pool must run "
            "without speculation"
        )
    return speculative, baseline
