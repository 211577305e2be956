"""What stands in a fleet file, and what is said of a wrong one."""

from dataclasses import fields
from pathlib import Path

import pytest

from fleet.fleet_process import nnrt_device
from nnrt_device_service.fleet.fleet_file import read_fleet
from nnrt_device_service.fleet.spec import DeviceSpec
from nnrt_device_service.settings import PATHS, Settings
from nnrt_hdi.errors import InvalidFile, InvalidPath


def read(folder: Path, text: str) -> list[DeviceSpec]:
    (folder / "fleet.toml").write_text(text)
    return read_fleet(folder / "fleet.toml", "host")


def test_everything(tmp_path: Path) -> None:
    """Devices add to the defaults or replace them; paths are beside the file."""
    first, second = read(
        tmp_path,
        """
        [defaults]
        backend = "onnxruntime"
        listen = "127.0.0.1:50051+"
        store-dir = "store"
        audit-log = "-"
        max-sessions = 8
        lease-s = 2.5
        options = { threads = 2 }
        environment = { A = "1", B = "2" }
        nice = 5

        [device.one]
        cpus = "0"
        nice = -5
        environment = { B = "3" }

        [device.two]
        name = "two of all"
        listen = ["unix:two.sock", "127.0.0.1:0"]
        max-sessions = 9
        verbose = true
        options = { provider = "cpu" }
        cpus = [0]
        watchdog-s = 5
        """,
    )
    assert first == DeviceSpec(
        "one",
        (
            "--name=host-one",
            "--backend=onnxruntime",
            f"--store-dir={tmp_path}/store",
            "--audit-log=-",
            "--max-sessions=8",
            "--lease-s=2.5",
            "--option=threads=2",
        ),
        ("127.0.0.1:50051",),
        environment=(("A", "1"), ("B", "3")),
        cpus=(0,),
        nice=-5,
    )
    assert second.listen == (f"unix:{tmp_path}/two.sock", "127.0.0.1:0")
    assert (second.cpus, second.nice, second.watchdog_s) == ((0,), 5, 5.0)
    settings = second.settings()
    assert (settings.name, settings.max_sessions, settings.verbose) == ("two of all", 9, True)
    assert settings.backend_options() == {"threads": "2", "provider": "cpu"}
    assert DeviceSpec.from_json(second.as_json()) == second


def test_every_path_is_beside_the_file() -> None:
    """Settings say in their first word that they name one."""
    named = [
        entry.name for entry in fields(Settings) if entry.metadata["help"].startswith(("File", "PEM", "Directory"))
    ]
    assert sorted(named) == sorted(PATHS)


def test_ports_are_counted(tmp_path: Path) -> None:
    specs = read(
        tmp_path, '[defaults]\nbackend="reference"\nlisten = "[::1]:6000+"\n[device.a]\n[device.b]\n[device.c]'
    )
    assert [spec.listen for spec in specs] == [("[::1]:6000",), ("[::1]:6001",), ("[::1]:6002",)]


