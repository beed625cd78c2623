"""Commands of the group `quaestor ttl`: fit lifetimes to a trace or the history, try, compare and apply them, and undo that."""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quaestor.cli import extras
from quaestor.cli.command_settings import Deployment, LayerUrl, command_settings
from quaestor.cli.plain_text import line
from quaestor.errors import ConfigurationError

if TYPE_CHECKING:
    from quaestor.simulation.fitting import Fit
    from quaestor.simulation.simulate import System
    from quaestor.simulation.workload import Workload
    from quaestor.statistics.learning import Learned
    from quaestor.ttl.parameters import TtlParameters, Tuning
    from quaestor.ttl.published import Publication, PublishedParameters

commands = typer.Typer(
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Lifetimes: learned from a trace or the history, tried, applied, undone.",
)
"""Commands of the group `quaestor ttl`."""

TraceFile = Annotated[Path, typer.Argument(metavar="TRACE", help="Trace recorded with the setting trace_file.")]
Clients = Annotated[int, typer.Option(min=1, help="Browsers that the requests are spread over.")]
Delta = Annotated[
    float | None,
    typer.Option(
        min=0.1, help="Seconds after which browsers fetch the Cache Sketch again; default: setting sketch_delta_s."
    ),
]
Out = Annotated[Path, typer.Option(help="Where the parameters are written.")]
StaleAtMost = Annotated[
    float, typer.Option(min=0.0, max=1.0, help="Share of the requests that may be answered with something older.")
]
SEEDS = 5


@commands.command("fit")
def fit(
    trace: TraceFile,
    out: Out,
    stale_at_most: StaleAtMost = 0.01,
    clients: Clients = 100,
    delta: Delta = None,
) -> None:
    """Fit quantile and exponent of each kind of result to a trace: most fresh hits in browsers, at that staleness. A third of the
    time is held back. Parameters that are no better there than the present ones are not written."""
    workload = _workload(trace, clients, seed=0)
    from quaestor.simulation.fitting import fitted

    parameters, fits = fitted(
        workload,
        base=_own(),
        stale_at_most=stale_at_most,
        system=_system(delta),
        on_fit=lambda fit: _show_fit(fit, fit.confirmed),
    )
    if not fits:
        raise ConfigurationError(f"{trace} has too few reads of any kind to fit anything to: record for longer")
    if not parameters.kinds:
        raise ConfigurationError(
            f"nothing is written to {out}: the time held back confirms no other parameters; the present ones stay. Record for "
            "longer, or allow more with --stale-at-most"
        )
    out.write_text(parameters.encoded() + "\n")
    print(f"written to {out}; try it: quaestor ttl compare {trace} {out}")


@commands.command("learn")
def learn(
    directory: Annotated[Path, typer.Argument(help="Directory of `quaestor statistics run`.")],
    out: Out,
    stale_at_most: StaleAtMost = 0.01,
    clients: Clients = 100,
    delta: Delta = None,
    master: Annotated[str | None, typer.Option(help="Spark's master; default: local[2].")] = None,
    on: Annotated[
        int | None,
        typer.Option(help="Number of the publication that is learned on, and apply it at once; see `history`."),
    ] = None,
    redis_url: LayerUrl = None,
    deployment: Deployment = None,
    by: Annotated[str | None, typer.Option(help="Who applies it; default: the user's name.")] = None,
) -> None:
    """Learn quantile and exponent of each kind of result from the history of the statistics job, on Spark. A third of the time is
    held back. Parameters that are no better there than the present ones are not taken."""
    extras.require("simulation", "the simulation of lifetimes")
    extras.require("spark", "learning")
    from quaestor.statistics import learning
    from quaestor.statistics.session import DEFAULT_MASTER
    from quaestor.ttl.parameters import TtlParameters

    present = TtlParameters(default=_own())
    if on is not None:
        newest = _published(redis_url, deployment)[0].history()[-1]
        if newest.number != on:
            raise ConfigurationError(f"number {newest.number} counts, not {on}: see `quaestor ttl history`")
        present = newest.parameters or present
    if not out.absolute().parent.is_dir():
        raise ConfigurationError(f"{out} cannot be written: {out.absolute().parent} is no folder")
    parameters, fits = learning.learn(
        directory, master=master or DEFAULT_MASTER, present=present, stale_at_most=stale_at_most, clients=clients,
        system=_system(delta), ignored=command_settings().store.control_namespace,
        progress=lambda done, of: print(f"{done} of {of} tasks of the present stage", flush=True),
    )  # fmt: skip
    for learned in fits:
        _show_fit(learned, learned.tuning == parameters.of(learned.kind) != present.of(learned.kind))
    if parameters == present:
        print("nothing does better than what is there: nothing is written or applied")
        return
    out.write_text(parameters.encoded() + "\n")
    print(f"written to {out}")
    if on is not None:
        published, now_ms = _published(redis_url, deployment)
        _show(published.publish(parameters, base=on, by=by or getpass.getuser(), now_ms=now_ms))


