"""Files of deploy/ that name what is elsewhere: the image's sources, options of commands, ports."""

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import click
import pytest
import yaml
from daemon_process import DaemonProcess
from source_files import ROOT

from nnrt_client.cli import main as nnrt
from nnrt_device_service.cli import main as nnrt_device

DEPLOY = ROOT / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
KSERVE = list(yaml.safe_load_all((DEPLOY / "kserve" / "serving-runtime.yaml").read_text()))
COMMANDS = {"nnrt": nnrt, "nnrt-device": nnrt_device}


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the command of each container."""
    for name, service in COMPOSE.items():
        yield f"compose {name}", service["command"]
    for container in KSERVE[0]["spec"]["containers"]:
        yield f"KServe {container['name']}", [*container["command"], *container["args"]]


COMMAND_LINES = dict(commands())


@pytest.mark.parametrize("line", COMMAND_LINES.values(), ids=COMMAND_LINES.keys())
def test_commands_have_these_options(line: list[str]) -> None:
    program, name, *arguments = line
    command = COMMANDS[program].get_command(click.Context(COMMANDS[program]), name)
    if (program, name) == ("nnrt", "serve") and command is None:
        pytest.skip("needs the command `nnrt serve`")
    assert command is not None
    known = {option for parameter in command.params for option in parameter.opts}
    assert {argument.partition("=")[0] for argument in arguments if argument.startswith("-")} <= known


def options_of(line: list[str]) -> dict[str, str]:
    return dict(argument.lstrip("-").split("=", 1) for argument in line if "=" in argument)


def test_compose_connects_the_server_to_its_daemons() -> None:
    daemons = {name for name, service in COMPOSE.items() if service["command"][0] == "nnrt-device"}
    serve = COMPOSE["serve"]
    port = options_of(COMPOSE["device-0"]["command"])["listen"].rpartition(":")[2]
    asked = {argument for argument in serve["command"] if argument.startswith("--device=")}
    assert asked == {f"--device={name}:{port}" for name in daemons}
    assert serve["depends_on"].keys() == daemons
    assert {COMPOSE[name]["environment"]["NNRT_DEVICE_NAME"] for name in daemons} == daemons
    assert all(COMPOSE[name]["networks"] == ["devices"] for name in daemons)  # Which is internal.
    options = options_of(serve["command"])
    published = [entry.rsplit(":", 2)[1] for entry in serve["ports"]]
    assert published == [options[name].rpartition(":")[2] for name in ("http", "grpc", "metrics")]
    assert serve["environment"]["NNRT_HEALTH"].rpartition(":")[2] == options["grpc"].rpartition(":")[2]


def test_kserve_asks_the_ports_that_it_is_given() -> None:
    runtime, service = KSERVE
    server, device = runtime["spec"]["containers"]
    options = options_of([*server["args"], *device["args"]])
    http = int(options["http"].rpartition(":")[2])
    assert [port["containerPort"] for port in server["ports"]] == [http]
    assert {server[probe]["httpGet"]["port"] for probe in ("readinessProbe", "livenessProbe")} == {http}
    assert options["device"] == options["listen"]
    metrics = runtime["spec"]["annotations"]["prometheus.kserve.io/port"]
    assert options["metrics"].rpartition(":")[2] == metrics
    model = service["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    assert model["modelFormat"]["name"] in [each["name"] for each in runtime["spec"]["supportedModelFormats"]]


def copied() -> set[str]:
    lines = re.findall(r"^COPY (?!--)(.*)", CONTAINERFILE, re.MULTILINE)
    return {source for line in lines for source in line.split()[:-1]}


def test_copies_of_the_image_are_of_paths_that_there_are() -> None:
    assert {"pyproject.toml", "nnrt_hdi", "backends"} <= copied()
    for source in copied():
        assert (ROOT / source).exists(), source


def test_the_builder_gets_what_is_copied_and_no_more() -> None:
    lines = (ROOT / ".containerignore").read_text().splitlines()
    assert {line.removeprefix("!") for line in lines if line.startswith("!")} == copied()
    assert lines.index("*") < min(index for index, line in enumerate(lines) if line.startswith("!"))


def test_extras_of_the_image_exist() -> None:
    (given,) = re.findall(r"^ARG EXTRAS=(.*)", CONTAINERFILE, re.MULTILINE)
    extras = re.findall(r"^([a-z0-9]+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert set(given.split(",")) <= {*extras, "serving"}


def health(address: str) -> Any:
    """Run the image's health check."""
    command = [sys.executable, str(DEPLOY / "healthy.py")]
    return subprocess.run(command, env={"NNRT_HEALTH": address}, capture_output=True, text=True, timeout=60)


def test_the_health_check_tells_a_daemon_from_none() -> None:
    daemon = DaemonProcess("--health-listen", "127.0.0.1:0")
    try:
        (line,) = re.findall(r"health service on (\S+)", daemon.log())
        assert health(line).returncode == 0
    finally:
        daemon.kill()
    ended = health(line)
    assert (ended.returncode, line in ended.stderr) == (1, True)
