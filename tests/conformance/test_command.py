"""`nnrt conformance` on daemons that are right, wrong, and unwilling."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import warm
from access.conftest import Fleet, fleet, make_fleet
from cli.command import NOBODY, nnrt, refused
from conftest import StartDaemon
from daemon_process import DaemonProcess
from part import part
from waiting import until

from nnrt_client import Runtime
from nnrt_client.cli.conformance import LEVELS
from nnrt_client.conformance.case import Level
from nnrt_client.conformance.kit import trials

pytestmark = pytest.mark.slow

__all__ = ["fleet", "make_fleet"]  # Fixtures.

BACKENDS = "reference", "onnxruntime"
# Of one sample, in every data type.
SUBTRACTIONS = "operators/SUB_FUSION-0*"
_DEADLINE_S = 60


@pytest.fixture
def wrong_daemon(start_daemon: StartDaemon) -> DaemonProcess:
    """It adds where it is to subtract."""
    return start_daemon("--backend", "wrong", "--option", "operator=SUB_FUSION", "--option", "as=ADD_FUSION")


def told(file: Path, *arguments: object, exit_code: int) -> dict[str, Any]:
    """What --json writes."""
    result = nnrt("conformance", *arguments, "--json", file)
    assert result.exit_code == exit_code, result.output
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def verdicts(document: dict[str, Any]) -> set[str]:
    return {result["verdict"] for result in document["results"]}


def test_right_answers(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    document = told(tmp_path / "a.json", shared_daemon.address, "--only", SUBTRACTIONS, exit_code=0)
    assert verdicts(document) == {"right"}
    assert document["operators"].keys() == {"SUB_FUSION"}
    assert "FLOAT32" in document["operators"]["SUB_FUSION"]


def test_the_contract_level_of_the_reference(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    document = told(tmp_path / "a.json", shared_daemon.address, "--level", "contract", exit_code=0)
    assert {(each["name"], each["verdict"]) for each in document["results"] if each["verdict"] != "right"} == {
        ("contract/takes_performance_modes", "refused")  # It has none.
    }


@pytest.mark.parametrize(
    "level", [Level.CONCURRENCY, Level.SEQUENCES, Level.CACHES, Level.DEATH], ids=lambda level: level.value
)
def test_levels_that_are_code(
    each_daemon: DaemonProcess, onnxruntime_daemon: DaemonProcess, tmp_path: Path, level: Level
) -> None:
    """Of what the levels try a part, but each thing with one backend at least."""
    backend = "onnxruntime" if each_daemon is onnxruntime_daemon else "reference"
    tried = [(trial.name, each) for trial in trials([level]) for each in BACKENDS]
    names = [name for name, each in part(tried, "/".join, lambda one: one[:1]) if each == backend]
    only = [word for name in names for word in ("--only", name)]
    document = told(tmp_path / "a.json", each_daemon.address, *only, exit_code=0)
    assert verdicts(document) == {"right"}
    assert len(document["results"]) == len(names)


def test_wrong_answers(wrong_daemon: DaemonProcess, tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    only = ("--only", SUBTRACTIONS, "--only", "operators/ADD_FUSION-0*")
    document = told(tmp_path / "a.json", wrong_daemon.address, *only, "--junit", junit, exit_code=1)
    found = {(each["node_types"][0], each["verdict"]) for each in document["results"]}
    assert found >= {("SUB_FUSION", "wrong"), ("ADD_FUSION", "right")}
    assert ("ADD_FUSION", "wrong") not in found
    (first, *_) = (each for each in document["results"] if each["verdict"] == "wrong")
    assert first["tolerance"] < (first["error"] or np.inf)
    assert "in place of" in first["reason"]
    (suite,) = ElementTree.parse(junit).getroot()  # noqa: S314  # Our own.
    failures = suite.findall("testcase/failure")
    assert (
        int(suite.attrib["failures"])
        == len(failures)
        == sum(each["verdict"] == "wrong" for each in document["results"])
    )
    assert int(suite.attrib["tests"]) == len(document["results"])
    assert first["look_at"].startswith("look at docs/reference/operators.md")


def test_the_first_fault_is_kept_and_repeated(wrong_daemon: DaemonProcess, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    result = nnrt("conformance", wrong_daemon.address, "--only", SUBTRACTIONS, "--keep", kept)
    assert result.exit_code == 1
    (place,) = kept.iterdir()  # One for the operator.
    assert f"kept: {place}" in result.stdout
    assert "look at docs/reference/operators.md" in " ".join(result.stdout.split())
    assert "look at docs/reference/operators.md" in (place / "fault.txt").read_text()
    again, run = [
        shlex.split(line) for line in (place / "fault.txt").read_text().splitlines() if line.startswith("nnrt ")
    ]
    assert nnrt(*again[1:]).exit_code == 1
    assert nnrt(*run[1:]).exit_code == 0
    with np.load(place / "right-1.npz") as right, np.load(place / "inputs-1.npz") as inputs:
        a, b = inputs.values()
        assert np.allclose(a - b, next(iter(right.values())))


def test_a_place_where_nothing_can_be_kept(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    """It is told before anything is tried."""
    (tmp_path / "file").touch()
    result = nnrt("conformance", shared_daemon.address, "--only", SUBTRACTIONS, "--keep", tmp_path / "file" / "kept")
    assert (result.exit_code, result.stdout) == (2, "")
    assert str(tmp_path / "file") in result.stderr


def test_a_fault_that_cannot_be_kept_takes_no_report_away(wrong_daemon: DaemonProcess, tmp_path: Path) -> None:
    kept, report = tmp_path / "kept", tmp_path / "a.json"
    kept.mkdir()
    (kept / f"{SUBTRACTIONS.replace('/', '-').rstrip('*')}-float32").touch()
    result = nnrt("conformance", wrong_daemon.address, "--only", SUBTRACTIONS, "--keep", kept, "--json", report)
    assert result.exit_code == 2
    assert str(kept) in result.stderr
    assert "reached: none" in result.stdout
    assert json.loads(report.read_text())["results"]


def test_a_reader_who_goes_takes_no_report_away(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    report, only = tmp_path / "a.json", ("--only", "contract/describes_itself")
    command = [sys.executable, "-m", "nnrt_client", "conformance", shared_daemon.address, *only, "--json", str(report)]
    with warm.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.wait(_DEADLINE_S)
    assert json.loads(report.read_text())["results"]


def test_refusals_are_no_faults(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon("--backend", "nothing")
    document = told(tmp_path / "a.json", daemon.address, "--only", SUBTRACTIONS, exit_code=0)
    assert verdicts(document) == {"refused"}
    assert {each["reason"] for each in document["results"]} >= {"this backend runs nothing"}
    assert not document["reached"]["full"]


def test_a_backend_that_gives_its_input_back_is_found_out(cached_daemon: DaemonProcess, tmp_path: Path) -> None:
    document = told(tmp_path / "a.json", cached_daemon.address, "--level", "contract", exit_code=1)
    wrong = {each["name"] for each in document["results"] if each["verdict"] == "wrong"}
    assert "contract/computes_small_models" in wrong
    assert "contract/refuses_unknown_extensions" in wrong


def test_the_first_fault_may_be_the_last_trial(wrong_daemon: DaemonProcess, tmp_path: Path) -> None:
    document = told(tmp_path / "a.json", wrong_daemon.address, "--only", SUBTRACTIONS, "--fail-fast", exit_code=1)
    assert [each["verdict"] for each in document["results"]] == ["wrong"]
    assert document["cut_short"]


def test_a_name_that_leads_to_the_address(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    (tmp_path / "devices").write_text(f"{shared_daemon.address}\n")
    result = nnrt("conformance", f"file://{tmp_path / 'devices'}", "--only", "contract/describes_itself")
    assert result.exit_code == 0, result.output


def test_who_the_kit_is_to_the_daemon(start_daemon: StartDaemon, fleet: Fleet) -> None:
    daemon, settings = start_daemon(*fleet.client_flags), fleet.settings("alice")
    only = ("--only", "contract/describes_itself")
    who = ("--tls-ca", settings.tls_ca, "--tls-cert", settings.tls_cert, "--tls-key", settings.tls_key)
    assert nnrt("conformance", daemon.address, *only, *who).exit_code == 0
    refused(2, "conformance", daemon.address, *only, *who[:2])


def test_names_are_listed_without_a_daemon() -> None:
    names = nnrt("conformance", NOBODY, "--list").stdout.splitlines()
    assert len(set(names)) == len(names)
    quick = nnrt("conformance", NOBODY, "--list", "--quick").stdout.splitlines()
    assert 0 < len(quick) < len(names) / 4
    assert set(quick) < set(names)
    assert nnrt("conformance", NOBODY, "--list", "--only", names[-1]).stdout.splitlines() == [names[-1]]
    contract = nnrt("conformance", NOBODY, "--list", "--level", "contract").stdout.splitlines()
    assert {name.split("/")[0] for name in contract} == {"contract"}


def test_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "devices").touch()
    name = f"file://{tmp_path / 'devices'}"
    assert f"{name}: no address is behind it" in refused(2, "conformance", name, "--level", "contract")
    assert "no trial matches" in refused(2, "conformance", NOBODY, "--only", "operators/NONE")
    assert "no daemon answers" in refused(2, "conformance", NOBODY, "--level", "contract")
    nowhere = tmp_path / "none" / "a.json"
    assert "there is no such directory" in refused(2, "conformance", NOBODY, "--json", nowhere)


@pytest.mark.parametrize("role", ["run", "compile"])
def test_a_role_that_is_too_low(start_daemon: StartDaemon, tmp_path: Path, role: str) -> None:
    """It is no fault of the daemon's, so nothing is tried."""
    (tmp_path / "access").write_text(f"tester {role} user {os.getuid()}\n")
    daemon = start_daemon("--access", str(tmp_path / "access"), listen=f"unix:{tmp_path}/s")
    said = refused(2, "conformance", daemon.address, "--quick")
    assert f"the kit compiles and restores models: tester has the role '{role}', and" in said
    assert "needs 'restore'" in said


def test_the_levels_are_those_of_the_kit() -> None:
    assert tuple(level.value for level in Level) == LEVELS


def test_ctrl_c_gives_the_report_so_far(start_daemon: StartDaemon, tmp_path: Path) -> None:
    log, report, daemon = tmp_path / "log", tmp_path / "a.json", start_daemon()
    command = [sys.executable, "-m", "nnrt_client", "conformance", daemon.address, "--level", "operators"]
    with log.open("wb") as out, Runtime([daemon.address]) as runtime:
        process = warm.Popen([*command, "--json", report], stdout=out, stderr=out)
        try:
            until(lambda: sum(each.runs.get("done", 0) for each in runtime.device().counters().identities))
            process.send_signal(signal.SIGINT)
            assert process.wait(_DEADLINE_S) == 130
        finally:
            process.kill()
            process.wait()
    document = json.loads(report.read_text())
    assert document["cut_short"] == "it was interrupted"
    assert "it was interrupted" in log.read_text()
