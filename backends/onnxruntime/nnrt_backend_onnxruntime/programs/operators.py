"""Operators that a program may have: those of ONNX, and those of ONNX Runtime that only compute.

This is a list of names, so that a later ONNX Runtime can't add others. The list leaves out operators that load or
contain a foreign binary (EPContext, Snpe), operators of libraries that nobody registers here, and the domains that only
ONNX Runtime's optimizations use, whose operators trust that ONNX Runtime created them.
"""

import onnx
from nnrt_onnx_lowering.engine import names

ONNX_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})
RUNTIME_DOMAIN = "com.microsoft"
RUNTIME_OPERATORS = names(
    """
    Attention AttnLSTM BeamSearch BiasAdd BiasDropout BiasGelu BiasSoftmax BiasSplitGelu BifurcationDetector
    BitmaskBiasDropout BitmaskDropout CDist ComplexMul ComplexMulConj ConvTransposeWithDynamicPads CropAndResize
    DecoderAttention DecoderMaskedMultiHeadAttention DecoderMaskedSelfAttention DequantizeBFP DequantizeLinear
    DequantizeWithOrder DynamicQuantizeLSTM DynamicQuantizeMatMul DynamicTimeWarping EmbedLayerNormalization ExpandDims
    FastGelu FusedConv FusedGemm FusedMatMul FusedMatMulActivation GatedRelativePositionBias GatherBlockQuantized
    GatherND Gelu GemmFastGelu GemmFloat8 GemmaRotaryEmbedding GreedySearch GridSample GroupNorm GroupQueryAttention
    Inverse Irfft IsAllFinite LongformerAttention MatMulBnb4 MatMulFpQ4 MatMulInteger16 MatMulIntegerToFloat MatMulNBits
    MaxpoolWithMask MoE MulInteger MultiHeadAttention MurmurHash3 NGramRepeatBlock NhwcConv NhwcFusedConv NhwcMaxPool
    PackedAttention PackedMultiHeadAttention PagedAttention Pad QAttention QEmbedLayerNormalization QGemm QLinearAdd
    QLinearAveragePool QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearReduceMean
    QLinearSigmoid QLinearSoftmax QLinearWhere QMoE QOrderedAttention QOrderedGelu QOrderedLayerNormalization
    QOrderedLongformerAttention QOrderedMatMul QuantizeBFP QuantizeLinear QuantizeWithOrder QuickGelu Range
    ReduceSumInteger RelativePositionBias RemovePadding RestorePadding Rfft RotaryEmbedding SampleOp Sampling
    SkipGroupNorm SkipLayerNormalization SkipSimplifiedLayerNormalization SparseAttention SparseToDenseMatMul Tokenizer
    TorchEmbedding TransposeMatMul Trilu UnfoldTensor Unique WhisperBeamSearch WordConvEmbedding
    """
)


def is_allowed(node: onnx.NodeProto) -> bool:
    """Return whether clients may send the operator of a node. The node must not be a call of the model's functions."""
    return node.domain in ONNX_DOMAINS or (node.domain == RUNTIME_DOMAIN and node.op_type in RUNTIME_OPERATORS)
