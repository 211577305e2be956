from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor

class DeviceType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEVICE_TYPE_OTHER: _ClassVar[DeviceType]
    DEVICE_TYPE_CPU: _ClassVar[DeviceType]
    DEVICE_TYPE_GPU: _ClassVar[DeviceType]
    DEVICE_TYPE_ACCELERATOR: _ClassVar[DeviceType]

class DeviceStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEVICE_STATUS_AVAILABLE: _ClassVar[DeviceStatus]
    DEVICE_STATUS_BUSY: _ClassVar[DeviceStatus]
    DEVICE_STATUS_OFFLINE: _ClassVar[DeviceStatus]
    DEVICE_STATUS_UNKNOWN: _ClassVar[DeviceStatus]

class PerformanceMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PERFORMANCE_NONE: _ClassVar[PerformanceMode]
    PERFORMANCE_LOW: _ClassVar[PerformanceMode]
    PERFORMANCE_MEDIUM: _ClassVar[PerformanceMode]
    PERFORMANCE_HIGH: _ClassVar[PerformanceMode]
    PERFORMANCE_EXTREME: _ClassVar[PerformanceMode]

class Priority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIORITY_NONE: _ClassVar[Priority]
    PRIORITY_LOW: _ClassVar[Priority]
    PRIORITY_MEDIUM: _ClassVar[Priority]
    PRIORITY_HIGH: _ClassVar[Priority]

class DataType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DATA_TYPE_UNKNOWN: _ClassVar[DataType]
    DATA_TYPE_BOOL: _ClassVar[DataType]
    DATA_TYPE_INT8: _ClassVar[DataType]
    DATA_TYPE_INT16: _ClassVar[DataType]
    DATA_TYPE_INT32: _ClassVar[DataType]
    DATA_TYPE_INT64: _ClassVar[DataType]
    DATA_TYPE_UINT8: _ClassVar[DataType]
    DATA_TYPE_UINT16: _ClassVar[DataType]
    DATA_TYPE_UINT32: _ClassVar[DataType]
    DATA_TYPE_UINT64: _ClassVar[DataType]
    DATA_TYPE_FLOAT16: _ClassVar[DataType]
    DATA_TYPE_FLOAT32: _ClassVar[DataType]
    DATA_TYPE_FLOAT64: _ClassVar[DataType]

