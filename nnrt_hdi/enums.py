"""Enums that client and daemon share, with the numbers of HDI 2.1.

Members have no C prefix: `DATA_TYPE_FLOAT32` is `DataType.FLOAT32`. Enums of the application interface that never
travel are in `nnrt_client.enums`.
"""

from enum import IntEnum, unique


@unique
class ReturnCode(IntEnum):
    """Result of a call of the application interface. UNAVALIDABLE_DEVICE, a historic misspelling, is never sent."""

    SUCCESS = 0
    FAILED = 1
    INVALID_PARAMETER = 2
    MEMORY_ERROR = 3
    OPERATION_FORBIDDEN = 4
    NULL_PTR = 5
    INVALID_FILE = 6
    UNAVALIDABLE_DEVICE = 7
    INVALID_PATH = 8
    TIMEOUT = 9
    UNSUPPORTED = 10
    CONNECTION_EXCEPTION = 11
    SAVE_CACHE_EXCEPTION = 12
    DYNAMIC_SHAPE = 13
    UNAVAILABLE_DEVICE = 14


@unique
class DeviceType(IntEnum):
    """Kind of processor of a device."""

    OTHER = 0
    CPU = 1
    GPU = 2
    ACCELERATOR = 3


@unique
class DeviceStatus(IntEnum):
    """Readiness of a device for work. BUSY is advisory: the device stays usable."""

    AVAILABLE = 0
    BUSY = 1
    OFFLINE = 2
    UNKNOWN = 3


@unique
class PerformanceMode(IntEnum):
    """Speed that an application asks of a compiled model; NONE lets the device choose."""

    NONE = 0
    LOW = 1
    MEDIUM = 2
    HIGH = 3
    EXTREME = 4


@unique
class Priority(IntEnum):
    """Order of one user's runs; NONE counts as MEDIUM."""

    NONE = 0
    LOW = 1
    MEDIUM = 2
    HIGH = 3

    @property
    def rank(self) -> int:
        """Rank of the priority: 0 for LOW, 1 for MEDIUM, 2 for HIGH."""
        return _RANKS[self]


_RANKS = {Priority.LOW: 0, Priority.NONE: 1, Priority.MEDIUM: 1, Priority.HIGH: 2}


@unique
class Format(IntEnum):
    """Order of a tensor's dimensions; NONE without an image layout."""

    NONE = -1
    NCHW = 0
    NHWC = 1


@unique
class DataType(IntEnum):
    """Type of a tensor's elements, in HDI's numbers."""

    UNKNOWN = 0
    BOOL = 30
    INT8 = 32
    INT16 = 33
    INT32 = 34
    INT64 = 35
    UINT8 = 37
    UINT16 = 38
    UINT32 = 39
    UINT64 = 40
    FLOAT16 = 42
    FLOAT32 = 43
    FLOAT64 = 44


@unique
class QuantType(IntEnum):
    """Quantization with which a node is computed."""

    NONE = 0
    ALL = 1


