"""The operators that a program may have: those of ONNX, and those of ONNX Runtime that only compute.

What isn't named can't come in with a later ONNX Runtime either. Left out are those that load or hold a foreign binary
(EPContext, Snpe), those of libraries that nobody registers here, and the domains that ONNX Runtime's optimizations use
among themselves, whose operators trust that they were put together by it.
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
    """Tell if the operator of a node, which is no function of the model, only computes."""
    return node.domain in ONNX_DOMAINS or (node.domain == RUNTIME_DOMAIN and node.op_type in RUNTIME_OPERATORS)
