"""Sessions with environments of their own, for what doesn't fit into `.venv`: other versions and large packages.

Makefile calls them by these names: `make matrix`, `make proto`, `make engines`, `make openvino`, `make peers`, `make
networks`. `nox --list` lists them, and `nox -s "tests-3.12(oldest)" -- tests/client` runs a part of one.
"""

import filecmp
import tempfile
from pathlib import Path

import nox
from packaging.requirements import Requirement

PROJECT = nox.project.load_toml("pyproject.toml")
# The first that has wheels for a Python, where that is newer than what pyproject.toml asks for.
FIRST_WHEELS = {
    "3.12": {"numpy": "1.26.0", "pillow": "10.1.0"},
    "3.13": {"numpy": "2.1.0", "pillow": "10.4.0"},
    "3.14": {"grpcio": "1.75.1", "numpy": "2.3.2", "onnxruntime": "1.24.1", "pillow": "12.0.0"},
}
# The oldest runtime the stubs must work with decides the generator: protobuf 6.31, grpcio 1.74.
GRPC_TOOLS = "grpcio-tools==1.74.0"
# What renders deploy/helm, for Linux on x86_64 only; and the schemas that it is checked against.
HELM = "helm-python-sdk>=0.2.2; platform_machine == 'x86_64' and sys_platform == 'linux'"
KUBERNETES_SCHEMAS = "kubernetes-validate>=1.36"
# For examples/ray_serve.py.
RAY_SERVE = "ray[serve]>=2.49"
# The folders of protos/, which are those of the packages that are generated of them.
STUBS = (Path("nnrt_hdi/v2"), Path("nnrt_client/serving/wire"))

nox.needs_version = ">=2025.5.1"
nox.options.error_on_missing_interpreters = False
nox.options.reuse_venv = "yes"
nox.options.stop_on_first_error = False


def floors(python: str) -> list[str]:
    """Pin each requirement of pyproject.toml to the least version that it takes."""
    extras = PROJECT["project"]["optional-dependencies"]
    pins = []
    chosen = ("dns", "images", "keys", "mdns", "metrics", "onnxruntime")
    for line in [*PROJECT["project"]["dependencies"], *(line for extra in chosen for line in extras[extra])]:
        needed = Requirement(line)
        (least,) = (bound.version for bound in needed.specifier if bound.operator == ">=")
        pins.append(f"{needed.name}=={FIRST_WHEELS.get(python, {}).get(needed.name, least)}")
    return pins


@nox.session(python=[*nox.project.python_versions(PROJECT), "3.14"])
@nox.parametrize("needs", [nox.param("oldest", id="oldest"), nox.param("newest", id="newest")])
def tests(session: nox.Session, needs: str) -> None:
    """Run the suite, or the files that are given behind `--`."""
    pins = floors(str(session.python)) if needs == "oldest" else ["--upgrade", "--upgrade-strategy=eager"]
    session.install("--editable", ".[test]", *pins)
    session.run("pytest", "-q", "-n", "auto", "--maxprocesses", "5", "--dist", "worksteal", *session.posargs)


@nox.session
def proto(session: nox.Session) -> None:
    """Generate the packages of protos/; with `-- --check`, fail if they aren't what protos/ generate."""
    session.install(GRPC_TOOLS, "setuptools")
    if "--check" not in session.posargs:
        generate(session, Path())
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(session, Path(folder))
        for stubs in STUBS:
            made = sorted(path.name for path in (Path(folder) / stubs).iterdir())
            kept = sorted(path.name for path in stubs.glob("*_pb2*"))
            _, different, missing = filecmp.cmpfiles(Path(folder) / stubs, stubs, made, shallow=False)
            if different or missing or made != kept:
                session.error(f"{stubs} differs from what protos/ generate; run `make proto`")


def generate(session: nox.Session, folder: Path) -> None:
    """Write the messages of all contracts, and the stubs of the services that daemons offer."""
    protoc = ("python", "-m", "grpc_tools.protoc", "-I", "protos")
    contracts = [path for stubs in STUBS for path in sorted(("protos" / stubs).glob("*.proto"))]
    session.run(*protoc, f"--python_out={folder}", f"--pyi_out={folder}", *map(str, contracts))
    services = [
        path for path in contracts if path.is_relative_to("protos" / STUBS[0]) and "\nservice " in path.read_text()
    ]
    session.run(*protoc, f"--grpc_python_out={folder}", *map(str, services))


@nox.session
def engines(session: nox.Session) -> None:
    """Run the tests of Kubernetes and Ray, with the large packages that they take."""
    session.install("--editable", ".[test,k8s,ray]", HELM, KUBERNETES_SCHEMAS, RAY_SERVE)
    session.run("pytest", "-q", "tests/on_kubernetes", "tests/on_ray", *session.posargs)


@nox.session
def openvino(session: nox.Session) -> None:
    """Run the tests of examples/backend_openvino, and have the conformance kit try it."""
    session.install("--editable", ".[openvino]", "--editable", "examples/backend_openvino[test]")
    session.run("pytest", "-q", "examples/backend_openvino", *session.posargs)


@nox.session
def torch(session: nox.Session) -> None:
    """Test, demonstrate or measure the torch backend: `-- test`, `-- demo`, `-- bench`.

    All in one environment, because torch is large.
    """
    session.install("--editable", ".[test,torch,exporters]")
    task, *arguments = session.posargs or ["test"]
    if task == "demo":
        session.run("python", "examples/digits/demo.py", "--backend", "torch", *arguments)
    elif task == "bench":
        paths = {"PYTHONPATH": "tests:tests/onnx_import:examples/generate"}
        session.run("python", "benchmarks/torch_devices.py", *arguments, env=paths)
    else:
        # Besides the tests for torch alone: those that take a daemon of each backend.
        session.run("pytest", "-q", "-n", "auto", "-k", "torch", "tests", *arguments)


@nox.session
def peers(session: nox.Session) -> None:
    """Install KServe's server, with which benchmarks compare; it needs other versions of what we need."""
    session.install("--editable", ".[peers]", "onnxruntime")


@nox.session
def mlserver(session: nox.Session) -> None:
    """Install MLServer, with which benchmarks/model_servers.py compares, and which doesn't go with KServe."""
    session.install("mlserver>=1.7", "onnxruntime")


@nox.session
def networks(session: nox.Session) -> None:
    """Export the networks that benchmarks/network_table.py measures, with torch, into build/networks."""
    session.install(".[onnxruntime,exporters]")
    session.run("python", "benchmarks/export_networks.py", "build/networks", *session.posargs)
