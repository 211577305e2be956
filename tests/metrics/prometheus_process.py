"""Prometheus as a process, if this machine has it."""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml
from source_files import ROOT
from waiting import until

MONITORING = ROOT / "deploy" / "monitoring"
_INTERVAL = "1s"
_TIMEOUT_S = 20.0
_EXIT_S = 30.0


def program(name: str) -> str:
    """Return the path of a program of Prometheus' package; skip the test if there is none."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name}, which Debian's package `prometheus` has")
    return found


def panels() -> list[dict[str, Any]]:
    """Return the dashboard's panels, without rows."""
    found = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def as_asked(expression: str, interval: str) -> str:
    """Return a query of the dashboard as Grafana sends it, for all devices."""
    return expression.replace("$__rate_interval", interval).replace("$device", ".+")


class PrometheusProcess:
    """Prometheus that scrapes daemons and evaluates the project's rules; ready when the constructor returns.

    The alerts fire without delay, because tests don't last minutes.
    """

    def __init__(self, folder: Path, targets: Sequence[str]) -> None:
        rules = yaml.safe_load((MONITORING / "rules.yaml").read_text())
        for rule in rules["groups"][0]["rules"]:
            rule["for"] = "0s"
        (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
        jobs = [{"job_name": "nnrt-device", "static_configs": [{"targets": list(targets)}]}]
        settings = {
            "global": {"scrape_interval": _INTERVAL, "scrape_timeout": _INTERVAL, "evaluation_interval": _INTERVAL},
            "rule_files": [str(folder / "rules.yaml")],
            "scrape_configs": jobs,
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(settings))
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # `close` closes it.
        self._process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stdout=subprocess.DEVNULL,
            stderr=self._log,
        )
        try:
            self.url = f"http://{until(self._address, self.log)}"
        except BaseException:
            self.close()
            raise

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the current samples of an expression."""
        result: list[dict[str, Any]] = self._asked("query", {"query": expression})["result"]
        return result

    def query_range(self, expression: str, start: float, end: float, step_s: float) -> list[dict[str, Any]]:
        """Return the series of an expression between two Unix times."""
        asked = {"query": expression, "start": str(start), "end": str(end), "step": str(step_s)}
        result: list[dict[str, Any]] = self._asked("query_range", asked)["result"]
        return result

    def firing(self) -> set[tuple[str, str]]:
        """Return the firing alerts, each with its device or address."""
        alerts = self._asked("alerts", {})["alerts"]
        labels = [alert["labels"] for alert in alerts if alert["state"] == "firing"]
        return {(each["alertname"], each.get("device") or each["instance"]) for each in labels}

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(_EXIT_S)
        self._log.close()

    def _address(self) -> str | None:
        assert self._process.poll() is None, self.log()
        ready = "Server is ready to receive web requests" in self.log()
        found = re.search(r'msg="Listening on" address=(\S+)', self.log())
        return found[1] if ready and found else None

    def _asked(self, what: str, values: Mapping[str, str]) -> Any:
        with urlopen(f"{self.url}/api/v1/{what}?{urlencode(values)}", timeout=_TIMEOUT_S) as reply:  # noqa: S310
            return json.load(reply)["data"]