@commands.command("simulate")
def simulate(
    trace: TraceFile,
    parameters: Annotated[Path | None, typer.Argument(help="Default: the parameters of the settings.")] = None,
    clients: Clients = 100,
    delta: Delta = None,
) -> None:
    """Show the results of these parameters on a trace: a JSON object, each figure with half of its 95 % interval."""
    print(json.dumps(_compared(trace, [parameters] if parameters else [], clients, delta)))


@commands.command("compare")
def compare(
    trace: TraceFile,
    parameters: Annotated[list[Path], typer.Argument(metavar="PARAMETERS...")],
    clients: Clients = 100,
    delta: Delta = None,
) -> None:
    """Compare parameters with those of the settings, on a trace. A star: no others are better in every respect."""
    figures = _compared(trace, list(parameters), clients, delta)
    from quaestor.simulation.comparison import pareto

    front = pareto(figures)
    for name, intervals in figures.items():
        shown = ", ".join(
            f"{figure} {intervals[figure][0]:.4g} ± {intervals[figure][1]:.2g}"
            for figure in ("browser", "browser_fresh", "stale", "purges_hz", "origin_ms", "p50_ms", "p99_ms")
        )
        print(f"{'*' if name in front else ' '} {name}: {shown}")


@commands.command("apply")
def apply(
    parameters: Annotated[Path, typer.Argument(help="File that `fit` or `learn` wrote.")],
    on: Annotated[int, typer.Option(help="Number of the publication that the decision is based on; see `history`.")],
    redis_url: LayerUrl = None,
    deployment: Deployment = None,
    by: Annotated[str | None, typer.Option(help="Who applies it; default: the user's name.")] = None,
    share: Annotated[
        int | None,
        typer.Option(min=1, max=50, help="For so many percent of the results first, as a canary; needs --trace."),
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="Trace that the canary's figures are predicted from.")] = None,
    after: Annotated[int, typer.Option(help="Requests of the canary's results before it may be promoted.")] = 2_000,
    hold: Annotated[float, typer.Option(help="Seconds that it has to be worse than predicted to be rolled back.")] = 60,
    promote: Annotated[
        bool, typer.Option("--promote", help="Promote it without being asked, if nothing is worse.")
    ] = False,
    stale_at_most: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="Guard of the canary: it ends at once if more of its requests may be stale."
        ),
    ] = None,
    hits_at_least: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="Guard of the canary: it ends at once if copies can answer fewer requests."
        ),
    ] = None,
) -> None:
    """Publish parameters: every app process uses them within seconds, without a restart. With --share they apply to a part of the
    results, and are rolled back if that part is worse than predicted, or breaks a guard."""
    from quaestor.ttl.canary_guards import Guards

    read = _parameters(parameters)
    guards = Guards(stale_at_most=stale_at_most, hits_at_least=hits_at_least)
    if share is None:
        if trace is not None or promote or guards:
            raise ConfigurationError(
                "--trace, --promote, --stale-at-most and --hits-at-least belong to a canary: say its share with --share, in "
                "percent"
            )
        published, now_ms = _published(redis_url, deployment)
        _show(published.publish(read, base=on, by=by or getpass.getuser(), now_ms=now_ms))
        return
    if trace is None:
        raise ConfigurationError(
            "a canary is judged by what a trace predicts: name one with --trace (setting trace_file)"
        )
    published, now_ms = _published(redis_url, deployment)
    from quaestor.cli.canary_commands import Terms, prepared, shown
    from quaestor.ttl.parameters import TtlParameters

    newest = published.history()[-1]
    present = newest.parameters or TtlParameters(default=_own())
    terms = Terms(share=share, after=after, hold_s=hold, promote=promote, guards=guards)
    canary = prepared(trace, read, present, terms)
    _show(published.begin_canary(canary, base=on, by=by or getpass.getuser(), now_ms=now_ms))
    print(shown(canary))


@commands.command("canary")
def canary(redis_url: LayerUrl = None, deployment: Deployment = None) -> None:
    """Show the canary's figures beside the predicted ones, over all processes."""
    from quaestor.cli.canary_commands import judgement

    newest = _published(redis_url, deployment)[0].history()[-1]
    if newest.canary is None:
        why = f" ({newest.why})" if newest.why else ""
        print(line(f"there is no canary; {newest.number} counts for all results{why}"))
        return
    judged = judgement(command_settings(redis_url=redis_url, deployment=deployment), newest)
    share = f"{newest.canary.share} % of the results"
    print(line(f"{newest.number} by {newest.by}: {share}, {judged.requests} requests: {judged.verdict}"))
    for figure in (*judged.figures, *judged.guards):
        print(f"  {figure}")


