"""SpecDeployment v1alpha1: `spec.policy`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from specfleet.api.base import DecimalText, Duration, Model, Percent, Rule, rules


class Enforcement(StrEnum):
    """Whether decisions move traffic."""

    ENFORCE = "Enforce"
    OBSERVE = "Observe"


class Initial(StrEnum):
    """Where a new route starts."""

    BASELINE = "Baseline"
    SPECULATIVE = "Speculative"


class CalibrationWindow(Model):
    """A time of each day, in UTC."""

    start: Annotated[str, StringConstraints(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")] = Field(
        description='When it begins, in UTC, for instance "02:30".'
    )
    duration: Duration = Field(
        "1h",
        description="How long it is.",
        json_schema_extra=rules(
            Rule(
                "duration(self) >= duration('10m') && duration(self) <= duration('24h')",
                "a window's duration must be 10m to 24h",
            )
        ),
    )


class Calibration(Model):
    """Traffic that goes to the other pool, so that what is not known of the line is measured."""

    percent: Annotated[int, Field(ge=1, le=90)] = Field(
        50,
        description="Of a route's traffic, to the pool that does not serve it, while the line is not Known: so much "
        "that both pools run about the same batch.",
    )
    window: CalibrationWindow = Field(description="When; at other times nothing is sent.")


class BreakEven(Model):
    """The tokens per decode step above which speculation pays."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "(self.source == 'Fixed') == has(self.tokensPerStep)",
                'write tokensPerStep, for instance "1.60", with source Fixed, and only there',
            ),
            Rule(
                "!has(self.tokensPerStep) || (double(self.tokensPerStep) >= 1.0 && double(self.tokensPerStep) <= 33.0)",
                "tokensPerStep must be between 1 and 33: no decode step yields less than one token",
                ".tokensPerStep",
            ),
            Rule(
                "self.source == 'Measured' || !has(self.calibration)",
                "calibration is for source Measured: leave it out, or write source: Measured",
                ".calibration",
            ),
        )
    )
    source: Literal["Measured", "Fixed", "None"] = Field(
        description="Measured: from the time of a decode step in both pools, at the batch that the route's pool runs. "
        "Fixed: the figure given here. None: no break-even line."
    )
    tokens_per_step: DecimalText | None = Field(
        None, description='Tokens per decode step, as decimal text such as "1.60"; with source Fixed only.'
    )
    calibration: Calibration | None = Field(
        None,
        description="With source Measured only: a window in which some of the traffic measures the pool that the "
        "route is not in. Without it only what traffic does by itself is measured.",
    )


class Exploration(Model):
    """Traffic that goes on looking while a route is off."""

    max_percent: Percent = Field(10, description="Most of a route's traffic that explores; 0 is none.")


_TIME = rules(
    Rule("duration(self) >= duration('1ms') && duration(self) <= duration('10m')", "an SLO's time must be 1ms to 10m")
)


class Slo(Model):
    """Times that requests are to keep. Speculation that misses one, while baseline would not, is off."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "has(self.timePerOutputToken) || has(self.timeToFirstToken)",
                "write timePerOutputToken, for instance 40ms, or timeToFirstToken, or both",
            )
        )
    )
    time_per_output_token: Duration | None = Field(
        None, description="Of streams, from first token to end, per token.", json_schema_extra=_TIME
    )
    time_to_first_token: Duration | None = Field(
        None,
        description="Of streams, from the whole request's arrival to the first byte of the answer.",
        json_schema_extra=_TIME,
    )
    percentile: Annotated[int, Field(ge=50, le=99)] = Field(95, description="Of requests that are to keep the times.")


class Policy(Model):
    """When speculation is on."""

    enforcement: Enforcement = Field(
        Enforcement.ENFORCE, description="Enforce, or Observe: decide and report, move nothing."
    )
    initial: Initial = Field(Initial.BASELINE, description="Where a new route starts.")
    min_acceptance_percent: Annotated[int, Field(ge=1, le=100)] | None = Field(
        None, description="Accepted over drafted tokens, in percent; under it, with evidence, speculation is off."
    )
    break_even: BreakEven | None = Field(None, description="The line that tokens per decode step must reach to pay.")
    slo: Slo | None = Field(None, description="Times that requests are to keep; a guard, beside the lines.")
    exploration: Exploration = Field(default_factory=Exploration)
    block: Duration = Field(
        "60s",
        description="Length of one sample.",
        json_schema_extra=rules(
            Rule("duration(self) >= duration('1s') && duration(self) <= duration('1h')", "block must be 1s to 1h")
        ),
    )
    dwell: Duration = Field(
        "10m",
        description="Least time in baseline, doubled with each repeated switch-off; half of it in speculation.",
        json_schema_extra=rules(
            Rule("duration(self) >= duration('1s') && duration(self) <= duration('24h')", "dwell must be 1s to 24h")
        ),
    )
