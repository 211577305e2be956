"""Command `nnrt doctor`: diagnose why a daemon can't be found or used, or is slow, and say what to type."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nnrt_client.cli import connection_findings as connection
from nnrt_client.cli import daemon_findings as daemon
from nnrt_client.cli.discovery import default_names, nothing_found_message
from nnrt_client.cli.findings import Finding, Verdict, advise, ok, problem, run_checks
from nnrt_client.cli.host_findings import host_findings
from nnrt_client.cli.options import POSITIVE, identity_options, json_option, settings_with
from nnrt_client.cli.printing import print_json, print_page
from nnrt_client.resolvers.names import is_name
from nnrt_client.session.runtime import Runtime
from nnrt_client.settings import Settings, addresses_from_environment
from nnrt_hdi.text import escape_for_terminal

_STYLES = {Verdict.OK: "green", Verdict.ADVICE: "yellow", Verdict.PROBLEM: "bold red"}
_HOST, _NAMES = "this host", "names"
_SILENT = (
    "check that it is a daemon, that it is not stopped, and what its log says; nnrt-device report there gathers all of"
    " it"
)


@click.command()
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@identity_options
@json_option
@click.option("--timeout", type=POSITIVE, default=5.0, show_default=True, help="Seconds that a daemon gets to answer.")
def doctor(addresses: tuple[str, ...], as_json: bool, timeout: float) -> None:
    """Check this host, the daemons at ADDRESS and the network between; report problems and what to type.

    ADDRESS is HOST:PORT, unix:PATH, or a name such as dns:///HOST:PORT. Default: the addresses in NNRT_DEVICES, or else
    all devices found on this host and this network link. Exit code 1 if there is a problem.
    """
    given = addresses or addresses_from_environment()
    settings = settings_with(
        connect_timeout_s=timeout, query_timeout_s=timeout, request_timeout_s=2 * timeout, build_timeout_s=2 * timeout
    )
    with Runtime(given or default_names(settings), settings) as runtime:
        sections = {_HOST: host_findings(runtime.addresses, settings), _NAMES: _names(runtime, given, settings)}
        for address in runtime.addresses:
            sections[address] = _daemon_findings(runtime, address, settings)
    sections = {place: findings for place, findings in sections.items() if findings}
    if as_json:
        print_json([{"place": place, **each.describe()} for place, found in sections.items() for each in found])
    else:
        print_page(_page(sections))
    if _count(sections, Verdict.PROBLEM):
        raise SystemExit(1)


def _names(runtime: Runtime, given: Sequence[str], settings: Settings) -> list[Finding]:
    """Check whether the user's names lead to addresses, or, without names, whether any were found."""
    if not given and runtime.addresses:
        return [ok(_NAMES, f"found by themselves: {', '.join(runtime.addresses)}")]
    if not given:
        return [advise(_NAMES, "none is given", nothing_found_message(settings))]
    failures, advice = runtime._members.failures(), "check the spelling, and what is behind it: docs/guides/fleet.md"
    return [
        problem(name, failures[name], advice)
        if name in failures
        else ok(name, ", ".join(runtime._members.behind(name)))
        for name in filter(is_name, given)
    ]


def _daemon_findings(runtime: Runtime, address: str, settings: Settings) -> list[Finding]:
    """Check the connection to a daemon and, if it can be reached, the daemon."""
    findings = run_checks({"connection": partial(connection.check_connection, address, settings)})
    if _are_good(findings) and not address.startswith("unix:"):
        findings += run_checks({"TLS": partial(connection.check_encryption, address, settings)})
    if not _are_good(findings):
        return findings
    began = time.perf_counter()
    look = runtime._look(address)
    device = look.device
    if device is None:
        found, _, advice = look.why.partition("; ")
        return [*findings, problem("session", found, advice or _SILENT)]
    findings += [ok("session", f"opened in {(time.perf_counter() - began) * 1e3:.0f} ms")]
    findings += run_checks(
        {
            "daemon": partial(daemon.check_version, device),
            "state": partial(daemon.check_state, look),
            "canary": partial(daemon.check_canary, device),
        }
    )
    if not look.why:
        findings += run_checks(
            {
                "round trip": partial(connection.check_round_trip, device),
                "side channel": partial(connection.check_side_channel, device),
                "bandwidth": partial(connection.check_bandwidth, device),
                "trial run": partial(daemon.check_trial, device),
            }
        )
    return findings + run_checks({"counters": partial(daemon.check_counters, device)})


def _are_good(findings: Sequence[Finding]) -> bool:
    return all(each.verdict is not Verdict.PROBLEM for each in findings)


def _page(sections: Mapping[str, Sequence[Finding]]) -> RenderableType:
    parts: list[Any] = []
    for place, findings in sections.items():
        table = Table(box=None, padding=(0, 1), pad_edge=False, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for each in findings:
            verdict = Text(each.verdict.value, _STYLES[each.verdict])
            table.add_row(Text(f"  {escape_for_terminal(each.about)}"), verdict, _finding_text(each))
        parts += [Text(escape_for_terminal(place), "bold"), table, ""]
    problems, advice = (_count(sections, verdict) for verdict in (Verdict.PROBLEM, Verdict.ADVICE))
    summary = f"{problems} problem{'s' * (problems != 1)}, {advice} piece{'s' * (advice != 1)} of advice"
    return Group(*parts, Text(summary, _STYLES[Verdict.PROBLEM] if problems else ""))


def _count(sections: Mapping[str, Sequence[Finding]], verdict: Verdict) -> int:
    return sum(each.verdict is verdict for found in sections.values() for each in found)


def _finding_text(finding: Finding) -> RenderableType:
    found = Text(escape_for_terminal(finding.found))
    return Group(found, Text(f"→ {escape_for_terminal(finding.advice)}", "cyan")) if finding.advice else found
