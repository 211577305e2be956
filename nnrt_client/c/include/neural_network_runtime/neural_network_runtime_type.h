/**
 * @file neural_network_runtime_type.h
 *
 * Types, enums and structs of NNRt. The values of the enums are written by nnrt_client/c/generated.py.
 */
#ifndef NEURAL_NETWORK_RUNTIME_NEURAL_NETWORK_RUNTIME_TYPE_H
#define NEURAL_NETWORK_RUNTIME_NEURAL_NETWORK_RUNTIME_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Handle of a model. */
typedef struct OH_NNModel OH_NNModel;
/** Handle of a compilation. */
typedef struct OH_NNCompilation OH_NNCompilation;
/** Handle of an executor. */
typedef struct OH_NNExecutor OH_NNExecutor;
/** Handle of quantization parameters. Since 11. */
typedef struct NN_QuantParam NN_QuantParam;
/** Handle of a tensor's description. Since 11. */
typedef struct NN_TensorDesc NN_TensorDesc;
/** Handle of a tensor. Since 11. */
typedef struct NN_Tensor NN_Tensor;

/** How fast a device works. */
typedef enum {
    OH_NN_PERFORMANCE_NONE = 0,
    OH_NN_PERFORMANCE_LOW = 1,
    OH_NN_PERFORMANCE_MEDIUM = 2,
    OH_NN_PERFORMANCE_HIGH = 3,
    OH_NN_PERFORMANCE_EXTREME = 4,
} OH_NN_PerformanceMode;

/** Which runs go first. */
typedef enum {
    OH_NN_PRIORITY_NONE = 0,
    OH_NN_PRIORITY_LOW = 1,
    OH_NN_PRIORITY_MEDIUM = 2,
    OH_NN_PRIORITY_HIGH = 3,
} OH_NN_Priority;

/** What functions return. */
typedef enum {
    /** It is done. */
    OH_NN_SUCCESS = 0,
    /** It went wrong in a way that no other code says. */
    OH_NN_FAILED = 1,
    /** An argument is null, or isn't what is needed. */
    OH_NN_INVALID_PARAMETER = 2,
    /** Memory is short. */
    OH_NN_MEMORY_ERROR = 3,
    /** Not in this state. */
    OH_NN_OPERATION_FORBIDDEN = 4,
    /** A null pointer is where none may be. */
    OH_NN_NULL_PTR = 5,
    /** A file is damaged, or isn't what it was taken for. */
    OH_NN_INVALID_FILE = 6,
    /** Never returned. Deprecated since 11. */
    OH_NN_UNAVALIDABLE_DEVICE = 7,
    /** A directory isn't there, or can't be used. */
    OH_NN_INVALID_PATH = 8,
    /** It took longer than it was given. Since 11. */
    OH_NN_TIMEOUT = 9,
    /** The device doesn't do that. Since 11. */
    OH_NN_UNSUPPORTED = 10,
    /** The daemon can't be reached. Since 11. */
    OH_NN_CONNECTION_EXCEPTION = 11,
    /** The cache can't be written. Since 11. */
    OH_NN_SAVE_CACHE_EXCEPTION = 12,
    /** A dimension isn't known. Since 11. */
    OH_NN_DYNAMIC_SHAPE = 13,
    /** The device is at fault, or its daemon has died. Since 11. */
    OH_NN_UNAVAILABLE_DEVICE = 14,
} OH_NN_ReturnCode;

/** Activations that an operation may end with; as a parameter an int8_t. */
typedef enum {
    OH_NN_FUSED_NONE = 0,
    OH_NN_FUSED_RELU = 1,
    OH_NN_FUSED_RELU6 = 2,
} OH_NN_FuseType;

/** Orders of the dimensions of a tensor. */
typedef enum {
    OH_NN_FORMAT_NONE = 0,
    OH_NN_FORMAT_NCHW = 1,
    OH_NN_FORMAT_NHWC = 2,
    OH_NN_FORMAT_ND = 3,
} OH_NN_Format;

/** Kinds of devices. */
typedef enum {
    OH_NN_OTHERS = 0,
    OH_NN_CPU = 1,
    OH_NN_GPU = 2,
    OH_NN_ACCELERATOR = 3,
} OH_NN_DeviceType;

/** Types of elements. */
typedef enum {
    OH_NN_UNKNOWN = 0,
    OH_NN_BOOL = 1,
    OH_NN_INT8 = 2,
    OH_NN_INT16 = 3,
    OH_NN_INT32 = 4,
    OH_NN_INT64 = 5,
    OH_NN_UINT8 = 6,
    OH_NN_UINT16 = 7,
    OH_NN_UINT32 = 8,
    OH_NN_UINT64 = 9,
    OH_NN_FLOAT16 = 10,
    OH_NN_FLOAT32 = 11,
    OH_NN_FLOAT64 = 12,
} OH_NN_DataType;

