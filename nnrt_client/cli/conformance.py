"""Command `nnrt conformance`: test whether a daemon keeps the contract and computes right answers."""

from pathlib import Path

import click

from nnrt_client.cli.failures import exit_on_failure
from nnrt_client.cli.options import POSITIVE, Number, identity_options, settings_with
from nnrt_hdi.files import container

# Copy of the names in `nnrt_client.conformance.case.Level`, because that module with its many cases imports slowly.
LEVELS = (
    "contract",
    "operators",
    "values",
    "quantized",
    "float16",
    "graphs",
    "concurrency",
    "sequences",
    "caches",
    "death",
)
_NOT_TRIED = 2
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("address")
@identity_options
@click.option(
    "--level",
    "levels",
    type=click.Choice(LEVELS),
    multiple=True,
    help="Test this level. May be repeated. [default: all levels]",
)
@click.option(
    "--only", multiple=True, metavar="PATTERN", help="Run trials whose names match; * is any text. May be repeated."
)
@click.option("--quick", is_flag=True, help="Run one or a few cases of each operator, in under a minute.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first fault.")
@click.option("--list", "lists", is_flag=True, help="Print the names of the trials and exit; no daemon is asked.")
@click.option("--json", "json_file", type=_FILE, help="Write all outcomes to this file as JSON.")
@click.option("--junit", "junit_file", type=_FILE, help="Write all outcomes to this file as JUnit XML.")
@click.option(
    "--keep",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory for the first fault of each operator: model, inputs, right answers, and commands to reproduce it.",
)
@click.option(
    "--timeout", type=POSITIVE, default=60.0, show_default=True, help="Seconds that a run or a build may take."
)
@click.option(
    "--return",
    "return_s",
    type=Number(min=0),
    default=10.0,
    show_default=True,
    help="Seconds that a supervisor gets to restart a daemon that has ended.",
)
def conformance(
    address: str,
    levels: tuple[str, ...],
    only: tuple[str, ...],
    quick: bool,
    fail_fast: bool,
    lists: bool,
    json_file: Path | None,
    junit_file: Path | None,
    directory: Path | None,
    timeout: float,
    return_s: float,
) -> None:
    """Test whether the daemon at ADDRESS keeps the contract and computes right answers.

    ADDRESS is HOST:PORT, unix:PATH, or a name such as dns:///HOST:PORT. Exit code 1 if an answer is wrong, the daemon
    ends, or it breaks the contract; a refusal is no fault. Exit code 2 if nothing can be tested because there is no
    daemon or a file can't be written.
    """
    from nnrt_client.cli.conformance_run import Files, list_trials, try_all

    if lists:
        list_trials(levels, only, quick=quick)
        return
    files = Files(json_file, junit_file)
    # A busy daemon answers late; shorter timeouts would report it as dead.
    patience = {f"{bound}_timeout_s": max(timeout / 4, 5.0) for bound in ("connect", "heartbeat", "query")}
    with exit_on_failure(_NOT_TRIED):
        for file in filter(None, (json_file, junit_file)):
            container.require_place(file)
        settings = settings_with(build_timeout_s=timeout, run_timeout_s=timeout, request_timeout_s=timeout, **patience)
        code = try_all(address, settings, return_s, levels, only, files, directory, quick=quick, fail_fast=fail_fast)
    if code:
        raise SystemExit(code)
