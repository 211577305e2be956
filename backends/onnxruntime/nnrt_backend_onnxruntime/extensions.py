"""Extensions of a model's configuration: options of ONNX Runtime that clients may set."""

from collections.abc import Mapping

from nnrt_hdi.errors import InvalidParameter

# The allowed extensions "session.<name>". Each has a number as value, mostly 0 or 1. None reads or writes files.
SESSION_OPTIONS = frozenset(
    {
        "session.disable_prepacking",
        "session.disable_quant_qdq",
        "session.dynamic_block_base",
        "session.enable_gelu_approximation",
        "session.enable_quant_qdq_cleanup",
        "session.force_spinning_stop",
        "session.inter_op.allow_spinning",
        "session.intra_op.allow_spinning",
        "session.set_denormal_as_zero",
        "session.use_device_allocator_for_initializers",
    }
)
PROVIDER_PREFIX = "provider."
# The allowed extensions "provider.<name>": they say how to compute. Providers have other options, which name files,
# load libraries, choose a device or are addresses of memory and functions; clients may not set these.
_ON_GPU = frozenset(
    {
        "arena_extend_strategy",
        "cudnn_conv1d_pad_to_nc1d",
        "cudnn_conv_algo_search",
        "cudnn_conv_use_max_workspace",
        "do_copy_in_default_stream",
        "fuse_conv_bias",
        "gpu_mem_limit",
        "prefer_nhwc",
        "use_tf32",
    }
)
PROVIDER_OPTIONS = {
    "cuda": _ON_GPU,
    "rocm": _ON_GPU,
    "tensorrt": frozenset(
        {
            "trt_auxiliary_streams",
            "trt_bf16_enable",
            "trt_builder_optimization_level",
            "trt_context_memory_sharing_enable",
            "trt_fp16_enable",
            "trt_layer_norm_fp32_fallback",
            "trt_max_partition_iterations",
            "trt_max_workspace_size",
            "trt_min_subgraph_size",
            "trt_profile_max_shapes",
            "trt_profile_min_shapes",
            "trt_profile_opt_shapes",
            "trt_sparsity_enable",
        }
    ),
    "openvino": frozenset({"disable_dynamic_shapes", "model_priority", "num_streams", "precision"}),
    "migraphx": frozenset({"migraphx_exhaustive_tune", "migraphx_fp16_enable"}),
    "directml": frozenset({"disable_metacommands", "performance_preference"}),
    "coreml": frozenset({"MLComputeUnits", "ModelFormat", "RequireStaticInputShapes", "SpecializationStrategy"}),
    "qnn": frozenset({"enable_htp_fp16_precision", "htp_graph_finalization_optimization_mode", "htp_performance_mode"}),
    "webgpu": frozenset({"preferredLayout"}),
}
_MOST_OPTION_BYTES = 256
_MOST_DIGITS = 4


def session_entries(extensions: Mapping[str, bytes]) -> dict[str, str]:
    """Return the entries of a session's configuration that extensions set. Raises InvalidParameter for unknown ones."""
    return {name: value for name, value in _texts(extensions).items() if not name.startswith(PROVIDER_PREFIX)}


def provider_options(provider: str, extensions: Mapping[str, bytes]) -> dict[str, str]:
    """Return the provider's options that extensions set.

    Raises:
        InvalidParameter: Clients may not set an option, or an extension is unknown.
    """
    texts = _texts(extensions)
    options = {name[len(PROVIDER_PREFIX) :]: value for name, value in texts.items() if name.startswith(PROVIDER_PREFIX)}
    known = PROVIDER_OPTIONS.get(provider, frozenset())
    if unknown := sorted(options.keys() - known):
        has = ", ".join(sorted(known)) or "none"
        raise InvalidParameter(f"the provider {provider} has no option {unknown[0]!r} for clients; it has {has}")
    return options


def _texts(extensions: Mapping[str, bytes]) -> dict[str, str]:
    """Return the extensions as text. Refuses unknown ones, and session options that aren't numbers."""
    texts = {}
    for name, value in extensions.items():
        is_option = name in SESSION_OPTIONS
        if not is_option and not name.startswith(PROVIDER_PREFIX):
            known = ", ".join(sorted(SESSION_OPTIONS))
            raise InvalidParameter(f"there is no extension {name!r}; use {known}, or {PROVIDER_PREFIX}NAME")
        if len(value) > _MOST_OPTION_BYTES or not value.isascii():
            raise InvalidParameter(f"extension {name!r} has {len(value)} bytes; use at most 256 of ASCII")
        texts[name] = value.decode()
        if is_option and not (texts[name].isdigit() and len(value) <= _MOST_DIGITS):
            raise InvalidParameter(f"extension {name!r} is {texts[name]!r}; use 1 or 0")
    return texts