def test_ports_of_metrics_and_health_are_counted(tmp_path: Path) -> None:
    listen = 'metrics-listen = "127.0.0.1:9400+"\nhealth-listen = "127.0.0.1:9500+"'
    specs = read(tmp_path, f'[defaults]\nbackend="reference"\n{listen}\n[device.a]\n[device.b]')
    settings = [spec.settings() for spec in specs]
    assert [each.metrics_listen for each in settings] == ["127.0.0.1:9400", "127.0.0.1:9401"]
    assert [each.health_listen for each in settings] == ["127.0.0.1:9500", "127.0.0.1:9501"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it names no device; add a table [device.NAME] for each"),
        ("[devices.a]", "there is no table 'devices'; use [defaults] and [device.NAME]"),
        ("[device.'a b']", "[device.a b]: 'a b' is no name; use up to 64 letters, digits and ._-"),
        ("[device]\na = 1", "[device.a]: it is 1; use a table"),
        ("[defaults]\nname = 'x'\n[device.a]", "[defaults] name: names must differ; give each device its own"),
        ("[device.a]\nmax_sessions = 1", "[device.a] max_sessions: there is no such setting; 'max-sessions'?"),
        ("[device.a]\nxyz = 1", "[device.a] xyz: there is no such setting; use the flags of `nnrt-device serve`"),
        ("[device.a]\nmax-sessions = 0", "[device.a] max-sessions: 0 is not in the range 1<=x<=65536."),
        ("[device.a]\nmax-sessions = 1.5", "[device.a] max-sessions: it is 1.5; use a whole number"),
        ("[device.a]\nmax-sessions = true", "[device.a] max-sessions: it is True; use a number"),
        ("[device.a]\nmax-sessions = '5'", "[device.a] max-sessions: it is '5'; use a number"),
        ("[device.a]\nlease-s = nan", "[device.a] lease-s: nan is not in the range 0.0<=x<=86400.0."),
        ("[device.a]\nverbose = 1", "[device.a] verbose: it is 1; use true or false"),
        ("[device.a]\ntls-cert = 1", "[device.a] tls-cert: it is 1; use a text"),
        ("[device.a]\naccept-programs = 'no'", "[device.a] accept-programs: 'no' is not one of"),
        ("[device.a]\nlisten = []", "[device.a] listen: it is []; use a text, or a list of texts"),
        ("[device.a]\nlisten = 'here'", "[device.a] listen: 'here' is no address; use HOST:PORT, HOST:PORT+ or unix:"),
        ("[device.a]\nlisten = '0.0.0.0:1'", "[device.a] listen: address '0.0.0.0:1': other hosts can reach it"),
        ("[device.a]\ncpus = '0-'", "[device.a] cpus: it is '0-'; use numbers of processors, such as"),
        ("[device.a]\ncpus = []", "[device.a] cpus: it names no processor; leave it out, or name some"),
        ("[device.a]\ncpus = '65535'", "[device.a] cpus: this host lets it use"),
        ("[device.a]\nnice = 20", "[device.a] nice: it is 20; use -20..19"),
        ("[device.a]\nwatchdog-s = 0", "[device.a] watchdog-s: it is 0; use a number of seconds, 0.1..86400"),
        ("[device.a]\nenvironment = { A = [] }", "[device.a] environment: it is {'A': []}; use a table of texts and"),
        ("[device.a]\nenvironment = { 'A=' = '1' }", "[device.a] environment: 'A=' can be no environment variable"),
        ("[device.a]\nbackend = 'acme'", "[device.a] backend: no backend named 'acme'; installed: "),
        ("[device.a]\noption = 'x'", "[device.a]: Invalid value for --option: 'x' is not NAME=VALUE"),
        (
            "[device.a]\nprovider = 'cpu'\noptions = { provider = 'cuda' }",
            "[device.a]: Invalid value for --provider: it is 'cpu' and option provider 'cuda'; give one of them",
        ),
        (
            "[device.a]\nlisten = '127.0.0.1:7'\n[device.b]\nlisten = '127.0.0.1:7'",
            "[device.b] listen: '127.0.0.1:7' is that of [device.a] too; give another",
        ),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidFile) as error:
        read(tmp_path, text)
    assert said in str(error.value)
    assert f"fleet file '{tmp_path}/fleet.toml'" in str(error.value)


def test_all_problems_at_once(tmp_path: Path) -> None:
    text = "[defaults]\nlease-s = -1\n[device.a]\nnice = 99\n[device.b]\nbackend = 'acme'\ncolour = 1\n"
    with pytest.raises(InvalidFile) as error:
        read(tmp_path, text)
    said = [line.strip().partition(":")[0] for line in str(error.value).splitlines()[1:]]
    assert said == ["[defaults] lease-s", "[device.a] nice", "[device.b] colour", "[device.b] backend"]


def test_no_toml_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"it is no TOML: .*at end of document"):
        read(tmp_path, "device =")
    with pytest.raises(InvalidPath, match="it can't be read: No such file"):
        read_fleet(tmp_path / "no.toml", "host")


@pytest.mark.slow
def test_dry_run_starts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(
        '[device.a]\nbackend = "reference"\nlease-s = 5\ncpus = "0"\nnice = 1\nenvironment = { X = "a b" }\n'
    )
    done = nnrt_device("up", path, "--dry-run", "--state-dir", tmp_path / "state")
    assert done.returncode == 0, done.stderr
    assert "'X=a b' nice -n 1 taskset -c 0 nnrt-device serve --listen=127.0.0.1:0 --name=" in done.stdout
    assert "--backend=reference --lease-s=5.0" in done.stdout
    assert not (tmp_path / "state").exists()
    path.write_text("[device.a]\nlease-s = -1\n")
    done = nnrt_device("up", path, "--dry-run")
    assert done.returncode == 1
    assert "[device.a] lease-s: -1.0 is not in the range" in done.stderr
