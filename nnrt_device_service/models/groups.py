"""Groups of models whose runs may be batched."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Hashable
from weakref import WeakValueDictionary

from nnrt_device_service.models.compilations import Compilers
from nnrt_device_service.models.requests import Build, ModelRequest
from nnrt_device_service.scheduling.joinable import Group
from nnrt_device_service.settings import Settings
from nnrt_hdi.backend import PreparedModel
from nnrt_hdi.batching import Batching
from nnrt_hdi.errors import NnrtError, Unsupported
from nnrt_hdi.files.store_directory import SHOWN_KEY
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import infer_graph
from nnrt_hdi.ops.rows_apart import require_rows_apart
from nnrt_hdi.tensor import UNKNOWN_DIM

_log = logging.getLogger(__name__)

# Models whose verdicts are cached for other clients.
_VERDICTS = 256


class Groups:
    """Batching groups, and the decision which models can be batched."""

    def __init__(self, settings: Settings, compilers: Compilers) -> None:
        """Read the batching settings. Raises InvalidParameter if they are invalid."""
        self._compilers = compilers
        self._by_default = settings.batching
        self._is_for_all = settings.batch_across == "identities"
        # By model digest: why the model's runs can't be batched, or None if they can. Oldest first.
        self._verdicts: OrderedDict[bytes, NnrtError | None] = OrderedDict()
        self._lock = threading.Lock()
        # A group lives as long as a model in it.
        self._groups: WeakValueDictionary[Hashable, Group] = WeakValueDictionary()

    def group_of(self, build: Build, model: ModelRequest) -> Group | None:
        """Return the batching group of a model, or None if its runs run alone.

        The client's request takes precedence over the daemon's setting. A model is analysed once, in a turn of
        `Compilers`. If the client asks for batching and the model can't be batched, raises the reason.
        """
        wanted = build.batching or self._by_default
        if wanted is None:
            return None
        digest = model.digest
        with self._lock:
            is_judged = digest in self._verdicts
            verdict = self._verdicts.get(digest)
        if not is_judged:
            with self._compilers.turn(build.session, build.config.priority, build.progress):
                verdict = _verdict(model.graph())
            with self._lock:
                self._verdicts[digest] = verdict
                if len(self._verdicts) > _VERDICTS:
                    self._verdicts.popitem(last=False)
        if verdict is None:
            return self.group(build, digest, wanted)
        if build.batching is not None:
            raise verdict.copy()
        if not is_judged:
            _log.info("runs of model %s are not computed together: %s", digest.hex()[:SHOWN_KEY], verdict)
        return None

    def group(self, build: Build, digest: bytes, batching: Batching) -> Group:
        """Return the group of a model digest, config and batching, per identity unless --batch-across spans all."""
        whose = "" if self._is_for_all else str(build.session.identity)
        config = build.config
        how = config.enable_float16, config.mode, frozenset(config.extensions.items())
        key = digest, how, batching, whose
        with self._lock:
            found = self._groups.get(key)
            if found is None:
                found = self._groups[key] = Group(batching, is_for_all=self._is_for_all)
            return found


def require_open_rows(prepared: PreparedModel) -> None:
    """Raise Unsupported unless the model has inputs and the first dimension of each input and output is unknown.

    Every model that `require_rows_apart` accepts has this property.
    """
    specs = (*prepared.inputs, *prepared.outputs)
    if not prepared.inputs or any(spec.shape[:1] != (UNKNOWN_DIM,) for spec in specs):
        raise Unsupported(
            f"its tensors are {', '.join(map(str, specs))}; to be joined, all must have a first dimension that is open",
            place="a model whose runs are to be computed together",
        )


def _verdict(graph: Graph) -> NnrtError | None:
    """Return why runs of a model can't be batched, or None if they can. Raises the problems of an invalid model."""
    inferred = infer_graph(graph)
    inferred.raise_first_problem()
    try:
        require_rows_apart(inferred.graph)
    except NnrtError as error:
        return error
    return None
