from nnrt_hdi.v2 import enums_pb2 as _enums_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Int64List(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, values: _Optional[_Iterable[int]] = ...) -> None: ...

class Activation(_message.Message):
    __slots__ = ("activation_type", "alpha", "min_val", "max_val", "approximate")
    ACTIVATION_TYPE_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    MIN_VAL_FIELD_NUMBER: _ClassVar[int]
    MAX_VAL_FIELD_NUMBER: _ClassVar[int]
    APPROXIMATE_FIELD_NUMBER: _ClassVar[int]
    activation_type: _enums_pb2.ActivationType
    alpha: float
    min_val: float
    max_val: float
    approximate: bool
    def __init__(self, activation_type: _Optional[_Union[_enums_pb2.ActivationType, str]] = ..., alpha: _Optional[float] = ..., min_val: _Optional[float] = ..., max_val: _Optional[float] = ..., approximate: bool = ...) -> None: ...

class LeakyRelu(_message.Message):
    __slots__ = ("negative_slope",)
    NEGATIVE_SLOPE_FIELD_NUMBER: _ClassVar[int]
    negative_slope: float
    def __init__(self, negative_slope: _Optional[float] = ...) -> None: ...

class PReLUFusion(_message.Message):
    __slots__ = ("channel_shared",)
    CHANNEL_SHARED_FIELD_NUMBER: _ClassVar[int]
    channel_shared: bool
    def __init__(self, channel_shared: bool = ...) -> None: ...

class Softmax(_message.Message):
    __slots__ = ("axis",)
    AXIS_FIELD_NUMBER: _ClassVar[int]
    axis: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, axis: _Optional[_Iterable[int]] = ...) -> None: ...

class LogSoftmax(_message.Message):
    __slots__ = ("axis",)
    AXIS_FIELD_NUMBER: _ClassVar[int]
    axis: int
    def __init__(self, axis: _Optional[int] = ...) -> None: ...

