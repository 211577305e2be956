"""Daemons of a Ray cluster, one for each device of its nodes."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from typing_extensions import Self

from nnrt_client.ray.device_actor import DeviceActor, Listen
from nnrt_client.resolvers.ray import NAMESPACE, actor_name, find_actors
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import ConnectionFailed, InvalidParameter, UnavailableDevice

ONE_DEVICE: Mapping[str, float] = MappingProxyType({"nnrt_device": 1})
_DRAIN_S = 60.0


class Fleet(Closable):
    """Daemons that Ray runs and restarts, which clients reach as `ray:///NAME`. Made by `start` and `find`."""

    def __init__(self, name: str, actors: Sequence[Any]) -> None:
        self.name = name
        self._actors = actors

    @classmethod
    def find(cls, name: str) -> Self:
        """Return the fleet of the daemons that were started under a name, which may be none."""
        return cls(name, find_actors(name))

    @property
    def target(self) -> str:
        """Name that clients give as the device."""
        return f"ray:///{self.name}"

    def addresses(self, timeout_s: float = 60.0) -> tuple[str, ...]:
        """Return the addresses of the daemons, also of those that only processes on their own hosts can reach.

        Raises:
            ConnectionFailed: Not all daemons answer in time.
        """
        try:
            return tuple(
                where.address for where in ray.get([a.where.remote() for a in self._actors], timeout=timeout_s)
            )
        except RayError as error:
            raise ConnectionFailed(f"not all of its daemons answer: {error}", place=self.target) from error

    def close(self) -> None:
        """Let the daemons finish their runs, and end them. Calling it again does nothing."""
        stopping = [actor.stop.remote() for actor in self._actors]
        if stopping:
            ray.wait(stopping, num_returns=len(stopping), timeout=_DRAIN_S)
        for actor in self._actors:
            ray.kill(actor, no_restart=True)
        self._actors = ()


def start(
    name: str,
    *,
    serve: Sequence[str] = (),
    resources: Mapping[str, float] = ONE_DEVICE,
    count: int | None = None,
    listen: Listen = "host",
    detached: bool = False,
    timeout_s: float = 120.0,
) -> Fleet:
    """Start daemons in the Ray cluster that this process is in; Ray restarts those that die.

    They end with this process, unless they are `detached`.

    Args:
        name: Name of the fleet. Its devices are named NAME-0, NAME-1, ...
        serve: Arguments of `nnrt-device serve`, such as `--backend`.
        resources: Resources that a node must have for each daemon.
        count: Number of daemons; without it, as many as the cluster has room for.
        listen: With "host" only processes on a daemon's host can reach it. With "network" all that reach its node can,
            which needs TLS (`--tls-cert` and the like, with files that each node has) or `--insecure` in `serve`.
        detached: Whether the daemons outlive this process; `Fleet.find` finds them, to close them.
        timeout_s: How long the daemons may take to be ready.

    Returns:
        The fleet, when all daemons are ready.

    Raises:
        InvalidParameter: An argument is bad, the name is taken, or no node has the resources.
        UnavailableDevice: Not all daemons are ready in time.
    """
    if not name or "/" in name:
        raise InvalidParameter(f"the name is {name!r}; use one without slashes", place="start")
    if listen not in ("host", "network"):
        raise InvalidParameter(f"listen is {listen!r}; use 'host' or 'network'", place="start")
    if find_actors(name):
        raise InvalidParameter(f"there is a fleet {name!r} already; close it, or use another name", place="start")
    wanted = count if count is not None else _count_room(resources)
    if wanted < 1:
        raise InvalidParameter(
            f"no node has the resources {dict(resources)}; give those that your nodes have (ray start --resources)",
            place="start",
        )
    actor_class = ray.remote(DeviceActor)
    actors = [
        actor_class.options(
            name=actor_name(name, index),
            namespace=NAMESPACE,
            lifetime="detached" if detached else None,
            resources=dict(resources),
            num_cpus=0,
            max_restarts=-1,
        ).remote([*serve, "--name", f"{name}-{index}"], listen)
        for index in range(wanted)
    ]
    fleet = Fleet(name, actors)
    try:
        ray.get([actor.where.remote() for actor in actors], timeout=timeout_s)
    except GetTimeoutError as error:
        fleet.close()
        raise UnavailableDevice(
            f"not all of {wanted} daemons were ready within {timeout_s:g} s; has the cluster room for {dict(resources)}"
            " so often?",
            place=fleet.target,
        ) from error
    except RayError as error:
        fleet.close()
        raise UnavailableDevice(f"a daemon could not be started: {error}", place=fleet.target) from error
    return fleet


def _count_room(resources: Mapping[str, float]) -> int:
    """Return how many daemons with these resources the live nodes of the cluster have room for."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return sum(min(int(node.get(what, 0) / amount) for what, amount in resources.items()) for node in nodes)
