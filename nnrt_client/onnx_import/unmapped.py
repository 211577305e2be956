"""Reasons why operators of ONNX are not imported."""

import onnx

from nnrt_client.onnx_import.operators.operator import MICROSOFT

_REASONS = {
    **dict.fromkeys(("If", "Loop", "Scan"), "NNRt has no branches and loops"),
    **dict.fromkeys(
        [
            "ConcatFromSequence",
            "Optional",
            "OptionalGetElement",
            "OptionalHasElement",
            "SequenceAt",
            "SequenceConstruct",
            "SequenceEmpty",
            "SequenceErase",
            "SequenceInsert",
            "SequenceLength",
            "SequenceMap",
            "SplitToSequence",
        ],
        "NNRt has tensors only, no sequences and optional values",
    ),
    **dict.fromkeys(
        ["ImageDecoder", "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"],
        "NNRt has no texts and image files",
    ),
    **dict.fromkeys(
        ["Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"],
        "NNRt has no random numbers",
    ),
    **dict.fromkeys(
        ["Compress", "NonMaxSuppression", "NonZero", "Unique"],
        "how many elements it gives depends on the elements themselves, which no operation of NNRt allows",
    ),
}
_MICROSOFT_REASONS = {
    "EPContext": "it holds a model that was compiled for one accelerator; give the model that it was compiled from",
}
_DOMAIN_REASONS = {
    "com.microsoft.nchwc": (
        "it lays out images for one processor; save the model at optimization level 'extended' or below"
    ),
    "ai.onnx.ml": "it is classical machine learning, for which NNRt has no operations",
    "ai.onnx.preview.training": "it trains; NNRt only runs models",
    "ai.onnx.training": "it trains; NNRt only runs models",
}


def reason_of(domain: str, name: str, opset: int) -> str:
    """Return the reason why an operator can't be imported."""
    if domain in _DOMAIN_REASONS:
        return _DOMAIN_REASONS[domain]
    if domain == MICROSOFT:
        return _MICROSOFT_REASONS.get(
            name, "no operation of NNRt, or small group of them, computes what ONNX Runtime adds here"
        )
    if domain:
        return f"domain {domain!r} is not ONNX's; make it a function of the model"
    if name in _REASONS:
        return _REASONS[name]
    try:
        onnx.defs.get_schema(name, opset, "")
    except onnx.defs.SchemaError:
        return f"operator set {opset} of this version of onnx has no such operator"
    return "no operation of NNRt, or small group of them, computes it"
