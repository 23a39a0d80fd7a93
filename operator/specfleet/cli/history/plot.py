"""A replay as a picture: one row a route, tokens per step over time, and where the policy would have had it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from specfleet.cli.history.times import shown
from specfleet.cli.replay_history import Result, Told

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_MOST_POINTS = 2000
_INCHES = 12.0, 2.8


class PlotProblem(Exception):
    """No picture can be made; the text says what to do."""


def check(file: Path) -> None:
    """Raise PlotProblem where a picture could not be drawn or written, before an hour is spent on its figures."""
    if file.suffix.lower() != ".png":
        raise PlotProblem(f"--plot writes PNG: expected a name such as replay.png, found {file.name}")
    if not file.parent.is_dir():
        raise PlotProblem(f"--plot: the folder {file.parent} does not exist")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise PlotProblem("--plot needs matplotlib: pip install 'specfleet[plot]'") from None


def plotted(result: Result, file: Path) -> None:
    """Write the PNG. Raises OSError where that fails."""
    # Without pyplot: nothing is kept between pictures, and no display is looked for.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    request = result.request
    figure = Figure(figsize=(_INCHES[0], 0.9 + _INCHES[1] * len(result.routes)), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"{request.namespace}/{request.name}: {shown(request.start)} to {shown(request.end)} (UTC)")
    axes = figure.subplots(len(result.routes), 1, sharex=True, squeeze=False)
    legend: dict[str, Artist] = {}
    for told, (axis,) in zip(result.routes, axes, strict=True):
        legend |= _route(axis, told)
    figure.legend([*legend.values()], [*legend], loc="outside lower center", ncols=len(legend), fontsize=8)
    figure.savefig(file, format="png", dpi=110)


def _route(axis: Axes, told: Told) -> dict[str, Artist]:
    """Draw one route; the legend's entries."""
    points = told.outcome.points
    thin = points[:: max(1, len(points) // _MOST_POINTS)]
    times = [datetime.fromtimestamp(point.at, UTC) for point in thin]
    steps = [float("nan") if point.tokens_per_step is None else point.tokens_per_step for point in thin]
    axis.plot(times, steps, ".", markersize=3, color="tab:blue", label="tokens per step, by block")  # type: ignore[arg-type]
    if told.config.break_even is not None:
        axis.axhline(float(told.config.break_even), color="tab:red", linewidth=1, label="break-even")
    axis.set_ylabel("tokens per step")
    axis.set_title(_title(told), loc="left", fontsize=10)
    share = axis.twinx()
    off = [100.0 if point.pool == "baseline" else 0.0 for point in thin]
    share.fill_between(times, 0, off, step="post", alpha=0.15, color="tab:gray", label="policy: off")  # type: ignore[arg-type]
    done = [float("nan") if point.done_share is None else 100.0 * point.done_share for point in thin]
    share.plot(times, done, linewidth=0.8, color="tab:orange", label="really sent to speculation, %")  # type: ignore[arg-type]
    share.set_ylim(0, 105)
    share.set_ylabel("%")
    (lines, names), (more_lines, more_names) = (one.get_legend_handles_labels() for one in (axis, share))
    return dict(zip([*names, *more_names], [*lines, *more_lines], strict=True))


def _title(told: Told) -> str:
    one = told.outcome
    saved = ""
    if one.time_per_token is not None:
        known = one.time_per_token
        saved = (
            f"; {known.policy:.2f} ms a token ({known.saved_percent(known.always_on):+.1f} % saved of always on, "
            f"{known.saved_percent(known.always_off):+.1f} % of always off)"
        )
    return f"{one.route}: off for {one.off_percent} % of the time, {len(one.moves)} switch(es){saved}"
