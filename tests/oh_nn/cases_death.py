"""Cases of rows about a dead daemon. Several cases share one killed daemon, because starting one takes long."""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from waiting import until

from nnrt_client.oh_nn import *
from oh_nn.callbacks import DEADLINE_S, MINUTE_MS, Callbacks
from oh_nn.world import World, X, floats, ok


class Deceased(NamedTuple):
    """Objects of a daemon that has been killed."""

    world: World
    device_id: int
    configured: Any
    built: Any
    executor: Any
    asynchronous: Any
    bound: Any
    tensors: list[Any]


def bury(world: World) -> Deceased:
    """Create objects on a daemon, kill it, and wait until the client has noticed."""
    daemon = world.connect_own()
    configured, built = world.compilation(), world.built()
    executor, asynchronous, bound = (world.executor(compilation=built) for _ in range(3))
    Callbacks(asynchronous)
    world.bound(bound)
    tensors = [world.tensor(values=X), world.tensor(), world.tensor()]
    (device_id,) = world.ids()
    ok(OH_NNCompilation_SetDevice(configured, device_id))
    daemon.kill()
    until(lambda: not world.ids())
    return Deceased(world, device_id, configured, built, executor, asynchronous, bound, tensors)


# One call on the dead daemon's objects per row.
AFTER_DEATH: list[tuple[str, Callable[[Deceased], Any]]] = [
    ("4.2-2", lambda dead: OH_NNDevice_GetAllDevicesID()),
    ("4.3-2", lambda dead: OH_NNDevice_GetName(0)),
    ("4.4-3", lambda dead: OH_NNDevice_GetType(dead.device_id)),
    ("6.1-5", lambda dead: OH_NNTensor_Create(0, dead.world.desc())),
    ("6.4-1", lambda dead: OH_NNTensor_Destroy(dead.tensors.pop())),
    ("9.10-4", lambda dead: OH_NNCompilation_Build(dead.configured)),
    ("10.1-2", lambda dead: OH_NNExecutor_Construct(dead.built)),
    ("9.11-1", lambda dead: OH_NNCompilation_Destroy(dead.built)),
    ("10.7-4", lambda dead: OH_NNExecutor_GetInputDimRange(dead.executor, 0)),
    # RunSync and RunAsync check this before they check the tensors.
    ("10.11-3", lambda dead: OH_NNExecutor_RunSync(dead.executor, [None], dead.tensors[1:])),
    ("10.12-4", lambda dead: OH_NNExecutor_RunAsync(dead.asynchronous, [None], dead.tensors[1:], MINUTE_MS, "mine")),
    ("10.8-2", lambda dead: OH_NNExecutor_GetOutputShape(dead.executor, 0)),
    ("11.5-4", lambda dead: OH_NNExecutor_Run(dead.bound)),
    ("11.6-1", lambda dead: OH_NNExecutor_AllocateInputMemory(dead.executor, 0, 16)),
    ("11.7-1", lambda dead: OH_NNExecutor_AllocateOutputMemory(dead.executor, 0, 16)),
    ("10.14-1", lambda dead: _with_a_new_executor(dead)),
]


def _with_a_new_executor(dead: Deceased) -> Any:
    """Run a dead daemon's tensors on another daemon; the dead executor stays dead."""
    given, output = dead.tensors
    assert list(floats(given)) == [1, 2, 3, 4]
    dead.world.connect("reference")
    answer = OH_NNExecutor_RunSync(dead.world.executor(), [given], [output])
    assert list(floats(output)) == [1, 2, 3, 4]
    assert OH_NNExecutor_RunSync(dead.executor, [given], [output]) == OH_NN_UNAVAILABLE_DEVICE
    return answer


def killed_while_running(world: World) -> list[tuple[str, Any]]:
    """Kill a daemon during runs of every kind; return the row ids and the results of the runs."""
    daemon = world.connect_own("faulty")
    compilation = world.compilation()
    ok(OH_NNCompilation_AddExtensionConfig(compilation, "fault", b"never ends"))
    ok(OH_NNCompilation_Build(compilation))
    executors = [world.executor(compilation=compilation) for _ in range(4)]
    answers: list[tuple[str, Any]] = []
    waiting = [
        threading.Thread(target=lambda: answers.append(("10.11-11", _run_sync(world, executors[0])))),
        threading.Thread(target=lambda: answers.append(("11.5-4", OH_NNExecutor_Run(world.bound(executors[1]))))),
    ]
    for thread in waiting:
        thread.start()
    callbacks = Callbacks(executors[2])
    answers += [("10.12-8", _run_async(world, executors[2], user_data)) for user_data in ("first", "second")]
    without = Callbacks(executors[3], on_service_died=False)
    answers += [("10.12-9", _run_async(world, executors[3], "third"))]
    world.wait_for_runs(5)
    daemon.kill()
    for thread in waiting:
        thread.join(DEADLINE_S)
    reported = {callbacks.calls.get(timeout=DEADLINE_S) for _ in range(2)}
    assert without.only()[:3] == ("done", "third", OH_NN_UNAVAILABLE_DEVICE)
    OH_NNExecutor_Destroy(executors[2])
    assert reported == {("died", "first"), ("died", "second")}
    assert callbacks.calls.empty()
    return answers


def _run_sync(world: World, executor: Any) -> Any:
    return OH_NNExecutor_RunSync(executor, [world.tensor()], [world.tensor()])


def _run_async(world: World, executor: Any, user_data: str) -> Any:
    return OH_NNExecutor_RunAsync(executor, [world.tensor()], [world.tensor()], MINUTE_MS, user_data)


ROW_IDS = {"10.11-11", "10.12-8", "10.12-9", *(row_id for row_id, _ in AFTER_DEATH)}
