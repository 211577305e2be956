"""Methods of ONNX Runtime's InferenceSession that have no meaning for a device of a daemon."""

from typing import NoReturn

from nnrt_client.onnxruntime.errors import NotSupported


class MissingMethods:
    """Methods of ONNX Runtime's InferenceSession that raise NotSupported or have no effect."""

    def disable_fallback(self) -> None:
        """Do nothing: a session never changes to other providers by itself."""

    def enable_fallback(self) -> None:
        """Do nothing: a session never changes to other providers by itself."""

    def end_profiling(self) -> NoReturn:
        """Raise NotSupported: nothing is profiled. `nnrt bench` measures where time goes."""
        raise NotSupported("end_profiling: nothing is profiled; run `nnrt bench`, or read NamedOutputs.times")

    def get_profiling_start_time_ns(self) -> NoReturn:
        """Raise NotSupported, as `end_profiling`."""
        raise NotSupported("get_profiling_start_time_ns: nothing is profiled; run `nnrt bench`")

    def get_tuning_results(self) -> NoReturn:
        """Raise NotSupported: daemons have no tuning results."""
        raise NotSupported("get_tuning_results: the daemon has none; leave the call out")

    def set_tuning_results(self, results: object, *, error_on_invalid: bool = False) -> NoReturn:
        """Raise NotSupported, as `get_tuning_results`."""
        raise NotSupported("set_tuning_results: the daemon takes none; leave the call out")

    def run_with_ortvaluevector(self, *arguments: object) -> NoReturn:
        """Raise NotSupported: the method is for training."""
        raise NotSupported("run_with_ortvaluevector: use run_with_iobinding or run_with_ort_values")