/** Operations, with the tensors that each one reads. */
typedef enum {
    /**
     * y = f(a + b), where f is the fused activation; integers wrap around; for two BOOL, + is "or".
     * Inputs (2): a, b.
     * Parameters: OH_NN_ADD_ACTIVATIONTYPE.
     */
    OH_NN_OPS_ADD = 1,
    /**
     * y = f(mean of each window over its elements without padding), where f is the fused activation. x determines the
     * layout; the attribute `format` is ignored, as NNRt always sends NCHW. kernel_size and strides are (height,
     * width); empty strides mean 1. pad and pad_mode are pad_list and pad_mode of CONV2D_FUSION. global pools the whole
     * height and width, and ignores these attributes. Output sizes are those of CONV2D_FUSION; with round_mode CEIL the
     * PAD formula rounds up, but drops a window that would start after the input.
     * Inputs (1): x.
     * Parameters: OH_NN_AVG_POOL_KERNEL_SIZE, OH_NN_AVG_POOL_STRIDE, OH_NN_AVG_POOL_PAD, OH_NN_AVG_POOL_PAD_MODE,
     * OH_NN_AVG_POOL_ROUND_MODE, OH_NN_AVG_POOL_GLOBAL, OH_NN_AVG_POOL_ACTIVATION_TYPE.
     */
    OH_NN_OPS_AVG_POOL = 2,
    /**
     * y = scale (x - mean) / sqrt(variance + epsilon) + offset, with one of each per channel. Channels are the last
     * dimension, or dimension 1 of an NCHW tensor.
     * Inputs (5): x, scale, offset, mean, variance.
     * Parameters: OH_NN_BATCH_NORM_EPSILON.
     */
    OH_NN_OPS_BATCH_NORM = 3,
    /**
     * y[b, h rows + r, w columns + c] = x[(r columns + c) batch + b, h, w], with block_shape [rows, columns]. Then
     * crops [[top, bottom], [left, right]] (empty: none) are cut off. The order of elements is TensorFlow Lite's.
     * Inputs (1): x.
     * Parameters: OH_NN_BATCH_TO_SPACE_ND_BLOCKSIZE, OH_NN_BATCH_TO_SPACE_ND_CROPS.
     */
    OH_NN_OPS_BATCH_TO_SPACE_ND = 4,
    /**
     * y = x + bias, with one bias for each channel: the last dimension, or dimension 1 of an NCHW tensor.
     * Inputs (2): x, bias.
     */
    OH_NN_OPS_BIAS_ADD = 5,
    /**
     * y = x in the data type whose number is in type: 1 (BOOL) to 12 (FLOAT64), or HDI's 30 to 44. Real numbers lose
     * their fraction when they become integers. Integers keep their low bits. As BOOL everything but 0 is true. The
     * result of a real number beyond an integer type's range is undefined.
     * Inputs (2): x, type.
     */
    OH_NN_OPS_CAST = 6,
    /**
     * y = the parts joined along axis; their shapes agree in all other dimensions.
     * Inputs (2 or more): parts.
     * Parameters: OH_NN_CONCAT_AXIS.
     */
    OH_NN_OPS_CONCAT = 7,
    /**
     * y = f(conv2d(x, weight) + bias): a 2-D convolution with groups and dilation, a bias per output channel, and f. f
     * is the fused activation. weight is [out channels, kernel height, kernel width, in channels / group]; with format
     * NCHW it is [out channels, in channels / group, kernel height, kernel width]. kernel_size, in_channel and
     * out_channel repeat what its shape says. stride and dilation are (height, width); empty means 1. With pad_mode
     * PAD, pad_list is the zeros around x (top, bottom, left, right); empty means none. SAME and VALID ignore pad_list:
     * VALID pads nothing; SAME pads what is missing to (out - 1) stride + (k - 1) dilation + 1, half of it in front,
     * rounded down. Output sizes: SAME ceil(in / stride); VALID and PAD floor((in + pads - (k - 1) dilation - 1) /
     * stride) + 1.
     * Inputs (3): x, weight, bias.
     * Parameters: OH_NN_CONV2D_STRIDES, OH_NN_CONV2D_PAD, OH_NN_CONV2D_PAD_MODE, OH_NN_CONV2D_DILATION,
     * OH_NN_CONV2D_ACTIVATION_TYPE, OH_NN_CONV2D_GROUP.
     */
    OH_NN_OPS_CONV2D = 8,
    /**
     * y = f(transposed conv2d(x, weight) + bias): the gradient of a convolution, a bias per output channel, and f. f is
     * the fused activation. Attributes and weight are those of CONV2D_FUSION: weight begins with the channels of the
     * output, and pads are cut off from the result. SAME cuts off what (in - 1) stride + e has beyond in stride, half
     * of it in front, rounded down. output_paddings is (height, width), one number for both, or empty for 0. Output
     * sizes, with e = (k - 1) dilation + 1: SAME in stride + output padding; VALID and PAD (in - 1) stride + e - pads +
     * output padding. The rules are those of TensorFlow Lite and MindSpore Lite.
     * Inputs (3): x, weight, bias.
     * Parameters: OH_NN_CONV2D_TRANSPOSE_STRIDES, OH_NN_CONV2D_TRANSPOSE_PAD, OH_NN_CONV2D_TRANSPOSE_PAD_MODE,
     * OH_NN_CONV2D_TRANSPOSE_DILATION, OH_NN_CONV2D_TRANSPOSE_ACTIVATION_TYPE, OH_NN_CONV2D_TRANSPOSE_GROUP,
     * OH_NN_CONV2D_TRANSPOSE_OUTPUT_PADDINGS.
     */
    OH_NN_OPS_CONV2D_TRANSPOSE = 9,
    /**
     * y = f(conv2d(x, weight) + bias): a 2-D convolution with groups and dilation, a bias per output channel, and f. f
     * is the fused activation. weight is [out channels, kernel height, kernel width, in channels / group]; with format
     * NCHW it is [out channels, in channels / group, kernel height, kernel width]. kernel_size, in_channel and
     * out_channel repeat what its shape says. stride and dilation are (height, width); empty means 1. With pad_mode
     * PAD, pad_list is the zeros around x (top, bottom, left, right); empty means none. SAME and VALID ignore pad_list:
     * VALID pads nothing; SAME pads what is missing to (out - 1) stride + (k - 1) dilation + 1, half of it in front,
     * rounded down. Output sizes: SAME ceil(in / stride); VALID and PAD floor((in + pads - (k - 1) dilation - 1) /
     * stride) + 1.
     * Inputs (3): x, weight, bias.
     * Parameters: OH_NN_DEPTHWISE_CONV2D_NATIVE_STRIDES, OH_NN_DEPTHWISE_CONV2D_NATIVE_PAD,
     * OH_NN_DEPTHWISE_CONV2D_NATIVE_PAD_MODE, OH_NN_DEPTHWISE_CONV2D_NATIVE_DILATION,
     * OH_NN_DEPTHWISE_CONV2D_NATIVE_ACTIVATION_TYPE.
     */
    OH_NN_OPS_DEPTHWISE_CONV2D_NATIVE = 10,
    /**
     * y = f(a / b), where f is the fused activation. Integers are rounded towards zero, as in TensorFlow Lite and
     * MindSpore Lite. An integer divided by zero is 0.
     * Inputs (2): a, b.
     * Parameters: OH_NN_DIV_ACTIVATIONTYPE.
     */
    OH_NN_OPS_DIV = 11,
    /**
     * y = a and b combined by mode: PROD a b; SUM a + b; MAXIMUM the larger of both. a and b have one shape and data
     * type.
     * Inputs (2): a, b.
     * Parameters: OH_NN_ELTWISE_MODE.
     */
    OH_NN_OPS_ELTWISE = 12,
    /**
     * y = x with a dimension of length 1 inserted, whose index in the output is axis.
     * Inputs (2): x, axis.
     */
    OH_NN_OPS_EXPAND_DIMS = 13,
    /**
     * y = the only element of value everywhere, in the given shape.
     * Inputs (2): value, shape.
     */
    OH_NN_OPS_FILL = 14,
    /**
     * y = f(X W^T + bias), where f is the fused activation and W is [out features, in features]. X is x as a matrix
     * with in features columns, and y is [rows, out features]. With use_axis, which an axis implies, the dimensions
     * from axis (absent: 0) on are the columns, and y keeps those before it: [..., out features]. bias is [out
     * features]; has_bias repeats whether there is one.
     * Inputs (2 to 3): x, weight, bias.
     * Parameters: OH_NN_FULL_CONNECTION_AXIS, OH_NN_FULL_CONNECTION_HAS_BIAS, OH_NN_FULL_CONNECTION_USE_AXIS,
     * OH_NN_FULL_CONNECTION_ACTIVATIONTYPE.
     */
    OH_NN_OPS_FULL_CONNECTION = 15,
    /**
     * y[..., i, ...] = x[..., indices[i], ...]: the dimensions of indices replace the one at axis.
     * Inputs (3): x, indices, axis.
     */
    OH_NN_OPS_GATHER = 16,
    /**
     * y = f(x) element by element, where activation_type names f. NO_ACTIVATION x; RELU max(x, 0); SIGMOID 1 / (1 +
     * exp(-x)); RELU6 min(max(x, 0), 6); ELU x if x > 0 else alpha (exp(x) - 1); LEAKY_RELU x if x >= 0 else alpha x;
     * ABS |x|; RELU1 min(max(x, -1), 1); SOFTSIGN x / (1 + |x|); SOFTPLUS log(1 + exp(x)); TANH tanh(x); SELU 1.0507 (x
     * if x > 0 else 1.67326 (exp(x) - 1)); HSWISH x min(max(x + 3, 0), 6) / 6; HSIGMOID min(max((x + 3) / 6, 0), 1);
     * THRESHOLDRELU min(max(x, 0), alpha); LINEAR x; HARD_TANH min(max(x, min_val), max_val); SIGN the sign of x; SWISH
     * x sigmoid(x); GELU x Phi(x), or with `approximate` the tanh form 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715
     * x^3))). NNRt's documents differ about GELU: some print 0.5 x (1 + tanh(x / 2)), one x Phi(x). This operator and
     * the frameworks compute the latter.
     * Inputs (1): x.
     */
    OH_NN_OPS_HSWISH = 17,
    /**
     * y = (a <= b); false if either is NaN.
     * Inputs (2): a, b.
     */
    OH_NN_OPS_LESS_EQUAL = 18,
    /**
     * y = f(A B), where f is the fused activation: [..., M, K] by [..., K, N] is [..., M, N], and batches broadcast.
     * transpose_a and transpose_b swap the last two dimensions of an operand first. The result has the higher-precision
     * type of the operands, or a higher one that the model declares, and is computed in it. Integers wrap around.
     * Inputs (2): a, b.
     * Parameters: OH_NN_MATMUL_TRANSPOSE_A, OH_NN_MATMUL_TRANSPOSE_B, OH_NN_MATMUL_ACTIVATION_TYPE.
     */
    OH_NN_OPS_MATMUL = 19,
    /**
     * y = the larger of a and b; NaN if either is NaN.
     * Inputs (2): a, b.
     */
    OH_NN_OPS_MAXIMUM = 20,
    /**
     * y = f(maximum of each window over its elements without padding), where f is the fused activation. Attributes,
     * layout and sizes are those of AVGPOOL_FUSION.
     * Inputs (1): x.
     * Parameters: OH_NN_MAX_POOL_KERNEL_SIZE, OH_NN_MAX_POOL_STRIDE, OH_NN_MAX_POOL_PAD, OH_NN_MAX_POOL_PAD_MODE,
     * OH_NN_MAX_POOL_ROUND_MODE, OH_NN_MAX_POOL_GLOBAL, OH_NN_MAX_POOL_ACTIVATION_TYPE.
     */
    OH_NN_OPS_MAX_POOL = 21,
    /**
     * y = f(a b), where f is the fused activation; integers wrap around; for two BOOL, the product is "and".
     * Inputs (2): a, b.
     * Parameters: OH_NN_MUL_ACTIVATION_TYPE.
     */
    OH_NN_OPS_MUL = 22,
    /**
     * y[..., j, ...] = on_value if indices[...] == j else off_value, for j from 0 to depth - 1. axis is the index of
     * the new dimension in the output. An index outside of 0..depth-1 gives off_value everywhere.
     * Inputs (4): indices, depth, on_value, off_value.
     * Parameters: OH_NN_ONE_HOT_AXIS.
     */
    OH_NN_OPS_ONE_HOT = 23,
    /**
     * y = x with paddings[i, 0] elements before and paddings[i, 1] elements after it in dimension i. They are
     * constant_value, or mirror x at its edge: REFLECT without the edge itself, SYMMETRIC with it. The attribute
     * paddings stays empty; the operand counts.
     * Inputs (2): x, paddings.
     * Parameters: OH_NN_PAD_CONSTANT_VALUE, OH_NN_PAD_PADDING_MODE.
     */
    OH_NN_OPS_PAD = 24,
    /**
     * y = (scale x + shift)^y; integers wrap around, and are rounded towards zero for negative powers. For integers, 0
     * to a negative power is 0. Where the result is an integer, scale and shift must be integers too.
     * Inputs (2): x, y.
     * Parameters: OH_NN_POW_SCALE, OH_NN_POW_SHIFT.
     */
    OH_NN_OPS_POW = 25,
    /**
     * y = f(x scale + bias), where f is the fused activation; integers wrap around. scale and bias have the dimensions
     * of x from axis on, or the first of these, and repeat over the others.
     * Inputs (3): x, scale, bias.
     * Parameters: OH_NN_SCALE_AXIS, OH_NN_SCALE_ACTIVATIONTYPE.
     */
    OH_NN_OPS_SCALE = 26,
    /**
     * y = the dimensions of x, as INT32, or INT64 if the model declares the output so.
     * Inputs (1): x.
     */
    OH_NN_OPS_SHAPE = 27,
    /**
     * y = f(x) element by element, where activation_type names f. NO_ACTIVATION x; RELU max(x, 0); SIGMOID 1 / (1 +
     * exp(-x)); RELU6 min(max(x, 0), 6); ELU x if x > 0 else alpha (exp(x) - 1); LEAKY_RELU x if x >= 0 else alpha x;
     * ABS |x|; RELU1 min(max(x, -1), 1); SOFTSIGN x / (1 + |x|); SOFTPLUS log(1 + exp(x)); TANH tanh(x); SELU 1.0507 (x
     * if x > 0 else 1.67326 (exp(x) - 1)); HSWISH x min(max(x + 3, 0), 6) / 6; HSIGMOID min(max((x + 3) / 6, 0), 1);
     * THRESHOLDRELU min(max(x, 0), alpha); LINEAR x; HARD_TANH min(max(x, min_val), max_val); SIGN the sign of x; SWISH
     * x sigmoid(x); GELU x Phi(x), or with `approximate` the tanh form 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715
     * x^3))). NNRt's documents differ about GELU: some print 0.5 x (1 + tanh(x / 2)), one x Phi(x). This operator and
     * the frameworks compute the latter.
     * Inputs (1): x.
     */
    OH_NN_OPS_SIGMOID = 28,
    /**
     * y = size[i] elements of x from begin[i] on, in dimension axes[i] (axes empty: in dimension i, of all).
     * Inputs (3): x, begin, size.
     * Parameters: OH_NN_SLICE_AXES.
     */
    OH_NN_OPS_SLICE = 29,
    /**
     * y = exp(x) / sum(exp(x)), with the sum along axis (a list of one; empty: the last).
     * Inputs (1): x.
     * Parameters: OH_NN_SOFTMAX_AXIS.
     */
    OH_NN_OPS_SOFTMAX = 30,
    /**
     * y = the inverse of BATCH_TO_SPACE_ND: x with a border of zeros, cut into blocks whose pixels go to the batch.
     * paddings is [[top, bottom], [left, right]] (empty: none).
     * Inputs (1): x.
     * Parameters: OH_NN_SPACE_TO_BATCH_ND_BLOCK_SHAPE, OH_NN_SPACE_TO_BATCH_ND_PADDINGS.
     */
    OH_NN_OPS_SPACE_TO_BATCH_ND = 31,
    /**
     * y = x cut along axis into output_num pieces, of equal length or of the lengths in size_splits. An output_num of 0
     * means the length of size_splits or, if that is empty, the number of outputs.
     * Inputs (1): x.
     * Parameters: OH_NN_SPLIT_AXIS, OH_NN_SPLIT_OUTPUT_NUM, OH_NN_SPLIT_SIZE_SPLITS.
     */
    OH_NN_OPS_SPLIT = 32,
    /**
     * y = sqrt(x); NaN where x < 0.
     * Inputs (1): x.
     */
    OH_NN_OPS_SQRT = 33,
    /**
     * y = (a - b)^2; integers wrap around; for two BOOL, y is "exclusive or".
     * Inputs (2): a, b.
     */
    OH_NN_OPS_SQUARED_DIFFERENCE = 34,
    /**
     * y = x without the dimensions of length 1 that axis names (empty: without all of length 1). A named dimension of
     * another length stays.
     * Inputs (1): x.
     * Parameters: OH_NN_SQUEEZE_AXIS.
     */
    OH_NN_OPS_SQUEEZE = 35,
    /**
     * y = the parts, all of one shape, joined along a new dimension, whose index in the output is axis.
     * Inputs (2 or more): parts.
     * Parameters: OH_NN_STACK_AXIS.
     */
    OH_NN_OPS_STACK = 36,
    /**
     * y = x[begin[0]:end[0]:strides[0], begin[1]:end[1]:strides[1], ...], with later dimensions whole. As in Python,
     * negative positions count from the end, and bounds outside of x are limited to it. Bit i of a mask changes entry
     * i. begin_mask and end_mask: from the start, or to the end. ellipsis_mask, for one entry: whole dimensions, as
     * many as the other entries leave. new_axis_mask: a new dimension of length 1. shrink_axis_mask: the element at
     * begin, which must exist, without its dimension; if the model declares the output with that dimension, it has
     * length 1.
     * Inputs (4): x, begin, end, strides.
     * Parameters: OH_NN_STRIDED_SLICE_BEGIN_MASK, OH_NN_STRIDED_SLICE_END_MASK, OH_NN_STRIDED_SLICE_ELLIPSIS_MASK,
     * OH_NN_STRIDED_SLICE_NEW_AXIS_MASK, OH_NN_STRIDED_SLICE_SHRINK_AXIS_MASK.
     */
    OH_NN_OPS_STRIDED_SLICE = 37,
    /**
     * y = f(a - b), where f is the fused activation; integers wrap around.
     * Inputs (2): a, b.
     * Parameters: OH_NN_SUB_ACTIVATIONTYPE.
     */
    OH_NN_OPS_SUB = 38,
    /**
     * y = f(x) element by element, where activation_type names f. NO_ACTIVATION x; RELU max(x, 0); SIGMOID 1 / (1 +
     * exp(-x)); RELU6 min(max(x, 0), 6); ELU x if x > 0 else alpha (exp(x) - 1); LEAKY_RELU x if x >= 0 else alpha x;
     * ABS |x|; RELU1 min(max(x, -1), 1); SOFTSIGN x / (1 + |x|); SOFTPLUS log(1 + exp(x)); TANH tanh(x); SELU 1.0507 (x
     * if x > 0 else 1.67326 (exp(x) - 1)); HSWISH x min(max(x + 3, 0), 6) / 6; HSIGMOID min(max((x + 3) / 6, 0), 1);
     * THRESHOLDRELU min(max(x, 0), alpha); LINEAR x; HARD_TANH min(max(x, min_val), max_val); SIGN the sign of x; SWISH
     * x sigmoid(x); GELU x Phi(x), or with `approximate` the tanh form 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715
     * x^3))). NNRt's documents differ about GELU: some print 0.5 x (1 + tanh(x / 2)), one x Phi(x). This operator and
     * the frameworks compute the latter.
     * Inputs (1): x.
     */
    OH_NN_OPS_TANH = 39,
    /**
     * y = x repeated multiples[i] times along dimension dims[i] (dims empty, or of another length: along dimension i).
     * If there are more multiples than dimensions, x gets dimensions of length 1 in front.
     * Inputs (2): x, multiples.
     * Parameters: OH_NN_TILE_DIMS.
     */
    OH_NN_OPS_TILE = 40,
    /**
     * y[i0, i1, ...] = x with dimension permutation[n] as the n-th. The format survives only a change from NHWC to NCHW
     * or back. After any other permutation it is NONE.
     * Inputs (2): x, permutation.
     */
    OH_NN_OPS_TRANSPOSE = 41,
    /**
     * y = x reduced over the dimensions in axis (empty: all), which are removed, or stay with length 1 by keep_dims. By
     * mode: MEAN (integers are rounded towards zero); MAX; MIN; PROD; SUM; SUM_SQUARE sum of x^2; ASUM sum of |x|; ALL
     * whether no element is 0, as 1 or 0; L2 sqrt(sum(x^2)). Integers wrap around. Reducing no elements gives the
     * neutral element (for MAX the lowest value), and for MEAN NaN (for integers 0). reduce_to_end reduces from the
     * first entry of axis to the last dimension, and multiplies the result by coeff unless it is (almost) 0.
     * Inputs (2): x, axis.
     * Parameters: OH_NN_REDUCE_MEAN_KEEP_DIMS, OH_NN_REDUCE_MEAN_REDUCE_TO_END, OH_NN_REDUCE_MEAN_COEFF.
     */
    OH_NN_OPS_REDUCE_MEAN = 42,
    /**
     * y = x resized to new_height and new_width; with preserve_aspect_ratio to the largest size in them with x's ratio.
     * Row i, and column i likewise, reads x at p = i old / new (ASYMMETRIC), i (old - 1) / (new - 1) (ALIGN_CORNERS) or
     * (i + 0.5) old / new - 0.5 (HALF_PIXEL), the last two at 0 where new is 1. LINEAR weights the two neighbours of p
     * by their nearness, CUBIC weights four of them by the kernel of R. Keys (1981) with a = cubic_coeff. NEAREST,
     * which takes any data type, rounds p down (FLOOR), up (CEIL) or to the nearest, with halves down
     * (ROUND_HALF_DOWN), up (ROUND_HALF_UP) or away from 0 (NORMAL). Neighbours outside of x are its edge; with
     * exclude_outside 1 only those inside count. extrapolation_value is ignored.
     * Inputs (1): x.
     * Parameters: OH_NN_RESIZE_BILINEAR_NEW_HEIGHT, OH_NN_RESIZE_BILINEAR_NEW_WIDTH,
     * OH_NN_RESIZE_BILINEAR_PRESERVE_ASPECT_RATIO, OH_NN_RESIZE_BILINEAR_COORDINATE_TRANSFORM_MODE,
     * OH_NN_RESIZE_BILINEAR_EXCLUDE_OUTSIDE.
     */
    OH_NN_OPS_RESIZE_BILINEAR = 43,
    /**
     * y = 1 / sqrt(x); infinity where x = 0, NaN where x < 0.
     * Inputs (1): x.
     */
    OH_NN_OPS_RSQRT = 44,
    /**
     * y = the elements of x, in their order, in another shape: 0 copies a dimension, one -1 takes the rest.
     * Inputs (2): x, shape.
     */
    OH_NN_OPS_RESHAPE = 45,
    /**
     * y = x if x > 0 else weight x, with one weight for all elements or one for each channel. Channels are the last
     * dimension, or dimension 1 of an NCHW tensor. A weight for each channel needs an x with two dimensions or more.
     * The length of weight decides which case applies; channel_shared must agree with it.
     * Inputs (2): x, weight.
     */
    OH_NN_OPS_PRELU = 46,
    /**
     * y = f(x) element by element, where activation_type names f. NO_ACTIVATION x; RELU max(x, 0); SIGMOID 1 / (1 +
     * exp(-x)); RELU6 min(max(x, 0), 6); ELU x if x > 0 else alpha (exp(x) - 1); LEAKY_RELU x if x >= 0 else alpha x;
     * ABS |x|; RELU1 min(max(x, -1), 1); SOFTSIGN x / (1 + |x|); SOFTPLUS log(1 + exp(x)); TANH tanh(x); SELU 1.0507 (x
     * if x > 0 else 1.67326 (exp(x) - 1)); HSWISH x min(max(x + 3, 0), 6) / 6; HSIGMOID min(max((x + 3) / 6, 0), 1);
     * THRESHOLDRELU min(max(x, 0), alpha); LINEAR x; HARD_TANH min(max(x, min_val), max_val); SIGN the sign of x; SWISH
     * x sigmoid(x); GELU x Phi(x), or with `approximate` the tanh form 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715
     * x^3))). NNRt's documents differ about GELU: some print 0.5 x (1 + tanh(x / 2)), one x Phi(x). This operator and
     * the frameworks compute the latter.
     * Inputs (1): x.
     */
    OH_NN_OPS_RELU = 47,
    /**
     * y = f(x) element by element, where activation_type names f. NO_ACTIVATION x; RELU max(x, 0); SIGMOID 1 / (1 +
     * exp(-x)); RELU6 min(max(x, 0), 6); ELU x if x > 0 else alpha (exp(x) - 1); LEAKY_RELU x if x >= 0 else alpha x;
     * ABS |x|; RELU1 min(max(x, -1), 1); SOFTSIGN x / (1 + |x|); SOFTPLUS log(1 + exp(x)); TANH tanh(x); SELU 1.0507 (x
     * if x > 0 else 1.67326 (exp(x) - 1)); HSWISH x min(max(x + 3, 0), 6) / 6; HSIGMOID min(max((x + 3) / 6, 0), 1);
     * THRESHOLDRELU min(max(x, 0), alpha); LINEAR x; HARD_TANH min(max(x, min_val), max_val); SIGN the sign of x; SWISH
     * x sigmoid(x); GELU x Phi(x), or with `approximate` the tanh form 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715
     * x^3))). NNRt's documents differ about GELU: some print 0.5 x (1 + tanh(x / 2)), one x Phi(x). This operator and
     * the frameworks compute the latter.
     * Inputs (1): x.
     */
    OH_NN_OPS_RELU6 = 48,
    /**
     * y = gamma (x - mean) / sqrt(variance + epsilon) + beta, over the dimensions from begin_norm_axis to the last. The
     * variance is that of the population. gamma and beta have the shape of those dimensions; without elementwise_affine
     * they are not applied. begin_params_axis is the dimension where they begin: begin_norm_axis, or 1, which NNRt
     * sends for a model that doesn't set it.
     * Inputs (3): x, gamma, beta.
     * Parameters: OH_NN_LAYER_NORM_BEGIN_NORM_AXIS, OH_NN_LAYER_NORM_EPSILON, OH_NN_LAYER_NORM_ELEMENTWISE_AFFINE,
     * OH_NN_LAYER_NORM_BEGIN_PARAM_AXIS.
     */
    OH_NN_OPS_LAYER_NORM = 49,
    /**
     * y = x reduced over the dimensions in axis (empty: all), which are removed, or stay with length 1 by keep_dims. By
     * mode: MEAN (integers are rounded towards zero); MAX; MIN; PROD; SUM; SUM_SQUARE sum of x^2; ASUM sum of |x|; ALL
     * whether no element is 0, as 1 or 0; L2 sqrt(sum(x^2)). Integers wrap around. Reducing no elements gives the
     * neutral element (for MAX the lowest value), and for MEAN NaN (for integers 0). reduce_to_end reduces from the
     * first entry of axis to the last dimension, and multiplies the result by coeff unless it is (almost) 0.
     * Inputs (2): x, axis.
     * Parameters: OH_NN_REDUCE_PROD_KEEP_DIMS, OH_NN_REDUCE_PROD_REDUCE_TO_END, OH_NN_REDUCE_PROD_COEFF.
     */
    OH_NN_OPS_REDUCE_PROD = 50,
    /**
     * y = x reduced over the dimensions in axis (empty: all), which are removed, or stay with length 1 by keep_dims. By
     * mode: MEAN (integers are rounded towards zero); MAX; MIN; PROD; SUM; SUM_SQUARE sum of x^2; ASUM sum of |x|; ALL
     * whether no element is 0, as 1 or 0; L2 sqrt(sum(x^2)). Integers wrap around. Reducing no elements gives the
     * neutral element (for MAX the lowest value), and for MEAN NaN (for integers 0). reduce_to_end reduces from the
     * first entry of axis to the last dimension, and multiplies the result by coeff unless it is (almost) 0.
     * Inputs (2): x, axis.
     * Parameters: OH_NN_REDUCE_ALL_KEEP_DIMS, OH_NN_REDUCE_ALL_REDUCE_TO_END, OH_NN_REDUCE_ALL_COEFF.
     */
    OH_NN_OPS_REDUCE_ALL = 51,
    /**
     * q = clamp(round(r / scale + zero_point)) with halves away from zero, r = (q - zero_point) scale, or both. Both
     * convert from one quantization to another. src_t and dst_t are the data types of x and y: FLOAT16, FLOAT32 or
     * FLOAT64 for real numbers r, INT8 or UINT8 for quantized q. The parameters are those of the quantized tensor; a
     * quantized y without parameters takes those of a floating-point x. One parameter counts for the whole tensor;
     * several run along axis.
     * Inputs (1): x.
     * Parameters: OH_NN_QUANT_DTYPE_CAST_SRC_T, OH_NN_QUANT_DTYPE_CAST_DST_T, OH_NN_QUANT_DTYPE_CAST_AXIS.
     */
    OH_NN_OPS_QUANT_DTYPE_CAST = 52,
    /**
     * y = the k largest elements along axis, and their indices (INT32): the largest first, or last unless sorted. Of
     * equal elements the one with the lower index comes first. NaN counts as the largest.
     * Inputs (2): x, k.
     * Parameters: OH_NN_TOP_K_SORTED, OH_NN_TOP_K_AXIS.
     */
    OH_NN_OPS_TOP_K = 53,
    /**
     * y = the indices of the top_k largest elements along axis, the largest first; with out_max_value the elements. The
     * dimension gets length top_k. Length 1 is removed, unless keep_dims. Indices are INT32, or INT64 if the model
     * declares the output so. Of equal elements the first counts. NaN counts as the largest.
     * Inputs (1): x.
     * Parameters: OH_NN_ARG_MAX_AXIS, OH_NN_ARG_MAX_KEEPDIMS, OH_NN_ARG_MAX_TOP_K, OH_NN_ARG_MAX_OUT_MAX_VALUE.
     */
    OH_NN_OPS_ARG_MAX = 54,
    /**
     * y = x with dimensions of length 1 inserted, whose indices in the output are in axis.
     * Inputs (1): x.
     * Parameters: OH_NN_UNSQUEEZE_AXIS.
     */
    OH_NN_OPS_UNSQUEEZE = 55,
    /**
     * y = f(x) element by element, where activation_type names f. NO_ACTIVATION x; RELU max(x, 0); SIGMOID 1 / (1 +
     * exp(-x)); RELU6 min(max(x, 0), 6); ELU x if x > 0 else alpha (exp(x) - 1); LEAKY_RELU x if x >= 0 else alpha x;
     * ABS |x|; RELU1 min(max(x, -1), 1); SOFTSIGN x / (1 + |x|); SOFTPLUS log(1 + exp(x)); TANH tanh(x); SELU 1.0507 (x
     * if x > 0 else 1.67326 (exp(x) - 1)); HSWISH x min(max(x + 3, 0), 6) / 6; HSIGMOID min(max((x + 3) / 6, 0), 1);
     * THRESHOLDRELU min(max(x, 0), alpha); LINEAR x; HARD_TANH min(max(x, min_val), max_val); SIGN the sign of x; SWISH
     * x sigmoid(x); GELU x Phi(x), or with `approximate` the tanh form 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715
     * x^3))). NNRt's documents differ about GELU: some print 0.5 x (1 + tanh(x / 2)), one x Phi(x). This operator and
     * the frameworks compute the latter.
     * Inputs (1): x.
     * Parameters: OH_NN_GELU_APPROXIMATE.
     */
    OH_NN_OPS_GELU = 56,
    /**
     * y = the entries of x along axis, one output for each; that dimension is removed.
     * Inputs (1): x.
     * Parameters: OH_NN_UNSTACK_AXIS.
     */
    OH_NN_OPS_UNSTACK = 57,
    /**
     * y = f(x) element by element, where activation_type names f. NO_ACTIVATION x; RELU max(x, 0); SIGMOID 1 / (1 +
     * exp(-x)); RELU6 min(max(x, 0), 6); ELU x if x > 0 else alpha (exp(x) - 1); LEAKY_RELU x if x >= 0 else alpha x;
     * ABS |x|; RELU1 min(max(x, -1), 1); SOFTSIGN x / (1 + |x|); SOFTPLUS log(1 + exp(x)); TANH tanh(x); SELU 1.0507 (x
     * if x > 0 else 1.67326 (exp(x) - 1)); HSWISH x min(max(x + 3, 0), 6) / 6; HSIGMOID min(max((x + 3) / 6, 0), 1);
     * THRESHOLDRELU min(max(x, 0), alpha); LINEAR x; HARD_TANH min(max(x, min_val), max_val); SIGN the sign of x; SWISH
     * x sigmoid(x); GELU x Phi(x), or with `approximate` the tanh form 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715
     * x^3))). NNRt's documents differ about GELU: some print 0.5 x (1 + tanh(x / 2)), one x Phi(x). This operator and
     * the frameworks compute the latter.
     * Inputs (1): x.
     */
    OH_NN_OPS_ABS = 58,
    /**
     * y = 2 / sqrt(pi) integral of exp(-t^2) from 0 to x.
     * Inputs (1): x.
     */
    OH_NN_OPS_ERF = 59,
    /**
     * y = base^(shift + scale x); base -1 means e.
     * Inputs (1): x.
     * Parameters: OH_NN_EXP_BASE, OH_NN_EXP_SCALE, OH_NN_EXP_SHIFT.
     */
    OH_NN_OPS_EXP = 60,
    /**
     * y = (a < b); false if either is NaN.
     * Inputs (2): a, b.
     */
    OH_NN_OPS_LESS = 61,
    /**
     * y = a where condition is true, else b, both of one shape. The condition has that shape too, or one element, or it
     * is a vector that selects whole rows: the entries of dimension 0.
     * Inputs (3): condition, a, b.
     */
    OH_NN_OPS_SELECT = 62,
    /**
     * y = x^2; integers wrap around.
     * Inputs (1): x.
     */
    OH_NN_OPS_SQUARE = 63,
    /**
     * y = the elements of x as a matrix: the dimensions before axis become rows, the others columns.
     * Inputs (1): x.
     * Parameters: OH_NN_FLATTEN_AXIS.
     */
    OH_NN_OPS_FLATTEN = 64,
    /**
     * y = x with the channels of each pixel rearranged to a block of block_size by block_size pixels. With mode DCR (or
     * empty) channels are (row, column, new channel), with CRD (new channel, row, column).
     * Inputs (1): x.
     * Parameters: OH_NN_DEPTH_TO_SPACE_BLOCK_SIZE, OH_NN_DEPTH_TO_SPACE_MODE.
     */
    OH_NN_OPS_DEPTH_TO_SPACE = 65,
    /**
     * y = start, start + delta, start + 2 delta, ... as long as they are before limit, in the data type of x. The
     * attribute data_type is reserved and must be 0.
     * Inputs (1): x.
     * Parameters: OH_NN_RANGE_START, OH_NN_RANGE_LIMIT, OH_NN_RANGE_DELTA.
     */
    OH_NN_OPS_RANGE = 66,
    /**
     * y = scale (x - mean) / sqrt(variance + epsilon) + bias, over the positions of each channel of each sample. The
     * variance is that of the population. Channels are the last dimension, or dimension 1 of an NCHW tensor. If the
     * length of scale fits only one of these two dimensions, that one has the channels.
     * Inputs (3): x, scale, bias.
     * Parameters: OH_NN_INSTANCE_NORM_EPSILON.
     */
    OH_NN_OPS_INSTANCE_NORM = 67,
    /**
     * y = value everywhere, in the given shape; value is a list of one number, or empty for 0. data_type is the number
     * of a data type: 1 (BOOL) to 12 (FLOAT64), or HDI's 30 to 44. 0 means the type that the model declares for the
     * output, or else FLOAT32.
     * Inputs (1): shape.
     * Parameters: OH_NN_CONSTANT_OF_SHAPE_DATA_TYPE, OH_NN_CONSTANT_OF_SHAPE_VALUE.
     */
    OH_NN_OPS_CONSTANT_OF_SHAPE = 68,
    /**
     * y = x repeated along its dimensions of length 1, and along new ones in front, to fill a shape. A dimension of -1
     * keeps the length that it has in x.
     * Inputs (1): x.
     * Parameters: OH_NN_BROADCAST_TO_SHAPE.
     */
    OH_NN_OPS_BROADCAST_TO = 69,
    /**
     * y = (a == b); false if either is NaN.
     * Inputs (2): a, b.
     */
    OH_NN_OPS_EQUAL = 70,
    /**
     * y = (a > b); false if either is NaN.
     * Inputs (2): a, b.
     */
    OH_NN_OPS_GREATER = 71,
    /**
     * y = (a != b); true if either is NaN.
     * Inputs (2): a, b.
     */
    OH_NN_OPS_NOT_EQUAL = 72,
    /**
     * y = (a >= b); false if either is NaN.
     * Inputs (2): a, b.
     */
    OH_NN_OPS_GREATER_EQUAL = 73,
    /**
     * y = f(x) element by element, where activation_type names f. NO_ACTIVATION x; RELU max(x, 0); SIGMOID 1 / (1 +
     * exp(-x)); RELU6 min(max(x, 0), 6); ELU x if x > 0 else alpha (exp(x) - 1); LEAKY_RELU x if x >= 0 else alpha x;
     * ABS |x|; RELU1 min(max(x, -1), 1); SOFTSIGN x / (1 + |x|); SOFTPLUS log(1 + exp(x)); TANH tanh(x); SELU 1.0507 (x
     * if x > 0 else 1.67326 (exp(x) - 1)); HSWISH x min(max(x + 3, 0), 6) / 6; HSIGMOID min(max((x + 3) / 6, 0), 1);
     * THRESHOLDRELU min(max(x, 0), alpha); LINEAR x; HARD_TANH min(max(x, min_val), max_val); SIGN the sign of x; SWISH
     * x sigmoid(x); GELU x Phi(x), or with `approximate` the tanh form 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715
     * x^3))). NNRt's documents differ about GELU: some print 0.5 x (1 + tanh(x / 2)), one x Phi(x). This operator and
     * the frameworks compute the latter.
     * Inputs (1): x.
     * Parameters: OH_NN_LEAKY_RELU_NEGATIVE_SLOPE.
     */
    OH_NN_OPS_LEAKY_RELU = 74,
    /**
     * c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c'), step by step through x [steps, batch, inputs].
     * The gates i, o, f, g (in ONNX's order) are the quarters of w_ih x + w_hh h + bias. For each layer, and in it for
     * each direction (forward, backward), there is an entry in w_ih [entries, 4 hidden, inputs], w_hh [entries, 4
     * hidden, hidden], bias [entries, 8 hidden] (those of x before those of h; not applied without has_bias) and the
     * first states hx and cx [entries, batch, hidden]. A layer reads the outputs of the one before it, forward and
     * backward side by side. Outputs: the h of the last layer [steps, batch, directions hidden]; the last h and the
     * last c of all entries. With z = zoneout_cell the next step gets z c + (1 - z) c', and with zoneout_hidden h
     * likewise (Krueger et al. 2016). dropout is for training. Sizes of 0 follow from the operands, num_layers 0 means
     * 1, and num_directions 0 follows from bidirectional.
     * Inputs (6): x, w_ih, w_hh, bias, hx, cx.
     * Parameters: OH_NN_LSTM_BIDIRECTIONAL, OH_NN_LSTM_HAS_BIAS, OH_NN_LSTM_INPUT_SIZE, OH_NN_LSTM_HIDDEN_SIZE,
     * OH_NN_LSTM_NUM_LAYERS, OH_NN_LSTM_NUM_DIRECTIONS, OH_NN_LSTM_DROPOUT, OH_NN_LSTM_ZONEOUT_CELL,
     * OH_NN_LSTM_ZONEOUT_HIDDEN, OH_NN_LSTM_PROJ_SIZE.
     */
    OH_NN_OPS_LSTM = 75,
    /**
     * y = min(max(x, min), max), so max where min > max; NaN stays NaN. An absent bound doesn't limit. Integers are
     * limited to the integers between min and max.
     * Inputs (1): x.
     * Parameters: OH_NN_CLIP_MAX, OH_NN_CLIP_MIN.
     */
    OH_NN_OPS_CLIP = 76,
    /**
     * y = whether no element of x is 0 over the dimensions in axis (empty: all), as BOOL; true for no elements. The
     * dimensions are removed, or stay with length 1 if keep_dims is not 0.
     * Inputs (2): x, axis.
     * Parameters: OH_NN_ALL_KEEP_DIMS.
     */
    OH_NN_OPS_ALL = 77,
    /**
     * y = condition; the run fails if an element is false, and reports the first `summarize` elements of data.
     * Inputs (2): condition, data.
     * Parameters: OH_NN_ASSERT_SUMMARIZE.
     */
    OH_NN_OPS_ASSERT = 78,
    /**
     * y = cos(x), x in radians.
     * Inputs (1): x.
     */
    OH_NN_OPS_COS = 79,
    /**
     * y = log(x), the natural logarithm; minus infinity where x = 0, NaN where x < 0.
     * Inputs (1): x.
     */
    OH_NN_OPS_LOG = 80,
    /**
     * y = a and b.
     * Inputs (2): a, b.
     */
    OH_NN_OPS_LOGICAL_AND = 81,
    /**
     * y = not x.
     * Inputs (1): x.
     */
    OH_NN_OPS_LOGICAL_NOT = 82,
    /**
     * y = the remainder of a / b, with the sign of a (C's %, fmod); 0 for an integer divided by 0.
     * Inputs (2): a, b.
     */
    OH_NN_OPS_MOD = 83,
    /**
     * y = -x; integers wrap around, unsigned ones too.
     * Inputs (1): x.
     */
    OH_NN_OPS_NEG = 84,
    /**
     * y = 1 / x; infinity where x = 0.
     * Inputs (1): x.
     */
    OH_NN_OPS_RECIPROCAL = 85,
    /**
     * y = sin(x), x in radians.
     * Inputs (1): x.
     */
    OH_NN_OPS_SIN = 86,
    /**
     * y = a where condition is true, else b; all three broadcast.
     * Inputs (3): condition, a, b.
     */
    OH_NN_OPS_WHERE = 87,
    /**
     * y[indices[i]] = values[i], for equal indices the last one, 0 elsewhere: a matrix of shape sparse_shape.
     * Inputs (3): indices, values, sparse_shape.
     */
    OH_NN_OPS_SPARSE_TO_DENSE = 88,
    /**
     * y = a or b.
     * Inputs (2): a, b.
     */
    OH_NN_OPS_LOGICAL_OR = 89,
    /**
     * y = x rounded up to an integer.
     * Inputs (1): x.
     */
    OH_NN_OPS_CEIL = 90,
    /**
     * y = a window of x: from dimension axis on, shape[i] elements of dimension i; earlier dimensions stay whole. It
     * begins at 0, or at offset: one number for all dimensions that are cut, one for each of them, or one for each of
     * x.
     * Inputs (2): x, shape.
     * Parameters: OH_NN_CROP_AXIS, OH_NN_CROP_OFFSET.
     */
    OH_NN_OPS_CROP = 91,
    /**
     * y = the best of many overlapping boxes, as TensorFlow Lite's operator TFLite_Detection_PostProcess finds them. A
     * box [y, x, h, w] of bbox [1, boxes, 4 or more], of which the first four numbers count, has its center at y /
     * scale[0] anchor h + anchor y, and the height exp(h / scale[2]) anchor h; x and w likewise. scores [1, boxes,
     * num_classes or one more in front, for the background]. From the highest score down to nms_score_threshold, a box
     * is selected unless it overlaps an earlier selected one by more than nms_io_u_threshold (intersection / union).
     * With use_regular_nms this is done class by class, for at most detections_per_class (0: max_detections) boxes of
     * each, and the max_detections best are kept. Without, it is done once for the best class of each box, and the box
     * gets its max_classes_per_detection (0: 1) best classes. Outputs, for n = max_detections max_classes_per_detection
     * rows, with unused rows 0: the corners [1, n, (ymin, xmin, ymax, xmax)]; classes [1, n]; scores [1, n]; number of
     * selected boxes [1]. They are FLOAT32, or FLOAT16 if the operands are and the model doesn't declare FLOAT32.
     * input_size and out_quantized are ignored.
     * Inputs (3): bbox, scores, anchors.
     * Parameters: OH_NN_DETECTION_POST_PROCESS_INPUT_SIZE, OH_NN_DETECTION_POST_PROCESS_SCALE,
     * OH_NN_DETECTION_POST_PROCESS_NMS_IOU_THRESHOLD, OH_NN_DETECTION_POST_PROCESS_NMS_SCORE_THRESHOLD,
     * OH_NN_DETECTION_POST_PROCESS_MAX_DETECTIONS, OH_NN_DETECTION_POST_PROCESS_DETECTIONS_PER_CLASS,
     * OH_NN_DETECTION_POST_PROCESS_MAX_CLASSES_PER_DETECTION, OH_NN_DETECTION_POST_PROCESS_NUM_CLASSES,
     * OH_NN_DETECTION_POST_PROCESS_USE_REGULAR_NMS, OH_NN_DETECTION_POST_PROCESS_OUT_QUANTIZED.
     */
    OH_NN_OPS_DETECTION_POST_PROCESS = 92,
    /**
     * y = x rounded down to an integer.
     * Inputs (1): x.
     */
    OH_NN_OPS_FLOOR = 93,
    /**
     * y = f(x / sqrt(max(sum(x^2), epsilon))), where f is the fused activation. The sum is taken over the dimensions in
     * axis (empty: all).
     * Inputs (1): x.
     * Parameters: OH_NN_L2_NORMALIZE_AXIS, OH_NN_L2_NORMALIZE_EPSILON, OH_NN_L2_NORMALIZE_ACTIVATION_TYPE.
     */
    OH_NN_OPS_L2_NORMALIZE = 94,
    /**
     * y = x - log(sum(exp(x))), with the sum along axis.
     * Inputs (1): x.
     * Parameters: OH_NN_LOG_SOFTMAX_AXIS.
     */
    OH_NN_OPS_LOG_SOFTMAX = 95,
    /**
     * y = x / (bias + alpha sum(x^2))^beta, with the sum over the channels c - depth_radius to c + depth_radius. alpha
     * multiplies each of them, as in TensorFlow Lite (ONNX divides it by their number). norm_region has no other value.
     * Inputs (1): x.
     * Parameters: OH_NN_LRN_DEPTH_RADIUS, OH_NN_LRN_BIAS, OH_NN_LRN_ALPHA, OH_NN_LRN_BETA, OH_NN_LRN_NORM_REGION.
     */
    OH_NN_OPS_LRN = 96,
    /**
     * y = the smaller of a and b; NaN if either is NaN.
     * Inputs (2): a, b.
     */
    OH_NN_OPS_MINIMUM = 97,
    /**
     * y = the number of dimensions of x, as an INT32 scalar.
     * Inputs (1): x.
     */
    OH_NN_OPS_RANK = 98,
    /**
     * y = x reduced over the dimensions in axis (empty: all), which are removed, or stay with length 1 by keep_dims. By
     * mode: MEAN (integers are rounded towards zero); MAX; MIN; PROD; SUM; SUM_SQUARE sum of x^2; ASUM sum of |x|; ALL
     * whether no element is 0, as 1 or 0; L2 sqrt(sum(x^2)). Integers wrap around. Reducing no elements gives the
     * neutral element (for MAX the lowest value), and for MEAN NaN (for integers 0). reduce_to_end reduces from the
     * first entry of axis to the last dimension, and multiplies the result by coeff unless it is (almost) 0.
     * Inputs (2): x, axis.
     * Parameters: OH_NN_REDUCE_MAX_KEEP_DIMS, OH_NN_REDUCE_MAX_REDUCE_TO_END, OH_NN_REDUCE_MAX_COEFF.
     */
    OH_NN_OPS_REDUCE_MAX = 99,
    /**
     * y = x reduced over the dimensions in axis (empty: all), which are removed, or stay with length 1 by keep_dims. By
     * mode: MEAN (integers are rounded towards zero); MAX; MIN; PROD; SUM; SUM_SQUARE sum of x^2; ASUM sum of |x|; ALL
     * whether no element is 0, as 1 or 0; L2 sqrt(sum(x^2)). Integers wrap around. Reducing no elements gives the
     * neutral element (for MAX the lowest value), and for MEAN NaN (for integers 0). reduce_to_end reduces from the
     * first entry of axis to the last dimension, and multiplies the result by coeff unless it is (almost) 0.
     * Inputs (2): x, axis.
     * Parameters: OH_NN_REDUCE_MIN_KEEP_DIMS, OH_NN_REDUCE_MIN_REDUCE_TO_END, OH_NN_REDUCE_MIN_COEFF.
     */
    OH_NN_OPS_REDUCE_MIN = 100,
    /**
     * y = x reduced over the dimensions in axis (empty: all), which are removed, or stay with length 1 by keep_dims. By
     * mode: MEAN (integers are rounded towards zero); MAX; MIN; PROD; SUM; SUM_SQUARE sum of x^2; ASUM sum of |x|; ALL
     * whether no element is 0, as 1 or 0; L2 sqrt(sum(x^2)). Integers wrap around. Reducing no elements gives the
     * neutral element (for MAX the lowest value), and for MEAN NaN (for integers 0). reduce_to_end reduces from the
     * first entry of axis to the last dimension, and multiplies the result by coeff unless it is (almost) 0.
     * Inputs (2): x, axis.
     * Parameters: OH_NN_REDUCE_SUM_KEEP_DIMS, OH_NN_REDUCE_SUM_REDUCE_TO_END, OH_NN_REDUCE_SUM_COEFF.
     */
    OH_NN_OPS_REDUCE_SUM = 101,
    /**
     * y = x rounded to the nearest integer, halves to even.
     * Inputs (1): x.
     */
    OH_NN_OPS_ROUND = 102,
    /**
     * y[indices[i]] = the sum of all updates[i] with that index, or for BOOL their "or"; 0 elsewhere. The last
     * dimension of indices has positions in the first dimensions of y, which has the given shape.
     * Inputs (3): indices, updates, shape.
     */
    OH_NN_OPS_SCATTER_ND = 103,
    /**
     * y = x with each block of block_size by block_size pixels as one, with channels (row, column, old channel).
     * Inputs (1): x.
     * Parameters: OH_NN_SPACE_TO_DEPTH_BLOCK_SIZE.
     */
    OH_NN_OPS_SPACE_TO_DEPTH = 104,
    /**
     * y = f(x) element by element, where activation_type names f. NO_ACTIVATION x; RELU max(x, 0); SIGMOID 1 / (1 +
     * exp(-x)); RELU6 min(max(x, 0), 6); ELU x if x > 0 else alpha (exp(x) - 1); LEAKY_RELU x if x >= 0 else alpha x;
     * ABS |x|; RELU1 min(max(x, -1), 1); SOFTSIGN x / (1 + |x|); SOFTPLUS log(1 + exp(x)); TANH tanh(x); SELU 1.0507 (x
     * if x > 0 else 1.67326 (exp(x) - 1)); HSWISH x min(max(x + 3, 0), 6) / 6; HSIGMOID min(max((x + 3) / 6, 0), 1);
     * THRESHOLDRELU min(max(x, 0), alpha); LINEAR x; HARD_TANH min(max(x, min_val), max_val); SIGN the sign of x; SWISH
     * x sigmoid(x); GELU x Phi(x), or with `approximate` the tanh form 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715
     * x^3))). NNRt's documents differ about GELU: some print 0.5 x (1 + tanh(x / 2)), one x Phi(x). This operator and
     * the frameworks compute the latter.
     * Inputs (1): x.
     */
    OH_NN_OPS_SWISH = 105,
    /**
     * y = x reduced over the dimensions in axis (empty: all), which are removed, or stay with length 1 by keep_dims. By
     * mode: MEAN (integers are rounded towards zero); MAX; MIN; PROD; SUM; SUM_SQUARE sum of x^2; ASUM sum of |x|; ALL
     * whether no element is 0, as 1 or 0; L2 sqrt(sum(x^2)). Integers wrap around. Reducing no elements gives the
     * neutral element (for MAX the lowest value), and for MEAN NaN (for integers 0). reduce_to_end reduces from the
     * first entry of axis to the last dimension, and multiplies the result by coeff unless it is (almost) 0.
     * Inputs (2): x, axis.
     * Parameters: OH_NN_REDUCE_L2_KEEP_DIMS, OH_NN_REDUCE_L2_REDUCE_TO_END, OH_NN_REDUCE_L2_COEFF.
     */
    OH_NN_OPS_REDUCE_L2 = 106,
    /**
     * y = f(x) element by element, where activation_type names f. NO_ACTIVATION x; RELU max(x, 0); SIGMOID 1 / (1 +
     * exp(-x)); RELU6 min(max(x, 0), 6); ELU x if x > 0 else alpha (exp(x) - 1); LEAKY_RELU x if x >= 0 else alpha x;
     * ABS |x|; RELU1 min(max(x, -1), 1); SOFTSIGN x / (1 + |x|); SOFTPLUS log(1 + exp(x)); TANH tanh(x); SELU 1.0507 (x
     * if x > 0 else 1.67326 (exp(x) - 1)); HSWISH x min(max(x + 3, 0), 6) / 6; HSIGMOID min(max((x + 3) / 6, 0), 1);
     * THRESHOLDRELU min(max(x, 0), alpha); LINEAR x; HARD_TANH min(max(x, min_val), max_val); SIGN the sign of x; SWISH
     * x sigmoid(x); GELU x Phi(x), or with `approximate` the tanh form 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715
     * x^3))). NNRt's documents differ about GELU: some print 0.5 x (1 + tanh(x / 2)), one x Phi(x). This operator and
     * the frameworks compute the latter.
     * Inputs (1): x.
     */
    OH_NN_OPS_HARD_SIGMOID = 107,
    /**
     * y[i] = x[indices[i]]: the last dimension of indices has positions in the first dimensions of x.
     * Inputs (2): x, indices.
     */
    OH_NN_OPS_GATHER_ND = 108,
} OH_NN_OperationType;

