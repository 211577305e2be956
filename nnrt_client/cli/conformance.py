"""`nnrt conformance`: whether a daemon follows the contract and computes right answers."""

from pathlib import Path

import click

from nnrt_client.cli.failures import exiting_with
from nnrt_client.cli.options import POSITIVE, Number, identity_options, settings_with
from nnrt_hdi.files import container

# As in `nnrt_client.conformance.case`, which takes long to import.
LEVELS = ("contract", "operators", "values", "quantized", "float16", "graphs", "concurrency", "caches", "death")
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
    help="Try this level. May be repeated; all of them if none is given.",
)
@click.option(
    "--only", multiple=True, metavar="PATTERN", help="Try what is named so: * stands for any text. May be repeated."
)
@click.option("--quick", is_flag=True, help="Try one case or a few of each operator, in under a minute.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first fault.")
@click.option("--list", "lists", is_flag=True, help="Print the names of what would be tried, and ask no daemon.")
@click.option("--json", "json_file", type=_FILE, help="Write all outcomes as JSON.")
@click.option("--junit", "junit_file", type=_FILE, help="Write all outcomes as JUnit's XML.")
@click.option(
    "--keep",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the first fault of each operator there: model, inputs, right answers, and the commands that repeat it.",
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
    help="Seconds that a daemon which has ended gets to be started again by whoever looks after it.",
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
    """Try whether the daemon at ADDRESS follows the contract and computes right answers.

    ADDRESS is HOST:PORT, unix:PATH, or a name such as dns:///HOST:PORT. Exit code 1 if an answer is wrong, the daemon
    ends, or it breaks the contract; a refusal is no fault. Exit code 2 if nothing can be tried, for example without a
    daemon, or if a file can't be written.
    """
    from nnrt_client.cli.conformance_run import Files, list_trials, try_all

    if lists:
        list_trials(levels, only, quick=quick)
        return
    files = Files(json_file, junit_file)
    # A busy daemon is late; taking it for dead would be a false alarm.
    patience = {f"{bound}_timeout_s": max(timeout / 4, 5.0) for bound in ("connect", "heartbeat", "query")}
    with exiting_with(_NOT_TRIED):
        for file in filter(None, (json_file, junit_file)):
            container.require_place(file)
        settings = settings_with(build_timeout_s=timeout, run_timeout_s=timeout, request_timeout_s=timeout, **patience)
        code = try_all(address, settings, return_s, levels, only, files, directory, quick=quick, fail_fast=fail_fast)
    if code:
        raise SystemExit(code)