class Abs(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Ceil(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Floor(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Round(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Neg(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Reciprocal(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Sqrt(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Rsqrt(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Square(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExpFusion(_message.Message):
    __slots__ = ("base", "scale", "shift")
    BASE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    base: float
    scale: float
    shift: float
    def __init__(self, base: _Optional[float] = ..., scale: _Optional[float] = ..., shift: _Optional[float] = ...) -> None: ...

class Log(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Sin(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Cos(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Erf(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Clip(_message.Message):
    __slots__ = ("max", "min")
    MAX_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    max: float
    min: float
    def __init__(self, max: _Optional[float] = ..., min: _Optional[float] = ...) -> None: ...

class Cast(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class QuantDTypeCast(_message.Message):
    __slots__ = ("src_t", "dst_t")
    SRC_T_FIELD_NUMBER: _ClassVar[int]
    DST_T_FIELD_NUMBER: _ClassVar[int]
    src_t: int
    dst_t: int
    def __init__(self, src_t: _Optional[int] = ..., dst_t: _Optional[int] = ...) -> None: ...

class QuantDTypeCastV2(_message.Message):
    __slots__ = ("src_t", "dst_t", "axis")
    SRC_T_FIELD_NUMBER: _ClassVar[int]
    DST_T_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    src_t: int
    dst_t: int
    axis: int
    def __init__(self, src_t: _Optional[int] = ..., dst_t: _Optional[int] = ..., axis: _Optional[int] = ...) -> None: ...

class AddFusion(_message.Message):
    __slots__ = ("activation_type",)
    ACTIVATION_TYPE_FIELD_NUMBER: _ClassVar[int]
    activation_type: _enums_pb2.ActivationType
    def __init__(self, activation_type: _Optional[_Union[_enums_pb2.ActivationType, str]] = ...) -> None: ...

class SubFusion(_message.Message):
    __slots__ = ("activation_type",)
    ACTIVATION_TYPE_FIELD_NUMBER: _ClassVar[int]
    activation_type: _enums_pb2.ActivationType
    def __init__(self, activation_type: _Optional[_Union[_enums_pb2.ActivationType, str]] = ...) -> None: ...

class MulFusion(_message.Message):
    __slots__ = ("activation_type",)
    ACTIVATION_TYPE_FIELD_NUMBER: _ClassVar[int]
    activation_type: _enums_pb2.ActivationType
    def __init__(self, activation_type: _Optional[_Union[_enums_pb2.ActivationType, str]] = ...) -> None: ...

class DivFusion(_message.Message):
    __slots__ = ("activation_type",)
    ACTIVATION_TYPE_FIELD_NUMBER: _ClassVar[int]
    activation_type: _enums_pb2.ActivationType
    def __init__(self, activation_type: _Optional[_Union[_enums_pb2.ActivationType, str]] = ...) -> None: ...

class RealDiv(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Mod(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PowFusion(_message.Message):
    __slots__ = ("scale", "shift")
    SCALE_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    scale: float
    shift: float
    def __init__(self, scale: _Optional[float] = ..., shift: _Optional[float] = ...) -> None: ...

class Maximum(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Minimum(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SquaredDifference(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Eltwise(_message.Message):
    __slots__ = ("mode",)
    MODE_FIELD_NUMBER: _ClassVar[int]
    mode: _enums_pb2.EltwiseMode
    def __init__(self, mode: _Optional[_Union[_enums_pb2.EltwiseMode, str]] = ...) -> None: ...

class BiasAdd(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ScaleFusion(_message.Message):
    __slots__ = ("axis", "activation_type")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_TYPE_FIELD_NUMBER: _ClassVar[int]
    axis: int
    activation_type: _enums_pb2.ActivationType
    def __init__(self, axis: _Optional[int] = ..., activation_type: _Optional[_Union[_enums_pb2.ActivationType, str]] = ...) -> None: ...

class Equal(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NotEqual(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Greater(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GreaterEqual(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Less(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LessEqual(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LogicalAnd(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LogicalOr(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LogicalNot(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Select(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Where(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Assert(_message.Message):
    __slots__ = ("summarize",)
    SUMMARIZE_FIELD_NUMBER: _ClassVar[int]
    summarize: int
    def __init__(self, summarize: _Optional[int] = ...) -> None: ...

class ReduceFusion(_message.Message):
    __slots__ = ("keep_dims", "mode", "reduce_to_end", "coeff")
    KEEP_DIMS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    REDUCE_TO_END_FIELD_NUMBER: _ClassVar[int]
    COEFF_FIELD_NUMBER: _ClassVar[int]
    keep_dims: bool
    mode: _enums_pb2.ReduceMode
    reduce_to_end: bool
    coeff: float
    def __init__(self, keep_dims: bool = ..., mode: _Optional[_Union[_enums_pb2.ReduceMode, str]] = ..., reduce_to_end: bool = ..., coeff: _Optional[float] = ...) -> None: ...

class All(_message.Message):
    __slots__ = ("keep_dims",)
    KEEP_DIMS_FIELD_NUMBER: _ClassVar[int]
    keep_dims: int
    def __init__(self, keep_dims: _Optional[int] = ...) -> None: ...

class ArgMaxFusion(_message.Message):
    __slots__ = ("axis", "top_k", "keep_dims", "out_max_value")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    KEEP_DIMS_FIELD_NUMBER: _ClassVar[int]
    OUT_MAX_VALUE_FIELD_NUMBER: _ClassVar[int]
    axis: int
    top_k: int
    keep_dims: bool
    out_max_value: bool
    def __init__(self, axis: _Optional[int] = ..., top_k: _Optional[int] = ..., keep_dims: bool = ..., out_max_value: bool = ...) -> None: ...

class TopKFusion(_message.Message):
    __slots__ = ("sorted", "axis")
    SORTED_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    sorted: bool
    axis: int
    def __init__(self, sorted: bool = ..., axis: _Optional[int] = ...) -> None: ...

class FullConnection(_message.Message):
    __slots__ = ("has_bias", "use_axis", "axis", "activation_type")
    HAS_BIAS_FIELD_NUMBER: _ClassVar[int]
    USE_AXIS_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_TYPE_FIELD_NUMBER: _ClassVar[int]
    has_bias: bool
    use_axis: bool
    axis: int
    activation_type: _enums_pb2.ActivationType
    def __init__(self, has_bias: bool = ..., use_axis: bool = ..., axis: _Optional[int] = ..., activation_type: _Optional[_Union[_enums_pb2.ActivationType, str]] = ...) -> None: ...

class MatMulFusion(_message.Message):
    __slots__ = ("transpose_a", "transpose_b", "activation_type")
    TRANSPOSE_A_FIELD_NUMBER: _ClassVar[int]
    TRANSPOSE_B_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_TYPE_FIELD_NUMBER: _ClassVar[int]
    transpose_a: bool
    transpose_b: bool
    activation_type: _enums_pb2.ActivationType
    def __init__(self, transpose_a: bool = ..., transpose_b: bool = ..., activation_type: _Optional[_Union[_enums_pb2.ActivationType, str]] = ...) -> None: ...

class LSTM(_message.Message):
    __slots__ = ("bidirectional", "has_bias", "input_size", "hidden_size", "num_layers", "num_directions", "dropout", "zoneout_cell", "zoneout_hidden", "proj_size")
    BIDIRECTIONAL_FIELD_NUMBER: _ClassVar[int]
    HAS_BIAS_FIELD_NUMBER: _ClassVar[int]
    INPUT_SIZE_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    NUM_DIRECTIONS_FIELD_NUMBER: _ClassVar[int]
    DROPOUT_FIELD_NUMBER: _ClassVar[int]
    ZONEOUT_CELL_FIELD_NUMBER: _ClassVar[int]
    ZONEOUT_HIDDEN_FIELD_NUMBER: _ClassVar[int]
    PROJ_SIZE_FIELD_NUMBER: _ClassVar[int]
    bidirectional: bool
    has_bias: bool
    input_size: int
    hidden_size: int
    num_layers: int
    num_directions: int
    dropout: float
    zoneout_cell: float
    zoneout_hidden: float
    proj_size: int
    def __init__(self, bidirectional: bool = ..., has_bias: bool = ..., input_size: _Optional[int] = ..., hidden_size: _Optional[int] = ..., num_layers: _Optional[int] = ..., num_directions: _Optional[int] = ..., dropout: _Optional[float] = ..., zoneout_cell: _Optional[float] = ..., zoneout_hidden: _Optional[float] = ..., proj_size: _Optional[int] = ...) -> None: ...

class Conv2DFusion(_message.Message):
    __slots__ = ("kernel_size", "stride", "dilation", "pad_mode", "pad_list", "group", "in_channel", "out_channel", "activation_type")
    KERNEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    DILATION_FIELD_NUMBER: _ClassVar[int]
    PAD_MODE_FIELD_NUMBER: _ClassVar[int]
    PAD_LIST_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    IN_CHANNEL_FIELD_NUMBER: _ClassVar[int]
    OUT_CHANNEL_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_TYPE_FIELD_NUMBER: _ClassVar[int]
    kernel_size: _containers.RepeatedScalarFieldContainer[int]
    stride: _containers.RepeatedScalarFieldContainer[int]
    dilation: _containers.RepeatedScalarFieldContainer[int]
    pad_mode: _enums_pb2.PadMode
    pad_list: _containers.RepeatedScalarFieldContainer[int]
    group: int
    in_channel: int
    out_channel: int
    activation_type: _enums_pb2.ActivationType
    def __init__(self, kernel_size: _Optional[_Iterable[int]] = ..., stride: _Optional[_Iterable[int]] = ..., dilation: _Optional[_Iterable[int]] = ..., pad_mode: _Optional[_Union[_enums_pb2.PadMode, str]] = ..., pad_list: _Optional[_Iterable[int]] = ..., group: _Optional[int] = ..., in_channel: _Optional[int] = ..., out_channel: _Optional[int] = ..., activation_type: _Optional[_Union[_enums_pb2.ActivationType, str]] = ...) -> None: ...

class Conv2dTransposeFusion(_message.Message):
    __slots__ = ("kernel_size", "stride", "dilation", "pad_mode", "pad_list", "group", "in_channel", "out_channel", "activation_type", "output_paddings")
    KERNEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    DILATION_FIELD_NUMBER: _ClassVar[int]
    PAD_MODE_FIELD_NUMBER: _ClassVar[int]
    PAD_LIST_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    IN_CHANNEL_FIELD_NUMBER: _ClassVar[int]
    OUT_CHANNEL_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_TYPE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_PADDINGS_FIELD_NUMBER: _ClassVar[int]
    kernel_size: _containers.RepeatedScalarFieldContainer[int]
    stride: _containers.RepeatedScalarFieldContainer[int]
    dilation: _containers.RepeatedScalarFieldContainer[int]
    pad_mode: _enums_pb2.PadMode
    pad_list: _containers.RepeatedScalarFieldContainer[int]
    group: int
    in_channel: int
    out_channel: int
    activation_type: _enums_pb2.ActivationType
    output_paddings: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, kernel_size: _Optional[_Iterable[int]] = ..., stride: _Optional[_Iterable[int]] = ..., dilation: _Optional[_Iterable[int]] = ..., pad_mode: _Optional[_Union[_enums_pb2.PadMode, str]] = ..., pad_list: _Optional[_Iterable[int]] = ..., group: _Optional[int] = ..., in_channel: _Optional[int] = ..., out_channel: _Optional[int] = ..., activation_type: _Optional[_Union[_enums_pb2.ActivationType, str]] = ..., output_paddings: _Optional[_Iterable[int]] = ...) -> None: ...

class AvgPoolFusion(_message.Message):
    __slots__ = ("kernel_size", "strides", "pad", "pad_mode", "round_mode", "format", "activation_type")
    KERNEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    STRIDES_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    PAD_MODE_FIELD_NUMBER: _ClassVar[int]
    ROUND_MODE_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_TYPE_FIELD_NUMBER: _ClassVar[int]
    kernel_size: _containers.RepeatedScalarFieldContainer[int]
    strides: _containers.RepeatedScalarFieldContainer[int]
    pad: _containers.RepeatedScalarFieldContainer[int]
    pad_mode: _enums_pb2.PadMode
    round_mode: _enums_pb2.RoundMode
    format: _enums_pb2.Format
    activation_type: _enums_pb2.ActivationType
    def __init__(self, kernel_size: _Optional[_Iterable[int]] = ..., strides: _Optional[_Iterable[int]] = ..., pad: _Optional[_Iterable[int]] = ..., pad_mode: _Optional[_Union[_enums_pb2.PadMode, str]] = ..., round_mode: _Optional[_Union[_enums_pb2.RoundMode, str]] = ..., format: _Optional[_Union[_enums_pb2.Format, str]] = ..., activation_type: _Optional[_Union[_enums_pb2.ActivationType, str]] = ..., **kwargs) -> None: ...

class MaxPoolFusion(_message.Message):
    __slots__ = ("kernel_size", "strides", "pad", "pad_mode", "format", "round_mode", "activation_type")
    KERNEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    STRIDES_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    PAD_MODE_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    ROUND_MODE_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_TYPE_FIELD_NUMBER: _ClassVar[int]
    kernel_size: _containers.RepeatedScalarFieldContainer[int]
    strides: _containers.RepeatedScalarFieldContainer[int]
    pad: _containers.RepeatedScalarFieldContainer[int]
    pad_mode: _enums_pb2.PadMode
    format: _enums_pb2.Format
    round_mode: _enums_pb2.RoundMode
    activation_type: _enums_pb2.ActivationType
    def __init__(self, kernel_size: _Optional[_Iterable[int]] = ..., strides: _Optional[_Iterable[int]] = ..., pad: _Optional[_Iterable[int]] = ..., pad_mode: _Optional[_Union[_enums_pb2.PadMode, str]] = ..., format: _Optional[_Union[_enums_pb2.Format, str]] = ..., round_mode: _Optional[_Union[_enums_pb2.RoundMode, str]] = ..., activation_type: _Optional[_Union[_enums_pb2.ActivationType, str]] = ..., **kwargs) -> None: ...

class FusedBatchNorm(_message.Message):
    __slots__ = ("epsilon",)
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    epsilon: float
    def __init__(self, epsilon: _Optional[float] = ...) -> None: ...

class InstanceNorm(_message.Message):
    __slots__ = ("epsilon",)
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    epsilon: float
    def __init__(self, epsilon: _Optional[float] = ...) -> None: ...

class LayerNormFusion(_message.Message):
    __slots__ = ("begin_norm_axis", "epsilon", "elementwise_affine", "begin_params_axis")
    BEGIN_NORM_AXIS_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    ELEMENTWISE_AFFINE_FIELD_NUMBER: _ClassVar[int]
    BEGIN_PARAMS_AXIS_FIELD_NUMBER: _ClassVar[int]
    begin_norm_axis: int
    epsilon: float
    elementwise_affine: bool
    begin_params_axis: int
    def __init__(self, begin_norm_axis: _Optional[int] = ..., epsilon: _Optional[float] = ..., elementwise_affine: bool = ..., begin_params_axis: _Optional[int] = ...) -> None: ...

class L2NormalizeFusion(_message.Message):
    __slots__ = ("axis", "epsilon", "activation_type")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_TYPE_FIELD_NUMBER: _ClassVar[int]
    axis: _containers.RepeatedScalarFieldContainer[int]
    epsilon: float
    activation_type: _enums_pb2.ActivationType
    def __init__(self, axis: _Optional[_Iterable[int]] = ..., epsilon: _Optional[float] = ..., activation_type: _Optional[_Union[_enums_pb2.ActivationType, str]] = ...) -> None: ...

class LRN(_message.Message):
    __slots__ = ("depth_radius", "bias", "alpha", "beta", "norm_region")
    DEPTH_RADIUS_FIELD_NUMBER: _ClassVar[int]
    BIAS_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    BETA_FIELD_NUMBER: _ClassVar[int]
    NORM_REGION_FIELD_NUMBER: _ClassVar[int]
    depth_radius: int
    bias: float
    alpha: float
    beta: float
    norm_region: str
    def __init__(self, depth_radius: _Optional[int] = ..., bias: _Optional[float] = ..., alpha: _Optional[float] = ..., beta: _Optional[float] = ..., norm_region: _Optional[str] = ...) -> None: ...

class Shape(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Rank(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Reshape(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Flatten(_message.Message):
    __slots__ = ("axis",)
    AXIS_FIELD_NUMBER: _ClassVar[int]
    axis: int
    def __init__(self, axis: _Optional[int] = ...) -> None: ...

class Squeeze(_message.Message):
    __slots__ = ("axis",)
    AXIS_FIELD_NUMBER: _ClassVar[int]
    axis: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, axis: _Optional[_Iterable[int]] = ...) -> None: ...

class Unsqueeze(_message.Message):
    __slots__ = ("axis",)
    AXIS_FIELD_NUMBER: _ClassVar[int]
    axis: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, axis: _Optional[_Iterable[int]] = ...) -> None: ...

class ExpandDims(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Transpose(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BroadcastTo(_message.Message):
    __slots__ = ("shape",)
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, shape: _Optional[_Iterable[int]] = ...) -> None: ...

class TileFusion(_message.Message):
    __slots__ = ("dims",)
    DIMS_FIELD_NUMBER: _ClassVar[int]
    dims: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dims: _Optional[_Iterable[int]] = ...) -> None: ...

class Concat(_message.Message):
    __slots__ = ("axis",)
    AXIS_FIELD_NUMBER: _ClassVar[int]
    axis: int
    def __init__(self, axis: _Optional[int] = ...) -> None: ...

class Split(_message.Message):
    __slots__ = ("output_num", "size_splits", "axis")
    OUTPUT_NUM_FIELD_NUMBER: _ClassVar[int]
    SIZE_SPLITS_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    output_num: int
    size_splits: _containers.RepeatedScalarFieldContainer[int]
    axis: int
    def __init__(self, output_num: _Optional[int] = ..., size_splits: _Optional[_Iterable[int]] = ..., axis: _Optional[int] = ...) -> None: ...

class Stack(_message.Message):
    __slots__ = ("axis",)
    AXIS_FIELD_NUMBER: _ClassVar[int]
    axis: int
    def __init__(self, axis: _Optional[int] = ...) -> None: ...

class Unstack(_message.Message):
    __slots__ = ("axis",)
    AXIS_FIELD_NUMBER: _ClassVar[int]
    axis: int
    def __init__(self, axis: _Optional[int] = ...) -> None: ...

class PadFusion(_message.Message):
    __slots__ = ("paddings", "padding_mode", "constant_value")
    PADDINGS_FIELD_NUMBER: _ClassVar[int]
    PADDING_MODE_FIELD_NUMBER: _ClassVar[int]
    CONSTANT_VALUE_FIELD_NUMBER: _ClassVar[int]
    paddings: _containers.RepeatedCompositeFieldContainer[Int64List]
    padding_mode: _enums_pb2.PaddingMode
    constant_value: float
    def __init__(self, paddings: _Optional[_Iterable[_Union[Int64List, _Mapping]]] = ..., padding_mode: _Optional[_Union[_enums_pb2.PaddingMode, str]] = ..., constant_value: _Optional[float] = ...) -> None: ...

class Gather(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GatherNd(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ScatterNd(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SliceFusion(_message.Message):
    __slots__ = ("axes",)
    AXES_FIELD_NUMBER: _ClassVar[int]
    axes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, axes: _Optional[_Iterable[int]] = ...) -> None: ...

class StridedSlice(_message.Message):
    __slots__ = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    BEGIN_MASK_FIELD_NUMBER: _ClassVar[int]
    END_MASK_FIELD_NUMBER: _ClassVar[int]
    ELLIPSIS_MASK_FIELD_NUMBER: _ClassVar[int]
    NEW_AXIS_MASK_FIELD_NUMBER: _ClassVar[int]
    SHRINK_AXIS_MASK_FIELD_NUMBER: _ClassVar[int]
    begin_mask: int
    end_mask: int
    ellipsis_mask: int
    new_axis_mask: int
    shrink_axis_mask: int
    def __init__(self, begin_mask: _Optional[int] = ..., end_mask: _Optional[int] = ..., ellipsis_mask: _Optional[int] = ..., new_axis_mask: _Optional[int] = ..., shrink_axis_mask: _Optional[int] = ...) -> None: ...

class Crop(_message.Message):
    __slots__ = ("axis", "offset")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    axis: int
    offset: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, axis: _Optional[int] = ..., offset: _Optional[_Iterable[int]] = ...) -> None: ...

class OneHot(_message.Message):
    __slots__ = ("axis",)
    AXIS_FIELD_NUMBER: _ClassVar[int]
    axis: int
    def __init__(self, axis: _Optional[int] = ...) -> None: ...

class SparseToDense(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Fill(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ConstantOfShape(_message.Message):
    __slots__ = ("data_type", "value")
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    data_type: int
    value: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, data_type: _Optional[int] = ..., value: _Optional[_Iterable[float]] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("data_type", "start", "limit", "delta")
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    data_type: int
    start: int
    limit: int
    delta: int
    def __init__(self, data_type: _Optional[int] = ..., start: _Optional[int] = ..., limit: _Optional[int] = ..., delta: _Optional[int] = ...) -> None: ...

class BatchToSpaceND(_message.Message):
    __slots__ = ("block_shape", "crops")
    BLOCK_SHAPE_FIELD_NUMBER: _ClassVar[int]
    CROPS_FIELD_NUMBER: _ClassVar[int]
    block_shape: _containers.RepeatedScalarFieldContainer[int]
    crops: _containers.RepeatedCompositeFieldContainer[Int64List]
    def __init__(self, block_shape: _Optional[_Iterable[int]] = ..., crops: _Optional[_Iterable[_Union[Int64List, _Mapping]]] = ...) -> None: ...

class SpaceToBatchND(_message.Message):
    __slots__ = ("block_shape", "paddings")
    BLOCK_SHAPE_FIELD_NUMBER: _ClassVar[int]
    PADDINGS_FIELD_NUMBER: _ClassVar[int]
    block_shape: _containers.RepeatedScalarFieldContainer[int]
    paddings: _containers.RepeatedCompositeFieldContainer[Int64List]
    def __init__(self, block_shape: _Optional[_Iterable[int]] = ..., paddings: _Optional[_Iterable[_Union[Int64List, _Mapping]]] = ...) -> None: ...

class DepthToSpace(_message.Message):
    __slots__ = ("block_size", "format", "mode")
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    block_size: int
    format: _enums_pb2.Format
    mode: str
    def __init__(self, block_size: _Optional[int] = ..., format: _Optional[_Union[_enums_pb2.Format, str]] = ..., mode: _Optional[str] = ...) -> None: ...

class SpaceToDepth(_message.Message):
    __slots__ = ("block_size", "format")
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    block_size: int
    format: _enums_pb2.Format
    def __init__(self, block_size: _Optional[int] = ..., format: _Optional[_Union[_enums_pb2.Format, str]] = ...) -> None: ...

class Resize(_message.Message):
    __slots__ = ("method", "new_height", "new_width", "preserve_aspect_ratio", "coordinate_transform_mode", "cubic_coeff", "exclude_outside", "extrapolation_value", "nearest_mode")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    NEW_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEW_WIDTH_FIELD_NUMBER: _ClassVar[int]
    PRESERVE_ASPECT_RATIO_FIELD_NUMBER: _ClassVar[int]
    COORDINATE_TRANSFORM_MODE_FIELD_NUMBER: _ClassVar[int]
    CUBIC_COEFF_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_OUTSIDE_FIELD_NUMBER: _ClassVar[int]
    EXTRAPOLATION_VALUE_FIELD_NUMBER: _ClassVar[int]
    NEAREST_MODE_FIELD_NUMBER: _ClassVar[int]
    method: _enums_pb2.ResizeMethod
    new_height: int
    new_width: int
    preserve_aspect_ratio: bool
    coordinate_transform_mode: _enums_pb2.CoordinateTransformMode
    cubic_coeff: float
    exclude_outside: int
    extrapolation_value: float
    nearest_mode: _enums_pb2.NearestMode
    def __init__(self, method: _Optional[_Union[_enums_pb2.ResizeMethod, str]] = ..., new_height: _Optional[int] = ..., new_width: _Optional[int] = ..., preserve_aspect_ratio: bool = ..., coordinate_transform_mode: _Optional[_Union[_enums_pb2.CoordinateTransformMode, str]] = ..., cubic_coeff: _Optional[float] = ..., exclude_outside: _Optional[int] = ..., extrapolation_value: _Optional[float] = ..., nearest_mode: _Optional[_Union[_enums_pb2.NearestMode, str]] = ...) -> None: ...

class DetectionPostProcess(_message.Message):
    __slots__ = ("format", "input_size", "scale", "nms_io_u_threshold", "nms_score_threshold", "max_detections", "detections_per_class", "max_classes_per_detection", "num_classes", "use_regular_nms", "out_quantized")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    INPUT_SIZE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    NMS_IO_U_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    NMS_SCORE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    MAX_DETECTIONS_FIELD_NUMBER: _ClassVar[int]
    DETECTIONS_PER_CLASS_FIELD_NUMBER: _ClassVar[int]
    MAX_CLASSES_PER_DETECTION_FIELD_NUMBER: _ClassVar[int]
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    USE_REGULAR_NMS_FIELD_NUMBER: _ClassVar[int]
    OUT_QUANTIZED_FIELD_NUMBER: _ClassVar[int]
    format: _enums_pb2.Format
    input_size: int
    scale: _containers.RepeatedScalarFieldContainer[float]
    nms_io_u_threshold: float
    nms_score_threshold: float
    max_detections: int
    detections_per_class: int
    max_classes_per_detection: int
    num_classes: int
    use_regular_nms: bool
    out_quantized: bool
    def __init__(self, format: _Optional[_Union[_enums_pb2.Format, str]] = ..., input_size: _Optional[int] = ..., scale: _Optional[_Iterable[float]] = ..., nms_io_u_threshold: _Optional[float] = ..., nms_score_threshold: _Optional[float] = ..., max_detections: _Optional[int] = ..., detections_per_class: _Optional[int] = ..., max_classes_per_detection: _Optional[int] = ..., num_classes: _Optional[int] = ..., use_regular_nms: bool = ..., out_quantized: bool = ...) -> None: ...
