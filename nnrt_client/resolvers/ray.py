"""Resolver of ray:///NAME: the fleet of daemons that `nnrt_client.ray.start` has started with NAME in a Ray cluster.

The cluster is the one to which this process is connected, else that of RAY_ADDRESS, else the one on this host.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray
import ray.util
from ray.exceptions import RayError

from nnrt_client.resolvers.names import Name
from nnrt_client.resolvers.resolver import PollingResolver
from nnrt_client.settings import Settings
from nnrt_hdi.errors import ConnectionFailed

# Namespace in which Ray keeps the actors' names.
NAMESPACE = "nnrt"
_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class DaemonLocation:
    """Location of a daemon, as its Ray actor reports it."""

    address: str
    # The IP address of its host.
    host: str
    # Whether only clients on that host can reach the daemon.
    is_on_host_only: bool


def actor_name(fleet: str, index: int) -> str:
    return f"{fleet}/{index}"


def find_actors(fleet: str) -> list[Any]:
    """Return handles of a fleet's actors, which Ray lists by name."""
    found = ray.util.list_named_actors(all_namespaces=True)
    names = [entry["name"] for entry in found if entry["namespace"] == NAMESPACE]
    handles = []
    for name in sorted(name for name in names if name.rpartition("/")[0] == fleet):
        try:
            handles.append(ray.get_actor(name, namespace=NAMESPACE))
        except ValueError:  # The actor has just ended.
            continue
    return handles


class FleetResolver(PollingResolver):
    """Resolver of the daemons of a fleet whose actors answer and that this host can reach."""

    def __init__(self, name: str, fleet: str, every_s: float, timeout_s: float) -> None:
        """Create the resolver of a fleet. Its actors may take `timeout_s` to answer."""
        super().__init__(name, every_s + timeout_s)
        self._fleet = fleet
        self._every_s = every_s
        self._timeout_s = timeout_s

    def _ask(self) -> tuple[tuple[str, ...], float]:
        try:
            if not ray.is_initialized():
                ray.init(address="auto", namespace=NAMESPACE, log_to_driver=False, logging_level="warning")
            found = self._answers()
        except (RayError, ConnectionError, ValueError, RuntimeError) as error:
            raise ConnectionFailed(f"the Ray cluster can't be asked: {error}", place=self.name) from error
        host = ray.util.get_node_ip_address()
        reached = sorted(where.address for where in found if where.host == host or not where.is_on_host_only)
        if found and not reached:
            raise ConnectionFailed(
                f"its {len(found)} daemons listen for their own hosts only, and this one ({host}) is none of them;"
                " start them with listen='network'",
                place=self.name,
            )
        return tuple(reached), self._every_s

    def _answers(self) -> Sequence[DaemonLocation]:
        asked = [actor.where.remote() for actor in find_actors(self._fleet)]
        if not asked:
            return ()
        answered, _ = ray.wait(asked, num_returns=len(asked), timeout=self._timeout_s)
        answers = []
        for reference in answered:
            try:
                answers.append(ray.get(reference))
            except RayError:  # The actor is gone, or being restarted.
                continue
        return answers


def create(name: Name, settings: Settings) -> FleetResolver:
    """Make the resolver of a name. Raise InvalidParameter for an invalid name."""
    name.allow_options("every")
    if name.authority or not name.path:
        raise name.error("it names no fleet; use ray:///NAME, as nnrt_client.ray.start got it")
    return FleetResolver(name.text, name.path, name.seconds("every", _EVERY_S), settings.query_timeout_s)