/** What a tensor is to its operation. */
typedef enum {
    /** An input, an output, or a constant. */
    OH_NN_TENSOR = 0,
    /** Of ADD: activation, 1 INT8 (0 NONE, 1 RELU, 2 RELU6). */
    OH_NN_ADD_ACTIVATIONTYPE = 1,
    /** Of AVG_POOL: kernel_size, 2 INT64. */
    OH_NN_AVG_POOL_KERNEL_SIZE = 2,
    /** Of AVG_POOL: strides, 2 INT64. */
    OH_NN_AVG_POOL_STRIDE = 3,
    /**
     * Of AVG_POOL: pad, 4 INT64.
     * Of AVG_POOL: pad_mode, 1 INT8 (0 SAME, 1 VALID).
     */
    OH_NN_AVG_POOL_PAD_MODE = 4,
    /**
     * Of AVG_POOL: pad, 4 INT64.
     * Of AVG_POOL: pad_mode, 1 INT8 (0 SAME, 1 VALID).
     */
    OH_NN_AVG_POOL_PAD = 5,
    /** Of AVG_POOL: activation, 1 INT8 (0 NONE, 1 RELU, 2 RELU6). */
    OH_NN_AVG_POOL_ACTIVATION_TYPE = 6,
    /** Of BATCH_NORM: epsilon, 1 FLOAT32. */
    OH_NN_BATCH_NORM_EPSILON = 7,
    /** Of BATCH_TO_SPACE_ND: block_shape, 2 INT64. */
    OH_NN_BATCH_TO_SPACE_ND_BLOCKSIZE = 8,
    /** Of BATCH_TO_SPACE_ND: crops, 4 INT64. */
    OH_NN_BATCH_TO_SPACE_ND_CROPS = 9,
    /** Of CONCAT: axis, 1 INT64. */
    OH_NN_CONCAT_AXIS = 10,
    /** Of CONV2D: stride, 2 INT64. */
    OH_NN_CONV2D_STRIDES = 11,
    /**
     * Of CONV2D: pad_list, 4 INT64.
     * Of CONV2D: pad_mode, 1 INT8 (0 SAME, 1 VALID).
     */
    OH_NN_CONV2D_PAD = 12,
    /** Of CONV2D: dilation, 2 INT64. */
    OH_NN_CONV2D_DILATION = 13,
    /**
     * Of CONV2D: pad_list, 4 INT64.
     * Of CONV2D: pad_mode, 1 INT8 (0 SAME, 1 VALID).
     */
    OH_NN_CONV2D_PAD_MODE = 14,
    /** Of CONV2D: activation, 1 INT8 (0 NONE, 1 RELU, 2 RELU6). */
    OH_NN_CONV2D_ACTIVATION_TYPE = 15,
    /** Of CONV2D: group, 1 INT64. */
    OH_NN_CONV2D_GROUP = 16,
    /** Of CONV2D_TRANSPOSE: stride, 2 INT64. */
    OH_NN_CONV2D_TRANSPOSE_STRIDES = 17,
    /**
     * Of CONV2D_TRANSPOSE: pad_list, 4 INT64.
     * Of CONV2D_TRANSPOSE: pad_mode, 1 INT8 (0 SAME, 1 VALID).
     */
    OH_NN_CONV2D_TRANSPOSE_PAD = 18,
    /** Of CONV2D_TRANSPOSE: dilation, 2 INT64. */
    OH_NN_CONV2D_TRANSPOSE_DILATION = 19,
    /** Of CONV2D_TRANSPOSE: output_paddings, 1 or 2 INT64. */
    OH_NN_CONV2D_TRANSPOSE_OUTPUT_PADDINGS = 20,
    /**
     * Of CONV2D_TRANSPOSE: pad_list, 4 INT64.
     * Of CONV2D_TRANSPOSE: pad_mode, 1 INT8 (0 SAME, 1 VALID).
     */
    OH_NN_CONV2D_TRANSPOSE_PAD_MODE = 21,
    /** Of CONV2D_TRANSPOSE: activation, 1 INT8 (0 NONE, 1 RELU, 2 RELU6). */
    OH_NN_CONV2D_TRANSPOSE_ACTIVATION_TYPE = 22,
    /** Of CONV2D_TRANSPOSE: group, 1 INT64. */
    OH_NN_CONV2D_TRANSPOSE_GROUP = 23,
    /** Of DEPTHWISE_CONV2D_NATIVE: stride, 2 INT64. */
    OH_NN_DEPTHWISE_CONV2D_NATIVE_STRIDES = 24,
    /**
     * Of DEPTHWISE_CONV2D_NATIVE: pad_list, 4 INT64.
     * Of DEPTHWISE_CONV2D_NATIVE: pad_mode, 1 INT8 (0 SAME, 1 VALID).
     */
    OH_NN_DEPTHWISE_CONV2D_NATIVE_PAD = 25,
    /** Of DEPTHWISE_CONV2D_NATIVE: dilation, 2 INT64. */
    OH_NN_DEPTHWISE_CONV2D_NATIVE_DILATION = 26,
    /**
     * Of DEPTHWISE_CONV2D_NATIVE: pad_list, 4 INT64.
     * Of DEPTHWISE_CONV2D_NATIVE: pad_mode, 1 INT8 (0 SAME, 1 VALID).
     */
    OH_NN_DEPTHWISE_CONV2D_NATIVE_PAD_MODE = 27,
    /** Of DEPTHWISE_CONV2D_NATIVE: activation, 1 INT8 (0 NONE, 1 RELU, 2 RELU6). */
    OH_NN_DEPTHWISE_CONV2D_NATIVE_ACTIVATION_TYPE = 28,
    /** Of DIV: activation, 1 INT8 (0 NONE, 1 RELU, 2 RELU6). */
    OH_NN_DIV_ACTIVATIONTYPE = 29,
    /** Of ELTWISE: mode, 1 INT8 (0 PROD, 1 SUM, 2 MAXIMUM, 3 UNKNOWN). */
    OH_NN_ELTWISE_MODE = 30,
    /** Of FULL_CONNECTION: axis, 1 INT64. */
    OH_NN_FULL_CONNECTION_AXIS = 31,
    /** Of FULL_CONNECTION: activation, 1 INT8 (0 NONE, 1 RELU, 2 RELU6). */
    OH_NN_FULL_CONNECTION_ACTIVATIONTYPE = 32,
    /** Of MATMUL: transpose_a, 1 BOOL. */
    OH_NN_MATMUL_TRANSPOSE_A = 33,
    /** Of MATMUL: transpose_b, 1 BOOL. */
    OH_NN_MATMUL_TRANSPOSE_B = 34,
    /** Of MATMUL: activation, 1 INT8 (0 NONE, 1 RELU, 2 RELU6). */
    OH_NN_MATMUL_ACTIVATION_TYPE = 35,
    /** Of MAX_POOL: kernel_size, 2 INT64. */
    OH_NN_MAX_POOL_KERNEL_SIZE = 36,
    /** Of MAX_POOL: strides, 2 INT64. */
    OH_NN_MAX_POOL_STRIDE = 37,
    /**
     * Of MAX_POOL: pad, 4 INT64.
     * Of MAX_POOL: pad_mode, 1 INT8 (0 SAME, 1 VALID).
     */
    OH_NN_MAX_POOL_PAD_MODE = 38,
    /**
     * Of MAX_POOL: pad, 4 INT64.
     * Of MAX_POOL: pad_mode, 1 INT8 (0 SAME, 1 VALID).
     */
    OH_NN_MAX_POOL_PAD = 39,
    /** Of MAX_POOL: activation, 1 INT8 (0 NONE, 1 RELU, 2 RELU6). */
    OH_NN_MAX_POOL_ACTIVATION_TYPE = 40,
    /** Of MUL: activation, 1 INT8 (0 NONE, 1 RELU, 2 RELU6). */
    OH_NN_MUL_ACTIVATION_TYPE = 41,
    /** Of ONE_HOT: axis, 1 INT64. */
    OH_NN_ONE_HOT_AXIS = 42,
    /** Of PAD: constant_value, 1 FLOAT32. */
    OH_NN_PAD_CONSTANT_VALUE = 43,
    /** Of SCALE: activation, 1 INT8 (0 NONE, 1 RELU, 2 RELU6). */
    OH_NN_SCALE_ACTIVATIONTYPE = 44,
    /** Of SCALE: axis, 1 INT64; it has no default. */
    OH_NN_SCALE_AXIS = 45,
    /** Of SOFTMAX: axis, 1 INT64. */
    OH_NN_SOFTMAX_AXIS = 46,
    /** Of SPACE_TO_BATCH_ND: block_shape, 2 INT64. */
    OH_NN_SPACE_TO_BATCH_ND_BLOCK_SHAPE = 47,
    /** Of SPACE_TO_BATCH_ND: paddings, 4 INT64. */
    OH_NN_SPACE_TO_BATCH_ND_PADDINGS = 48,
    /** Of SPLIT: axis, 1 INT64. */
    OH_NN_SPLIT_AXIS = 49,
    /** Of SPLIT: output_num, 1 INT64. */
    OH_NN_SPLIT_OUTPUT_NUM = 50,
    /** Of SPLIT: size_splits, any number of INT64. */
    OH_NN_SPLIT_SIZE_SPLITS = 51,
    /** Of SQUEEZE: axis, any number of INT64. */
    OH_NN_SQUEEZE_AXIS = 52,
    /** Of STACK: axis, 1 INT64. */
    OH_NN_STACK_AXIS = 53,
    /** Of STRIDED_SLICE: begin_mask, 1 INT64. */
    OH_NN_STRIDED_SLICE_BEGIN_MASK = 54,
    /** Of STRIDED_SLICE: end_mask, 1 INT64. */
    OH_NN_STRIDED_SLICE_END_MASK = 55,
    /** Of STRIDED_SLICE: ellipsis_mask, 1 INT64. */
    OH_NN_STRIDED_SLICE_ELLIPSIS_MASK = 56,
    /** Of STRIDED_SLICE: new_axis_mask, 1 INT64. */
    OH_NN_STRIDED_SLICE_NEW_AXIS_MASK = 57,
    /** Of STRIDED_SLICE: shrink_axis_mask, 1 INT64. */
    OH_NN_STRIDED_SLICE_SHRINK_AXIS_MASK = 58,
    /** Of SUB: activation, 1 INT8 (0 NONE, 1 RELU, 2 RELU6). */
    OH_NN_SUB_ACTIVATIONTYPE = 59,
    /** Of REDUCE_MEAN: keep_dims, 1 BOOL. */
    OH_NN_REDUCE_MEAN_KEEP_DIMS = 60,
    /** Of RESIZE_BILINEAR: new_height, 1 INT64. */
    OH_NN_RESIZE_BILINEAR_NEW_HEIGHT = 61,
    /** Of RESIZE_BILINEAR: new_width, 1 INT64. */
    OH_NN_RESIZE_BILINEAR_NEW_WIDTH = 62,
    /** Of RESIZE_BILINEAR: preserve_aspect_ratio, 1 BOOL. */
    OH_NN_RESIZE_BILINEAR_PRESERVE_ASPECT_RATIO = 63,
    /** Of RESIZE_BILINEAR: coordinate_transform_mode, 1 INT8 or INT32 (0 ASYMMETRIC, 1 ALIGN_CORNERS, 2 HALF_PIXEL). */
    OH_NN_RESIZE_BILINEAR_COORDINATE_TRANSFORM_MODE = 64,
    /** Of RESIZE_BILINEAR: exclude_outside, 1 INT64 (0 NO, 1 YES). */
    OH_NN_RESIZE_BILINEAR_EXCLUDE_OUTSIDE = 65,
    /** Of LAYER_NORM: begin_norm_axis, 1 INT64 or INT32. */
    OH_NN_LAYER_NORM_BEGIN_NORM_AXIS = 66,
    /** Of LAYER_NORM: epsilon, 1 FLOAT32. */
    OH_NN_LAYER_NORM_EPSILON = 67,
    /** Of LAYER_NORM: begin_params_axis, 1 INT64. */
    OH_NN_LAYER_NORM_BEGIN_PARAM_AXIS = 68,
    /** Of LAYER_NORM: elementwise_affine, 1 BOOL. */
    OH_NN_LAYER_NORM_ELEMENTWISE_AFFINE = 69,
    /** Of REDUCE_PROD: keep_dims, 1 BOOL. */
    OH_NN_REDUCE_PROD_KEEP_DIMS = 70,
    /** Of REDUCE_ALL: keep_dims, 1 BOOL. */
    OH_NN_REDUCE_ALL_KEEP_DIMS = 71,
    /** Of QUANT_DTYPE_CAST: src_t, 1 INT64; it has no default. */
    OH_NN_QUANT_DTYPE_CAST_SRC_T = 72,
    /** Of QUANT_DTYPE_CAST: dst_t, 1 INT64; it has no default. */
    OH_NN_QUANT_DTYPE_CAST_DST_T = 73,
    /** Of TOP_K: sorted, 1 BOOL. */
    OH_NN_TOP_K_SORTED = 74,
    /** Of ARG_MAX: axis, 1 INT64. */
    OH_NN_ARG_MAX_AXIS = 75,
    /** Of ARG_MAX: keep_dims, 1 BOOL. */
    OH_NN_ARG_MAX_KEEPDIMS = 76,
    /** Of UNSQUEEZE: axis, any number of INT64. */
    OH_NN_UNSQUEEZE_AXIS = 77,
    /** Of UNSTACK: axis, 1 INT64 or INT32. */
    OH_NN_UNSTACK_AXIS = 78,
    /** Of FLATTEN: axis, 1 INT64. */
    OH_NN_FLATTEN_AXIS = 79,
    /** Of DEPTH_TO_SPACE: block_size, 1 INT64. */
    OH_NN_DEPTH_TO_SPACE_BLOCK_SIZE = 80,
    /** Of DEPTH_TO_SPACE: mode, 1 INT32 (0 DCR, 1 CRD). */
    OH_NN_DEPTH_TO_SPACE_MODE = 81,
    /** Of RANGE: start, 1 INT64. */
    OH_NN_RANGE_START = 82,
    /** Of RANGE: limit, 1 INT64. */
    OH_NN_RANGE_LIMIT = 83,
    /** Of RANGE: delta, 1 INT64. */
    OH_NN_RANGE_DELTA = 84,
    /** Of CONSTANT_OF_SHAPE: data_type, 1 INT64. */
    OH_NN_CONSTANT_OF_SHAPE_DATA_TYPE = 85,
    /** Of CONSTANT_OF_SHAPE: value, 1 FLOAT32. */
    OH_NN_CONSTANT_OF_SHAPE_VALUE = 86,
    /** Of BROADCAST_TO: shape, any number of INT64. */
    OH_NN_BROADCAST_TO_SHAPE = 87,
    /** Of INSTANCE_NORM: epsilon, 1 FLOAT32. */
    OH_NN_INSTANCE_NORM_EPSILON = 88,
    /** Of EXP: base, 1 FLOAT32. */
    OH_NN_EXP_BASE = 89,
    /** Of EXP: scale, 1 FLOAT32. */
    OH_NN_EXP_SCALE = 90,
    /** Of EXP: shift, 1 FLOAT32. */
    OH_NN_EXP_SHIFT = 91,
    /** Of LEAKY_RELU: alpha, 1 FLOAT32. */
    OH_NN_LEAKY_RELU_NEGATIVE_SLOPE = 92,
    /** Of LSTM: bidirectional, 1 BOOL. */
    OH_NN_LSTM_BIDIRECTIONAL = 93,
    /** Of LSTM: has_bias, 1 BOOL. */
    OH_NN_LSTM_HAS_BIAS = 94,
    /** Of LSTM: input_size, 1 INT64. */
    OH_NN_LSTM_INPUT_SIZE = 95,
    /** Of LSTM: hidden_size, 1 INT64. */
    OH_NN_LSTM_HIDDEN_SIZE = 96,
    /** Of LSTM: num_layers, 1 INT64. */
    OH_NN_LSTM_NUM_LAYERS = 97,
    /** Of LSTM: num_directions, 1 INT64. */
    OH_NN_LSTM_NUM_DIRECTIONS = 98,
    /** Of LSTM: dropout, 1 FLOAT32. */
    OH_NN_LSTM_DROPOUT = 99,
    /** Of LSTM: zoneout_cell, 1 FLOAT32. */
    OH_NN_LSTM_ZONEOUT_CELL = 100,
    /** Of LSTM: zoneout_hidden, 1 FLOAT32. */
    OH_NN_LSTM_ZONEOUT_HIDDEN = 101,
    /** Of LSTM: proj_size, 1 INT64. */
    OH_NN_LSTM_PROJ_SIZE = 102,
    /** Of CLIP: max, 1 FLOAT32. */
    OH_NN_CLIP_MAX = 103,
    /** Of CLIP: min, 1 FLOAT32. */
    OH_NN_CLIP_MIN = 104,
    /** Of ALL: keep_dims, 1 INT64. */
    OH_NN_ALL_KEEP_DIMS = 105,
    /** Of ASSERT: summarize, 1 INT64. */
    OH_NN_ASSERT_SUMMARIZE = 106,
    /** Of POW: scale, 1 FLOAT32. */
    OH_NN_POW_SCALE = 107,
    /** Of POW: shift, 1 FLOAT32. */
    OH_NN_POW_SHIFT = 108,
    /** Of AVG_POOL: round_mode, 1 INT32 (0 FLOOR, 1 CEIL). */
    OH_NN_AVG_POOL_ROUND_MODE = 109,
    /** Of AVG_POOL: global_, 1 BOOL. */
    OH_NN_AVG_POOL_GLOBAL = 110,
    /** Of FULL_CONNECTION: has_bias, 1 BOOL. */
    OH_NN_FULL_CONNECTION_HAS_BIAS = 111,
    /** Of FULL_CONNECTION: use_axis, 1 BOOL. */
    OH_NN_FULL_CONNECTION_USE_AXIS = 112,
    /** Of GELU: approximate, 1 BOOL. */
    OH_NN_GELU_APPROXIMATE = 113,
    /** Of MAX_POOL: round_mode, 1 INT32 (0 FLOOR, 1 CEIL). */
    OH_NN_MAX_POOL_ROUND_MODE = 114,
    /** Of MAX_POOL: global_, 1 BOOL. */
    OH_NN_MAX_POOL_GLOBAL = 115,
    /** Of PAD: padding_mode, 1 INT32 (0 CONSTANT, 1 REFLECT, 2 SYMMETRIC, 3 RESERVED). */
    OH_NN_PAD_PADDING_MODE = 116,
    /** Of REDUCE_MEAN: reduce_to_end, 1 BOOL. */
    OH_NN_REDUCE_MEAN_REDUCE_TO_END = 117,
    /** Of REDUCE_MEAN: coeff, 1 FLOAT32. */
    OH_NN_REDUCE_MEAN_COEFF = 118,
    /** Of REDUCE_PROD: reduce_to_end, 1 BOOL. */
    OH_NN_REDUCE_PROD_REDUCE_TO_END = 119,
    /** Of REDUCE_PROD: coeff, 1 FLOAT32. */
    OH_NN_REDUCE_PROD_COEFF = 120,
    /** Of REDUCE_ALL: reduce_to_end, 1 BOOL. */
    OH_NN_REDUCE_ALL_REDUCE_TO_END = 121,
    /** Of REDUCE_ALL: coeff, 1 FLOAT32. */
    OH_NN_REDUCE_ALL_COEFF = 122,
    /** Of TOP_K: axis, 1 INT64 or INT32. */
    OH_NN_TOP_K_AXIS = 123,
    /** Of ARG_MAX: top_k, 1 INT64. */
    OH_NN_ARG_MAX_TOP_K = 124,
    /** Of ARG_MAX: out_max_value, 1 BOOL. */
    OH_NN_ARG_MAX_OUT_MAX_VALUE = 125,
    /** Of QUANT_DTYPE_CAST: axis, 1 INT64. */
    OH_NN_QUANT_DTYPE_CAST_AXIS = 126,
    /** Of SLICE: axes, any number of INT64. */
    OH_NN_SLICE_AXES = 127,
    /** Of TILE: dims, any number of INT64. */
    OH_NN_TILE_DIMS = 128,
    /** Of CROP: axis, 1 INT64. */
    OH_NN_CROP_AXIS = 129,
    /** Of CROP: offset, any number of INT64. */
    OH_NN_CROP_OFFSET = 130,
    /** Of DETECTION_POST_PROCESS: input_size, 1 INT64. */
    OH_NN_DETECTION_POST_PROCESS_INPUT_SIZE = 131,
    /** Of DETECTION_POST_PROCESS: scale, any number of FLOAT32. */
    OH_NN_DETECTION_POST_PROCESS_SCALE = 132,
    /** Of DETECTION_POST_PROCESS: nms_iou_threshold, 1 FLOAT32. */
    OH_NN_DETECTION_POST_PROCESS_NMS_IOU_THRESHOLD = 133,
    /** Of DETECTION_POST_PROCESS: nms_score_threshold, 1 FLOAT32. */
    OH_NN_DETECTION_POST_PROCESS_NMS_SCORE_THRESHOLD = 134,
    /** Of DETECTION_POST_PROCESS: max_detections, 1 INT64. */
    OH_NN_DETECTION_POST_PROCESS_MAX_DETECTIONS = 135,
    /** Of DETECTION_POST_PROCESS: detections_per_class, 1 INT64. */
    OH_NN_DETECTION_POST_PROCESS_DETECTIONS_PER_CLASS = 136,
    /** Of DETECTION_POST_PROCESS: max_classes_per_detection, 1 INT64. */
    OH_NN_DETECTION_POST_PROCESS_MAX_CLASSES_PER_DETECTION = 137,
    /** Of DETECTION_POST_PROCESS: num_classes, 1 INT64. */
    OH_NN_DETECTION_POST_PROCESS_NUM_CLASSES = 138,
    /** Of DETECTION_POST_PROCESS: use_regular_nms, 1 BOOL. */
    OH_NN_DETECTION_POST_PROCESS_USE_REGULAR_NMS = 139,
    /** Of DETECTION_POST_PROCESS: out_quantized, 1 BOOL. */
    OH_NN_DETECTION_POST_PROCESS_OUT_QUANTIZED = 140,
    /** Of L2_NORMALIZE: axis, any number of INT64. */
    OH_NN_L2_NORMALIZE_AXIS = 141,
    /** Of L2_NORMALIZE: epsilon, 1 FLOAT32. */
    OH_NN_L2_NORMALIZE_EPSILON = 142,
    /** Of L2_NORMALIZE: activation, 1 INT8 (0 NONE, 1 RELU, 2 RELU6). */
    OH_NN_L2_NORMALIZE_ACTIVATION_TYPE = 143,
    /** Of LOG_SOFTMAX: axis, 1 INT64. */
    OH_NN_LOG_SOFTMAX_AXIS = 144,
    /** Of LRN: depth_radius, 1 INT64. */
    OH_NN_LRN_DEPTH_RADIUS = 145,
    /** Of LRN: bias, 1 FLOAT32. */
    OH_NN_LRN_BIAS = 146,
    /** Of LRN: alpha, 1 FLOAT32. */
    OH_NN_LRN_ALPHA = 147,
    /** Of LRN: beta, 1 FLOAT32. */
    OH_NN_LRN_BETA = 148,
    /** Of LRN: norm_region, 1 INT32 (0 ACROSS_CHANNELS). */
    OH_NN_LRN_NORM_REGION = 149,
    /** Of SPACE_TO_DEPTH: block_size, 1 INT64. */
    OH_NN_SPACE_TO_DEPTH_BLOCK_SIZE = 150,
    /** Of REDUCE_MAX: keep_dims, 1 BOOL. */
    OH_NN_REDUCE_MAX_KEEP_DIMS = 151,
    /** Of REDUCE_MAX: reduce_to_end, 1 BOOL. */
    OH_NN_REDUCE_MAX_REDUCE_TO_END = 152,
    /** Of REDUCE_MAX: coeff, 1 FLOAT32. */
    OH_NN_REDUCE_MAX_COEFF = 153,
    /** Of REDUCE_MIN: keep_dims, 1 BOOL. */
    OH_NN_REDUCE_MIN_KEEP_DIMS = 154,
    /** Of REDUCE_MIN: reduce_to_end, 1 BOOL. */
    OH_NN_REDUCE_MIN_REDUCE_TO_END = 155,
    /** Of REDUCE_MIN: coeff, 1 FLOAT32. */
    OH_NN_REDUCE_MIN_COEFF = 156,
    /** Of REDUCE_SUM: keep_dims, 1 BOOL. */
    OH_NN_REDUCE_SUM_KEEP_DIMS = 157,
    /** Of REDUCE_SUM: reduce_to_end, 1 BOOL. */
    OH_NN_REDUCE_SUM_REDUCE_TO_END = 158,
    /** Of REDUCE_SUM: coeff, 1 FLOAT32. */
    OH_NN_REDUCE_SUM_COEFF = 159,
    /** Of REDUCE_L2: keep_dims, 1 BOOL. */
    OH_NN_REDUCE_L2_KEEP_DIMS = 160,
    /** Of REDUCE_L2: reduce_to_end, 1 BOOL. */
    OH_NN_REDUCE_L2_REDUCE_TO_END = 161,
    /** Of REDUCE_L2: coeff, 1 FLOAT32. */
    OH_NN_REDUCE_L2_COEFF = 162,
} OH_NN_TensorType;