@commands.command("promote")
def promote(
    redis_url: LayerUrl = None,
    deployment: Deployment = None,
    by: Annotated[str | None, typer.Option(help="Who does it; default: the user's name.")] = None,
) -> None:
    """Publish the canary's parameters for all results, if none of its figures is worse than predicted, and enough was seen."""
    from quaestor.cli.canary_commands import judgement
    from quaestor.ttl.canary_watch import promotable

    published, now_ms = _published(redis_url, deployment)
    newest = published.history()[-1]
    settings = command_settings(redis_url=redis_url, deployment=deployment)
    promoted = promotable(newest, None if newest.canary is None else judgement(settings, newest))
    _show(published.publish(promoted, base=newest.number, by=by or getpass.getuser(), now_ms=now_ms))


@commands.command("rollback")
def rollback(
    redis_url: LayerUrl = None,
    deployment: Deployment = None,
    by: Annotated[str | None, typer.Option(help="Who does it; default: the user's name.")] = None,
) -> None:
    """Publish the parameters that counted before the newest publication. A canary ends by this."""
    published, now_ms = _published(redis_url, deployment)
    _show(published.rollback(by=by or getpass.getuser(), now_ms=now_ms))


@commands.command("history")
def history(redis_url: LayerUrl = None, deployment: Deployment = None) -> None:
    """Show what was published, when and by whom; the last publication counts."""
    for publication in _published(redis_url, deployment)[0].history():
        _show(publication)


def _workload(trace: Path, clients: int, *, seed: int) -> Workload:
    extras.require("simulation", "the simulation of lifetimes")
    from quaestor.cli.recorded_traces import read_trace
    from quaestor.simulation.workload import recorded

    return recorded(read_trace(trace), clients=clients, seed=seed)


def _system(delta_s: float | None) -> System:
    """Simulated system. Browsers fetch the Cache Sketch at the given interval, or else at that of the settings."""
    from quaestor.simulation.simulate import System

    return System(delta_s=command_settings().sketch.sketch_delta_s if delta_s is None else delta_s)


def _show_fit(fit: Fit | Learned, taken: bool) -> None:
    text = (
        f"{fit.kind}: {fit.reads} reads, {fit.tuning.estimator}, quantile {fit.tuning.quantile:g}, exponent "
        f"{fit.tuning.exponent:g}; held back: fresh hits in browsers {fit.before.browser_fresh:.3f} -> "
        f"{fit.after.browser_fresh:.3f}, stale {fit.before.stale:.4f} -> {fit.after.stale:.4f}, purges a second "
        f"{fit.before.purges_hz:.2f} -> {fit.after.purges_hz:.2f}: {'taken' if taken else 'the present ones stay'}"
    )
    print(line(text), flush=True)


def _compared(
    trace: Path, files: list[Path], clients: int, delta_s: float | None
) -> dict[str, dict[str, tuple[float, float]]]:
    extras.require("simulation", "the simulation of lifetimes")
    from quaestor.cli.recorded_traces import read_trace
    from quaestor.simulation.comparison import compared
    from quaestor.simulation.workload import recorded
    from quaestor.ttl.parameters import TtlParameters

    candidates = {"settings": TtlParameters(default=_own())} | {str(path): _parameters(path) for path in files}
    known = read_trace(trace)
    workloads = [recorded(known, clients=clients, seed=seed) for seed in range(SEEDS)]
    return compared(workloads, candidates, _system(delta_s))


def _own() -> Tuning:
    """Parameters of the settings."""
    from quaestor.ttl.parameters import tuning_of

    return tuning_of(command_settings().lifetimes)


def _parameters(path: Path) -> TtlParameters:
    from quaestor.ttl.parameters import decoded

    try:
        return decoded(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"the parameters {path} cannot be read: {error}") from error


def _published(redis_url: str | None, deployment: str | None) -> tuple[PublishedParameters, int]:
    from quaestor.clock import system_clock
    from quaestor.event_layer.connecting import event_layer
    from quaestor.ttl.published import PublishedParameters

    settings = command_settings(redis_url=redis_url, deployment=deployment)
    if settings.redis_url is None:
        raise ConfigurationError("parameters are published in Redis: say where it is with --redis-url or REDIS_URL")
    layer = event_layer(settings.redis_url, settings.deployment)
    return PublishedParameters(layer, scope=settings.scope), system_clock()


def _show(publication: Publication) -> None:
    what = "as the settings say" if publication.parameters is None else publication.parameters.encoded()
    if publication.canary is not None:
        what += f"; {publication.canary.share} % of the results: {publication.canary.parameters.encoded()}"
    why = f" ({publication.why})" if publication.why else ""
    print(line(f"{publication.number} at {publication.at_ms} by {publication.by or '-'}: {what}{why}"))