class Format(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FORMAT_NCHW: _ClassVar[Format]
    FORMAT_NHWC: _ClassVar[Format]
    FORMAT_NONE: _ClassVar[Format]

class QuantType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    QUANT_TYPE_NONE: _ClassVar[QuantType]
    QUANT_TYPE_ALL: _ClassVar[QuantType]

class NodeType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NODE_TYPE_NONE: _ClassVar[NodeType]
    NODE_TYPE_ABS: _ClassVar[NodeType]
    NODE_TYPE_ACTIVATION: _ClassVar[NodeType]
    NODE_TYPE_ADD_FUSION: _ClassVar[NodeType]
    NODE_TYPE_ALL: _ClassVar[NodeType]
    NODE_TYPE_ARGMAX_FUSION: _ClassVar[NodeType]
    NODE_TYPE_ASSERT: _ClassVar[NodeType]
    NODE_TYPE_AVGPOOL_FUSION: _ClassVar[NodeType]
    NODE_TYPE_BATCH_TO_SPACE_ND: _ClassVar[NodeType]
    NODE_TYPE_BIAS_ADD: _ClassVar[NodeType]
    NODE_TYPE_BROADCAST_TO: _ClassVar[NodeType]
    NODE_TYPE_CAST: _ClassVar[NodeType]
    NODE_TYPE_CEIL: _ClassVar[NodeType]
    NODE_TYPE_CLIP: _ClassVar[NodeType]
    NODE_TYPE_CONCAT: _ClassVar[NodeType]
    NODE_TYPE_CONV2D_FUSION: _ClassVar[NodeType]
    NODE_TYPE_CONV2D_TRANSPOSE_FUSION: _ClassVar[NodeType]
    NODE_TYPE_COS: _ClassVar[NodeType]
    NODE_TYPE_CONSTANT_OF_SHAPE: _ClassVar[NodeType]
    NODE_TYPE_CROP: _ClassVar[NodeType]
    NODE_TYPE_DEPTH_TO_SPACE: _ClassVar[NodeType]
    NODE_TYPE_DETECTION_POST_PROCESS: _ClassVar[NodeType]
    NODE_TYPE_DIV_FUSION: _ClassVar[NodeType]
    NODE_TYPE_ELTWISE: _ClassVar[NodeType]
    NODE_TYPE_EQUAL: _ClassVar[NodeType]
    NODE_TYPE_EXPFUSION: _ClassVar[NodeType]
    NODE_TYPE_EXPAND_DIMS: _ClassVar[NodeType]
    NODE_TYPE_FLATTEN: _ClassVar[NodeType]
    NODE_TYPE_FLOOR: _ClassVar[NodeType]
    NODE_TYPE_FILL: _ClassVar[NodeType]
    NODE_TYPE_FULL_CONNECTION: _ClassVar[NodeType]
    NODE_TYPE_FUSED_BATCH_NORM: _ClassVar[NodeType]
    NODE_TYPE_GATHER: _ClassVar[NodeType]
    NODE_TYPE_GATHER_ND: _ClassVar[NodeType]
    NODE_TYPE_GREATER: _ClassVar[NodeType]
    NODE_TYPE_GREATER_EQUAL: _ClassVar[NodeType]
    NODE_TYPE_INSTANCE_NORM: _ClassVar[NodeType]
    NODE_TYPE_LAYER_NORM_FUSION: _ClassVar[NodeType]
    NODE_TYPE_LEAKY_RELU: _ClassVar[NodeType]
    NODE_TYPE_LESS: _ClassVar[NodeType]
    NODE_TYPE_LESS_EQUAL: _ClassVar[NodeType]
    NODE_TYPE_LOG: _ClassVar[NodeType]
    NODE_TYPE_LOGICAL_AND: _ClassVar[NodeType]
    NODE_TYPE_LOGICAL_NOT: _ClassVar[NodeType]
    NODE_TYPE_LOGICAL_OR: _ClassVar[NodeType]
    NODE_TYPE_LRN: _ClassVar[NodeType]
    NODE_TYPE_LSTM: _ClassVar[NodeType]
    NODE_TYPE_L2_NORMALIZE_FUSION: _ClassVar[NodeType]
    NODE_TYPE_MATMUL_FUSION: _ClassVar[NodeType]
    NODE_TYPE_MAXIMUM: _ClassVar[NodeType]
    NODE_TYPE_MAX_POOL_FUSION: _ClassVar[NodeType]
    NODE_TYPE_MINIMUM: _ClassVar[NodeType]
    NODE_TYPE_MOD: _ClassVar[NodeType]
    NODE_TYPE_MUL_FUSION: _ClassVar[NodeType]
    NODE_TYPE_NEG: _ClassVar[NodeType]
    NODE_TYPE_NOT_EQUAL: _ClassVar[NodeType]
    NODE_TYPE_ONE_HOT: _ClassVar[NodeType]
    NODE_TYPE_PAD_FUSION: _ClassVar[NodeType]
    NODE_TYPE_POW_FUSION: _ClassVar[NodeType]
    NODE_TYPE_PRELU_FUSION: _ClassVar[NodeType]
    NODE_TYPE_QUANT_DTYPE_CAST: _ClassVar[NodeType]
    NODE_TYPE_RANK: _ClassVar[NodeType]
    NODE_TYPE_RANGE: _ClassVar[NodeType]
    NODE_TYPE_RECIPROCAL: _ClassVar[NodeType]
    NODE_TYPE_REAL_DIV: _ClassVar[NodeType]
    NODE_TYPE_REDUCE_FUSION: _ClassVar[NodeType]
    NODE_TYPE_RESHAPE: _ClassVar[NodeType]
    NODE_TYPE_RESIZE: _ClassVar[NodeType]
    NODE_TYPE_ROUND: _ClassVar[NodeType]
    NODE_TYPE_RSQRT: _ClassVar[NodeType]
    NODE_TYPE_SCALE_FUSION: _ClassVar[NodeType]
    NODE_TYPE_SCATTER_ND: _ClassVar[NodeType]
    NODE_TYPE_SHAPE: _ClassVar[NodeType]
    NODE_TYPE_SIN: _ClassVar[NodeType]
    NODE_TYPE_SLICE_FUSION: _ClassVar[NodeType]
    NODE_TYPE_SOFTMAX: _ClassVar[NodeType]
    NODE_TYPE_SPACE_TO_BATCH_ND: _ClassVar[NodeType]
    NODE_TYPE_SPACE_TO_DEPTH: _ClassVar[NodeType]
    NODE_TYPE_SPARSE_TO_DENSE: _ClassVar[NodeType]
    NODE_TYPE_SPLIT: _ClassVar[NodeType]
    NODE_TYPE_SQRT: _ClassVar[NodeType]
    NODE_TYPE_SQUEEZE: _ClassVar[NodeType]
    NODE_TYPE_SQUARE: _ClassVar[NodeType]
    NODE_TYPE_SQUARED_DIFFERENCE: _ClassVar[NodeType]
    NODE_TYPE_STACK: _ClassVar[NodeType]
    NODE_TYPE_STRIDED_SLICE: _ClassVar[NodeType]
    NODE_TYPE_SUB_FUSION: _ClassVar[NodeType]
    NODE_TYPE_TILE_FUSION: _ClassVar[NodeType]
    NODE_TYPE_TOPK_FUSION: _ClassVar[NodeType]
    NODE_TYPE_TRANSPOSE: _ClassVar[NodeType]
    NODE_TYPE_UNSQUEEZE: _ClassVar[NodeType]
    NODE_TYPE_UNSTACK: _ClassVar[NodeType]
    NODE_TYPE_WHERE: _ClassVar[NodeType]
    NODE_TYPE_SELECT: _ClassVar[NodeType]
    NODE_TYPE_ERF: _ClassVar[NodeType]
    NODE_TYPE_LOG_SOFTMAX: _ClassVar[NodeType]
    NODE_TYPE_QUANT_DTYPE_CAST_V2: _ClassVar[NodeType]

class ActivationType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTIVATION_TYPE_NO_ACTIVATION: _ClassVar[ActivationType]
    ACTIVATION_TYPE_RELU: _ClassVar[ActivationType]
    ACTIVATION_TYPE_SIGMOID: _ClassVar[ActivationType]
    ACTIVATION_TYPE_RELU6: _ClassVar[ActivationType]
    ACTIVATION_TYPE_ELU: _ClassVar[ActivationType]
    ACTIVATION_TYPE_LEAKY_RELU: _ClassVar[ActivationType]
    ACTIVATION_TYPE_ABS: _ClassVar[ActivationType]
    ACTIVATION_TYPE_RELU1: _ClassVar[ActivationType]
    ACTIVATION_TYPE_SOFTSIGN: _ClassVar[ActivationType]
    ACTIVATION_TYPE_SOFTPLUS: _ClassVar[ActivationType]
    ACTIVATION_TYPE_TANH: _ClassVar[ActivationType]
    ACTIVATION_TYPE_SELU: _ClassVar[ActivationType]
    ACTIVATION_TYPE_HSWISH: _ClassVar[ActivationType]
    ACTIVATION_TYPE_HSIGMOID: _ClassVar[ActivationType]
    ACTIVATION_TYPE_THRESHOLDRELU: _ClassVar[ActivationType]
    ACTIVATION_TYPE_LINEAR: _ClassVar[ActivationType]
    ACTIVATION_TYPE_HARD_TANH: _ClassVar[ActivationType]
    ACTIVATION_TYPE_SIGN: _ClassVar[ActivationType]
    ACTIVATION_TYPE_SWISH: _ClassVar[ActivationType]
    ACTIVATION_TYPE_GELU: _ClassVar[ActivationType]
    ACTIVATION_TYPE_UNKNOWN: _ClassVar[ActivationType]

class EltwiseMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ELTWISE_MODE_PROD: _ClassVar[EltwiseMode]
    ELTWISE_MODE_SUM: _ClassVar[EltwiseMode]
    ELTWISE_MODE_MAXIMUM: _ClassVar[EltwiseMode]
    ELTWISE_MODE_UNKNOWN: _ClassVar[EltwiseMode]

class ReduceMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REDUCE_MODE_MEAN: _ClassVar[ReduceMode]
    REDUCE_MODE_MAX: _ClassVar[ReduceMode]
    REDUCE_MODE_MIN: _ClassVar[ReduceMode]
    REDUCE_MODE_PROD: _ClassVar[ReduceMode]
    REDUCE_MODE_SUM: _ClassVar[ReduceMode]
    REDUCE_MODE_SUM_SQUARE: _ClassVar[ReduceMode]
    REDUCE_MODE_ASUM: _ClassVar[ReduceMode]
    REDUCE_MODE_ALL: _ClassVar[ReduceMode]
    REDUCE_MODE_L2: _ClassVar[ReduceMode]

class PadMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PAD_MODE_PAD: _ClassVar[PadMode]
    PAD_MODE_SAME: _ClassVar[PadMode]
    PAD_MODE_VALID: _ClassVar[PadMode]

class RoundMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROUND_MODE_FLOOR: _ClassVar[RoundMode]
    ROUND_MODE_CEIL: _ClassVar[RoundMode]

class PaddingMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PADDING_MODE_CONSTANT: _ClassVar[PaddingMode]
    PADDING_MODE_REFLECT: _ClassVar[PaddingMode]
    PADDING_MODE_SYMMETRIC: _ClassVar[PaddingMode]
    PADDING_MODE_RESERVED: _ClassVar[PaddingMode]

class ResizeMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESIZE_METHOD_LINEAR: _ClassVar[ResizeMethod]
    RESIZE_METHOD_NEAREST: _ClassVar[ResizeMethod]
    RESIZE_METHOD_CUBIC: _ClassVar[ResizeMethod]
    RESIZE_METHOD_UNKNOWN: _ClassVar[ResizeMethod]

class CoordinateTransformMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COORDINATE_TRANSFORM_MODE_ASYMMETRIC: _ClassVar[CoordinateTransformMode]
    COORDINATE_TRANSFORM_MODE_ALIGN_CORNERS: _ClassVar[CoordinateTransformMode]
    COORDINATE_TRANSFORM_MODE_HALF_PIXEL: _ClassVar[CoordinateTransformMode]

class NearestMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NEAREST_MODE_NORMAL: _ClassVar[NearestMode]
    NEAREST_MODE_ROUND_HALF_DOWN: _ClassVar[NearestMode]
    NEAREST_MODE_ROUND_HALF_UP: _ClassVar[NearestMode]
    NEAREST_MODE_FLOOR: _ClassVar[NearestMode]
    NEAREST_MODE_CEIL: _ClassVar[NearestMode]

class NnrtReturnCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NNRT_SUCCESS: _ClassVar[NnrtReturnCode]
    NNRT_FAILED: _ClassVar[NnrtReturnCode]
    NNRT_NULL_PTR: _ClassVar[NnrtReturnCode]
    NNRT_INVALID_PARAMETER: _ClassVar[NnrtReturnCode]
    NNRT_MEMORY_ERROR: _ClassVar[NnrtReturnCode]
    NNRT_OUT_OF_MEMORY: _ClassVar[NnrtReturnCode]
    NNRT_OPERATION_FORBIDDEN: _ClassVar[NnrtReturnCode]
    NNRT_INVALID_FILE: _ClassVar[NnrtReturnCode]
    NNRT_INVALID_PATH: _ClassVar[NnrtReturnCode]
    NNRT_INSUFFICIENT_BUFFER: _ClassVar[NnrtReturnCode]
    NNRT_NO_CHANGE: _ClassVar[NnrtReturnCode]
    NNRT_NOT_SUPPORT: _ClassVar[NnrtReturnCode]
    NNRT_SERVICE_ERROR: _ClassVar[NnrtReturnCode]
    NNRT_DEVICE_ERROR: _ClassVar[NnrtReturnCode]
    NNRT_DEVICE_BUSY: _ClassVar[NnrtReturnCode]
    NNRT_CANCELLED: _ClassVar[NnrtReturnCode]
    NNRT_PERMISSION_DENIED: _ClassVar[NnrtReturnCode]
    NNRT_TIME_OUT: _ClassVar[NnrtReturnCode]
    NNRT_INVALID_TENSOR: _ClassVar[NnrtReturnCode]
    NNRT_INVALID_NODE: _ClassVar[NnrtReturnCode]
    NNRT_INVALID_INPUT: _ClassVar[NnrtReturnCode]
    NNRT_INVALID_OUTPUT: _ClassVar[NnrtReturnCode]
    NNRT_INVALID_DATATYPE: _ClassVar[NnrtReturnCode]
    NNRT_INVALID_FORMAT: _ClassVar[NnrtReturnCode]
    NNRT_INVALID_TENSOR_NAME: _ClassVar[NnrtReturnCode]
    NNRT_INVALID_SHAPE: _ClassVar[NnrtReturnCode]
    NNRT_OUT_OF_DIMENTION_RANGES: _ClassVar[NnrtReturnCode]
    NNRT_INVALID_BUFFER: _ClassVar[NnrtReturnCode]
    NNRT_INVALID_BUFFER_SIZE: _ClassVar[NnrtReturnCode]
    NNRT_INVALID_PERFORMANCE_MODE: _ClassVar[NnrtReturnCode]
    NNRT_INVALID_PRIORITY: _ClassVar[NnrtReturnCode]
    NNRT_INVALID_MODEL: _ClassVar[NnrtReturnCode]
    NNRT_INVALID_MODEL_CACHE: _ClassVar[NnrtReturnCode]
    NNRT_UNSUPPORTED_OP: _ClassVar[NnrtReturnCode]

class ReturnCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RETURN_CODE_SUCCESS: _ClassVar[ReturnCode]
    RETURN_CODE_FAILED: _ClassVar[ReturnCode]
    RETURN_CODE_INVALID_PARAMETER: _ClassVar[ReturnCode]
    RETURN_CODE_MEMORY_ERROR: _ClassVar[ReturnCode]
    RETURN_CODE_OPERATION_FORBIDDEN: _ClassVar[ReturnCode]
    RETURN_CODE_NULL_PTR: _ClassVar[ReturnCode]
    RETURN_CODE_INVALID_FILE: _ClassVar[ReturnCode]
    RETURN_CODE_UNAVALIDABLE_DEVICE: _ClassVar[ReturnCode]
    RETURN_CODE_INVALID_PATH: _ClassVar[ReturnCode]
    RETURN_CODE_TIMEOUT: _ClassVar[ReturnCode]
    RETURN_CODE_UNSUPPORTED: _ClassVar[ReturnCode]
    RETURN_CODE_CONNECTION_EXCEPTION: _ClassVar[ReturnCode]
    RETURN_CODE_SAVE_CACHE_EXCEPTION: _ClassVar[ReturnCode]
    RETURN_CODE_DYNAMIC_SHAPE: _ClassVar[ReturnCode]
    RETURN_CODE_UNAVAILABLE_DEVICE: _ClassVar[ReturnCode]
DEVICE_TYPE_OTHER: DeviceType
DEVICE_TYPE_CPU: DeviceType
DEVICE_TYPE_GPU: DeviceType
DEVICE_TYPE_ACCELERATOR: DeviceType
DEVICE_STATUS_AVAILABLE: DeviceStatus
DEVICE_STATUS_BUSY: DeviceStatus
DEVICE_STATUS_OFFLINE: DeviceStatus
DEVICE_STATUS_UNKNOWN: DeviceStatus
PERFORMANCE_NONE: PerformanceMode
PERFORMANCE_LOW: PerformanceMode
PERFORMANCE_MEDIUM: PerformanceMode
PERFORMANCE_HIGH: PerformanceMode
PERFORMANCE_EXTREME: PerformanceMode
PRIORITY_NONE: Priority
PRIORITY_LOW: Priority
PRIORITY_MEDIUM: Priority
PRIORITY_HIGH: Priority
DATA_TYPE_UNKNOWN: DataType
DATA_TYPE_BOOL: DataType
DATA_TYPE_INT8: DataType
DATA_TYPE_INT16: DataType
DATA_TYPE_INT32: DataType
DATA_TYPE_INT64: DataType
DATA_TYPE_UINT8: DataType
DATA_TYPE_UINT16: DataType
DATA_TYPE_UINT32: DataType
DATA_TYPE_UINT64: DataType
DATA_TYPE_FLOAT16: DataType
DATA_TYPE_FLOAT32: DataType
DATA_TYPE_FLOAT64: DataType
FORMAT_NCHW: Format
FORMAT_NHWC: Format
FORMAT_NONE: Format
QUANT_TYPE_NONE: QuantType
QUANT_TYPE_ALL: QuantType
NODE_TYPE_NONE: NodeType
NODE_TYPE_ABS: NodeType
NODE_TYPE_ACTIVATION: NodeType
NODE_TYPE_ADD_FUSION: NodeType
NODE_TYPE_ALL: NodeType
NODE_TYPE_ARGMAX_FUSION: NodeType
NODE_TYPE_ASSERT: NodeType
NODE_TYPE_AVGPOOL_FUSION: NodeType
NODE_TYPE_BATCH_TO_SPACE_ND: NodeType
NODE_TYPE_BIAS_ADD: NodeType
NODE_TYPE_BROADCAST_TO: NodeType
NODE_TYPE_CAST: NodeType
NODE_TYPE_CEIL: NodeType
NODE_TYPE_CLIP: NodeType
NODE_TYPE_CONCAT: NodeType
NODE_TYPE_CONV2D_FUSION: NodeType
NODE_TYPE_CONV2D_TRANSPOSE_FUSION: NodeType
NODE_TYPE_COS: NodeType
NODE_TYPE_CONSTANT_OF_SHAPE: NodeType
NODE_TYPE_CROP: NodeType
NODE_TYPE_DEPTH_TO_SPACE: NodeType
NODE_TYPE_DETECTION_POST_PROCESS: NodeType
NODE_TYPE_DIV_FUSION: NodeType
NODE_TYPE_ELTWISE: NodeType
NODE_TYPE_EQUAL: NodeType
NODE_TYPE_EXPFUSION: NodeType
NODE_TYPE_EXPAND_DIMS: NodeType
NODE_TYPE_FLATTEN: NodeType
NODE_TYPE_FLOOR: NodeType
NODE_TYPE_FILL: NodeType
NODE_TYPE_FULL_CONNECTION: NodeType
NODE_TYPE_FUSED_BATCH_NORM: NodeType
NODE_TYPE_GATHER: NodeType
NODE_TYPE_GATHER_ND: NodeType
NODE_TYPE_GREATER: NodeType
NODE_TYPE_GREATER_EQUAL: NodeType
NODE_TYPE_INSTANCE_NORM: NodeType
NODE_TYPE_LAYER_NORM_FUSION: NodeType
NODE_TYPE_LEAKY_RELU: NodeType
NODE_TYPE_LESS: NodeType
NODE_TYPE_LESS_EQUAL: NodeType
NODE_TYPE_LOG: NodeType
NODE_TYPE_LOGICAL_AND: NodeType
NODE_TYPE_LOGICAL_NOT: NodeType
NODE_TYPE_LOGICAL_OR: NodeType
NODE_TYPE_LRN: NodeType
NODE_TYPE_LSTM: NodeType
NODE_TYPE_L2_NORMALIZE_FUSION: NodeType
NODE_TYPE_MATMUL_FUSION: NodeType
NODE_TYPE_MAXIMUM: NodeType
NODE_TYPE_MAX_POOL_FUSION: NodeType
NODE_TYPE_MINIMUM: NodeType
NODE_TYPE_MOD: NodeType
NODE_TYPE_MUL_FUSION: NodeType
NODE_TYPE_NEG: NodeType
NODE_TYPE_NOT_EQUAL: NodeType
NODE_TYPE_ONE_HOT: NodeType
NODE_TYPE_PAD_FUSION: NodeType
NODE_TYPE_POW_FUSION: NodeType
NODE_TYPE_PRELU_FUSION: NodeType
NODE_TYPE_QUANT_DTYPE_CAST: NodeType
NODE_TYPE_RANK: NodeType
NODE_TYPE_RANGE: NodeType
NODE_TYPE_RECIPROCAL: NodeType
NODE_TYPE_REAL_DIV: NodeType
NODE_TYPE_REDUCE_FUSION: NodeType
NODE_TYPE_RESHAPE: NodeType
NODE_TYPE_RESIZE: NodeType
NODE_TYPE_ROUND: NodeType
NODE_TYPE_RSQRT: NodeType
NODE_TYPE_SCALE_FUSION: NodeType
NODE_TYPE_SCATTER_ND: NodeType
NODE_TYPE_SHAPE: NodeType
NODE_TYPE_SIN: NodeType
NODE_TYPE_SLICE_FUSION: NodeType
NODE_TYPE_SOFTMAX: NodeType
NODE_TYPE_SPACE_TO_BATCH_ND: NodeType
NODE_TYPE_SPACE_TO_DEPTH: NodeType
NODE_TYPE_SPARSE_TO_DENSE: NodeType
NODE_TYPE_SPLIT: NodeType
NODE_TYPE_SQRT: NodeType
NODE_TYPE_SQUEEZE: NodeType
NODE_TYPE_SQUARE: NodeType
NODE_TYPE_SQUARED_DIFFERENCE: NodeType
NODE_TYPE_STACK: NodeType
NODE_TYPE_STRIDED_SLICE: NodeType
NODE_TYPE_SUB_FUSION: NodeType
NODE_TYPE_TILE_FUSION: NodeType
NODE_TYPE_TOPK_FUSION: NodeType
NODE_TYPE_TRANSPOSE: NodeType
NODE_TYPE_UNSQUEEZE: NodeType
NODE_TYPE_UNSTACK: NodeType
NODE_TYPE_WHERE: NodeType
NODE_TYPE_SELECT: NodeType
NODE_TYPE_ERF: NodeType
NODE_TYPE_LOG_SOFTMAX: NodeType
NODE_TYPE_QUANT_DTYPE_CAST_V2: NodeType
ACTIVATION_TYPE_NO_ACTIVATION: ActivationType
ACTIVATION_TYPE_RELU: ActivationType
ACTIVATION_TYPE_SIGMOID: ActivationType
ACTIVATION_TYPE_RELU6: ActivationType
ACTIVATION_TYPE_ELU: ActivationType
ACTIVATION_TYPE_LEAKY_RELU: ActivationType
ACTIVATION_TYPE_ABS: ActivationType
ACTIVATION_TYPE_RELU1: ActivationType
ACTIVATION_TYPE_SOFTSIGN: ActivationType
ACTIVATION_TYPE_SOFTPLUS: ActivationType
ACTIVATION_TYPE_TANH: ActivationType
ACTIVATION_TYPE_SELU: ActivationType
ACTIVATION_TYPE_HSWISH: ActivationType
ACTIVATION_TYPE_HSIGMOID: ActivationType
ACTIVATION_TYPE_THRESHOLDRELU: ActivationType
ACTIVATION_TYPE_LINEAR: ActivationType
ACTIVATION_TYPE_HARD_TANH: ActivationType
ACTIVATION_TYPE_SIGN: ActivationType
ACTIVATION_TYPE_SWISH: ActivationType
ACTIVATION_TYPE_GELU: ActivationType
ACTIVATION_TYPE_UNKNOWN: ActivationType
ELTWISE_MODE_PROD: EltwiseMode
ELTWISE_MODE_SUM: EltwiseMode
ELTWISE_MODE_MAXIMUM: EltwiseMode
ELTWISE_MODE_UNKNOWN: EltwiseMode
REDUCE_MODE_MEAN: ReduceMode
REDUCE_MODE_MAX: ReduceMode
REDUCE_MODE_MIN: ReduceMode
REDUCE_MODE_PROD: ReduceMode
REDUCE_MODE_SUM: ReduceMode
REDUCE_MODE_SUM_SQUARE: ReduceMode
REDUCE_MODE_ASUM: ReduceMode
REDUCE_MODE_ALL: ReduceMode
REDUCE_MODE_L2: ReduceMode
PAD_MODE_PAD: PadMode
PAD_MODE_SAME: PadMode
PAD_MODE_VALID: PadMode
ROUND_MODE_FLOOR: RoundMode
ROUND_MODE_CEIL: RoundMode
PADDING_MODE_CONSTANT: PaddingMode
PADDING_MODE_REFLECT: PaddingMode
PADDING_MODE_SYMMETRIC: PaddingMode
PADDING_MODE_RESERVED: PaddingMode
RESIZE_METHOD_LINEAR: ResizeMethod
RESIZE_METHOD_NEAREST: ResizeMethod
RESIZE_METHOD_CUBIC: ResizeMethod
RESIZE_METHOD_UNKNOWN: ResizeMethod
COORDINATE_TRANSFORM_MODE_ASYMMETRIC: CoordinateTransformMode
COORDINATE_TRANSFORM_MODE_ALIGN_CORNERS: CoordinateTransformMode
COORDINATE_TRANSFORM_MODE_HALF_PIXEL: CoordinateTransformMode
NEAREST_MODE_NORMAL: NearestMode
NEAREST_MODE_ROUND_HALF_DOWN: NearestMode
NEAREST_MODE_ROUND_HALF_UP: NearestMode
NEAREST_MODE_FLOOR: NearestMode
NEAREST_MODE_CEIL: NearestMode
NNRT_SUCCESS: NnrtReturnCode
NNRT_FAILED: NnrtReturnCode
NNRT_NULL_PTR: NnrtReturnCode
NNRT_INVALID_PARAMETER: NnrtReturnCode
NNRT_MEMORY_ERROR: NnrtReturnCode
NNRT_OUT_OF_MEMORY: NnrtReturnCode
NNRT_OPERATION_FORBIDDEN: NnrtReturnCode
NNRT_INVALID_FILE: NnrtReturnCode
NNRT_INVALID_PATH: NnrtReturnCode
NNRT_INSUFFICIENT_BUFFER: NnrtReturnCode
NNRT_NO_CHANGE: NnrtReturnCode
NNRT_NOT_SUPPORT: NnrtReturnCode
NNRT_SERVICE_ERROR: NnrtReturnCode
NNRT_DEVICE_ERROR: NnrtReturnCode
NNRT_DEVICE_BUSY: NnrtReturnCode
NNRT_CANCELLED: NnrtReturnCode
NNRT_PERMISSION_DENIED: NnrtReturnCode
NNRT_TIME_OUT: NnrtReturnCode
NNRT_INVALID_TENSOR: NnrtReturnCode
NNRT_INVALID_NODE: NnrtReturnCode
NNRT_INVALID_INPUT: NnrtReturnCode
NNRT_INVALID_OUTPUT: NnrtReturnCode
NNRT_INVALID_DATATYPE: NnrtReturnCode
NNRT_INVALID_FORMAT: NnrtReturnCode
NNRT_INVALID_TENSOR_NAME: NnrtReturnCode
NNRT_INVALID_SHAPE: NnrtReturnCode
NNRT_OUT_OF_DIMENTION_RANGES: NnrtReturnCode
NNRT_INVALID_BUFFER: NnrtReturnCode
NNRT_INVALID_BUFFER_SIZE: NnrtReturnCode
NNRT_INVALID_PERFORMANCE_MODE: NnrtReturnCode
NNRT_INVALID_PRIORITY: NnrtReturnCode
NNRT_INVALID_MODEL: NnrtReturnCode
NNRT_INVALID_MODEL_CACHE: NnrtReturnCode
NNRT_UNSUPPORTED_OP: NnrtReturnCode
RETURN_CODE_SUCCESS: ReturnCode
RETURN_CODE_FAILED: ReturnCode
RETURN_CODE_INVALID_PARAMETER: ReturnCode
RETURN_CODE_MEMORY_ERROR: ReturnCode
RETURN_CODE_OPERATION_FORBIDDEN: ReturnCode
RETURN_CODE_NULL_PTR: ReturnCode
RETURN_CODE_INVALID_FILE: ReturnCode
RETURN_CODE_UNAVALIDABLE_DEVICE: ReturnCode
RETURN_CODE_INVALID_PATH: ReturnCode
RETURN_CODE_TIMEOUT: ReturnCode
RETURN_CODE_UNSUPPORTED: ReturnCode
RETURN_CODE_CONNECTION_EXCEPTION: ReturnCode
RETURN_CODE_SAVE_CACHE_EXCEPTION: ReturnCode
RETURN_CODE_DYNAMIC_SHAPE: ReturnCode
RETURN_CODE_UNAVAILABLE_DEVICE: ReturnCode