/** Indices of tensors. */
typedef struct OH_NN_UInt32Array {
    /** The first one; null only where there are none. */
    uint32_t *data;
    /** Their number. */
    uint32_t size;
} OH_NN_UInt32Array;

/** Quantization parameters of an OH_NN_Tensor. Deprecated since 11: use NN_QuantParam. */
typedef struct OH_NN_QuantParam {
    /** The number of elements of each array: 1, or one for each channel. */
    uint32_t quantCount;
    /** Bits, each 8. */
    const uint32_t *numBits;
    /** Scales: an element q stands for the number (q - zeroPoint) * scale. */
    const double *scale;
    /** Zero points. */
    const int32_t *zeroPoint;
} OH_NN_QuantParam;

/** A tensor's description. Deprecated since 11: use NN_TensorDesc. */
typedef struct OH_NN_Tensor {
    /** The type of its elements. */
    OH_NN_DataType dataType;
    /** The number of its dimensions; 0 for a scalar. */
    uint32_t dimensionCount;
    /** Its dimensions, -1 for one that only a run decides; null for a scalar. */
    const int32_t *dimensions;
    /** Its quantization parameters; null where it is not quantized. */
    const OH_NN_QuantParam *quantParam;
    /** What it is to its operation. */
    OH_NN_TensorType type;
} OH_NN_Tensor;

/** Memory that a device reads and writes where it is. Deprecated since 11: use NN_Tensor. */
typedef struct OH_NN_Memory {
    /** The first byte. */
    void *const data;
    /** The number of bytes. */
    const size_t length;
} OH_NN_Memory;

/**
 * Called when a run has ended that OH_NNExecutor_RunAsync has begun. Since 11.
 *
 * @param userData      what OH_NNExecutor_RunAsync was given.
 * @param errCode       how it ended; if it is not OH_NN_SUCCESS the outputs hold anything.
 * @param outputTensor  the NN_Tensor that OH_NNExecutor_RunAsync was given; the array is valid until the return.
 * @param outputCount   their number.
 */
typedef void (*NN_OnRunDone)(void *userData, OH_NN_ReturnCode errCode, void *outputTensor[], int32_t outputCount);

/**
 * Called when the daemon has died while a run was under way. Since 11.
 *
 * @param userData  what OH_NNExecutor_RunAsync was given.
 */
typedef void (*NN_OnServiceDied)(void *userData);

#ifdef __cplusplus
}
#endif

#endif