@unique
class NodeType(IntEnum):
    """Operator of a node."""

    NONE = 0
    ABS = 1
    ACTIVATION = 2
    ADD_FUSION = 5
    ALL = 9
    ARGMAX_FUSION = 11
    ASSERT = 13
    AVGPOOL_FUSION = 17
    BATCH_TO_SPACE_ND = 22
    BIAS_ADD = 23
    BROADCAST_TO = 27
    CAST = 28
    CEIL = 29
    CLIP = 30
    CONCAT = 31
    CONV2D_FUSION = 35
    CONV2D_TRANSPOSE_FUSION = 36
    COS = 37
    CONSTANT_OF_SHAPE = 38
    CROP = 39
    DEPTH_TO_SPACE = 45
    DETECTION_POST_PROCESS = 46
    DIV_FUSION = 47
    ELTWISE = 52
    EQUAL = 53
    EXPFUSION = 55
    EXPAND_DIMS = 56
    FLATTEN = 61
    FLOOR = 63
    FILL = 66
    FULL_CONNECTION = 67
    FUSED_BATCH_NORM = 68
    GATHER = 69
    GATHER_ND = 70
    GREATER = 71
    GREATER_EQUAL = 72
    INSTANCE_NORM = 74
    LAYER_NORM_FUSION = 75
    LEAKY_RELU = 76
    LESS = 77
    LESS_EQUAL = 78
    LOG = 79
    LOGICAL_AND = 81
    LOGICAL_NOT = 82
    LOGICAL_OR = 83
    LRN = 85
    LSTM = 87
    L2_NORMALIZE_FUSION = 88
    MATMUL_FUSION = 89
    MAXIMUM = 90
    MAX_POOL_FUSION = 92
    MINIMUM = 96
    MOD = 98
    MUL_FUSION = 99
    NEG = 101
    NOT_EQUAL = 103
    ONE_HOT = 105
    PAD_FUSION = 107
    POW_FUSION = 110
    PRELU_FUSION = 112
    QUANT_DTYPE_CAST = 113
    RANK = 114
    RANGE = 115
    RECIPROCAL = 116
    REAL_DIV = 117
    REDUCE_FUSION = 118
    RESHAPE = 119
    RESIZE = 120
    ROUND = 125
    RSQRT = 126
    SCALE_FUSION = 127
    SCATTER_ND = 128
    SHAPE = 130
    SIN = 133
    SLICE_FUSION = 135
    SOFTMAX = 138
    SPACE_TO_BATCH_ND = 141
    SPACE_TO_DEPTH = 142
    SPARSE_TO_DENSE = 144
    SPLIT = 145
    SQRT = 146
    SQUEEZE = 147
    SQUARE = 148
    SQUARED_DIFFERENCE = 149
    STACK = 150
    STRIDED_SLICE = 151
    SUB_FUSION = 152
    TILE_FUSION = 160
    TOPK_FUSION = 161
    TRANSPOSE = 162
    UNSQUEEZE = 165
    UNSTACK = 166
    WHERE = 168
    SELECT = 170
    ERF = 178
    LOG_SOFTMAX = 189
    QUANT_DTYPE_CAST_V2 = 999


@unique
class ResizeMethod(IntEnum):
    """Interpolation of RESIZE."""

    UNKNOWN = -1
    LINEAR = 0
    NEAREST = 1
    CUBIC = 2


@unique
class CoordinateTransformMode(IntEnum):
    """Mapping of RESIZE from a position of its output to a position of its input."""

    ASYMMETRIC = 0
    ALIGN_CORNERS = 1
    HALF_PIXEL = 2


@unique
class NearestMode(IntEnum):
    """Neighbor that RESIZE takes with ResizeMethod.NEAREST."""

    NORMAL = 0
    ROUND_HALF_DOWN = 1
    ROUND_HALF_UP = 2
    FLOOR = 3
    CEIL = 4


@unique
class ActivationType(IntEnum):
    """Function of an ACTIVATION node, or fused behind another node."""

    NO_ACTIVATION = 0
    RELU = 1
    SIGMOID = 2
    RELU6 = 3
    ELU = 4
    LEAKY_RELU = 5
    ABS = 6
    RELU1 = 7
    SOFTSIGN = 8
    SOFTPLUS = 9
    TANH = 10
    SELU = 11
    HSWISH = 12
    HSIGMOID = 13
    THRESHOLDRELU = 14
    LINEAR = 15
    HARD_TANH = 16
    SIGN = 17
    SWISH = 18
    GELU = 19
    UNKNOWN = 20


@unique
class ReduceMode(IntEnum):
    """Operation with which REDUCE_FUSION folds dimensions."""

    MEAN = 0
    MAX = 1
    MIN = 2
    PROD = 3
    SUM = 4
    SUM_SQUARE = 5
    ASUM = 6
    ALL = 7
    L2 = 8


@unique
class EltwiseMode(IntEnum):
    """Operation of ELTWISE."""

    PROD = 0
    SUM = 1
    MAXIMUM = 2
    UNKNOWN = 3


@unique
class PadMode(IntEnum):
    """Treatment of the border by a sliding window; PAD uses an explicit list."""

    PAD = 0
    SAME = 1
    VALID = 2


@unique
class RoundMode(IntEnum):
    """Rounding of the output size of pooling."""

    FLOOR = 0
    CEIL = 1


@unique
class PaddingMode(IntEnum):
    """Content of the elements that PAD_FUSION adds."""

    CONSTANT = 0
    REFLECT = 1
    SYMMETRIC = 2
    RESERVED = 3


@unique
class ApiDataType(IntEnum):
    """Type of a tensor's elements, in the application interface's numbers.

    They reach a device in the data of some operands (the `type` of CAST), so client and daemon must know them.
    """

    UNKNOWN = 0
    BOOL = 1
    INT8 = 2
    INT16 = 3
    INT32 = 4
    INT64 = 5
    UINT8 = 6
    UINT16 = 7
    UINT32 = 8
    UINT64 = 9
    FLOAT16 = 10
    FLOAT32 = 11
    FLOAT64 = 12
