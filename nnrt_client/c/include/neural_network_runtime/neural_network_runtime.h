/**
 * @file neural_network_runtime.h
 *
 * Quantization parameters, models, and the functions of API 9 that programs still call. neural_network_core.h has what
 * computes models, and the rules that hold for all functions.
 */
#ifndef NEURAL_NETWORK_RUNTIME_NEURAL_NETWORK_RUNTIME_H
#define NEURAL_NETWORK_RUNTIME_NEURAL_NETWORK_RUNTIME_H

#include "neural_network_core.h"
#include "neural_network_runtime_type.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Quantization parameters */

/**
 * Quantization parameters without any values.
 *
 * @return the parameters, to be destroyed by OH_NNQuantParam_Destroy; NULL where memory is short.
 * @since 11
 */
NN_QuantParam *OH_NNQuantParam_Create(void);

/**
 * Set the scales: one for the tensor, or one for each of its channels.
 *
 * @param scales      are copied.
 * @param quantCount  their number, at least 1.
 * @since 11
 */
OH_NN_ReturnCode OH_NNQuantParam_SetScales(NN_QuantParam *quantParams, const double *scales, size_t quantCount);

/**
 * Set the zero points: as many as scales.
 *
 * @since 11
 */
OH_NN_ReturnCode OH_NNQuantParam_SetZeroPoints(NN_QuantParam *quantParams, const int32_t *zeroPoints, size_t quantCount);

/**
 * Set the bits: as many as scales, each 8, which is checked when a tensor gets the parameters.
 *
 * @since 11
 */
OH_NN_ReturnCode OH_NNQuantParam_SetNumBits(NN_QuantParam *quantParams, const uint32_t *numBits, size_t quantCount);

/**
 * Destroy quantization parameters. Tensors of models that got them have copies.
 *
 * @param quantParams  points to them; null afterwards.
 * @since 11
 */
OH_NN_ReturnCode OH_NNQuantParam_Destroy(NN_QuantParam **quantParams);

/* ---- Models */

/**
 * An empty model.
 *
 * @return the model, to be destroyed by OH_NNModel_Destroy; NULL where memory is short.
 * @since 9
 */
OH_NNModel *OH_NNModel_Construct(void);

/**
 * Add a tensor. Its index is the number of tensors that were added before.
 *
 * @param tensorDesc  is copied. Without a shape it is that of a scalar; -1 stands for a dimension that only a run decides.
 * @return OH_NN_INVALID_PARAMETER for a dimension of 0 or below -1, and for more than 4 GiB;
 *         OH_NN_OPERATION_FORBIDDEN once the model is finished.
 * @since 11
 */
OH_NN_ReturnCode OH_NNModel_AddTensorToModel(OH_NNModel *model, const NN_TensorDesc *tensorDesc);

/**
 * Give a tensor elements, once: it is a constant, or a parameter of an operation, which must have them when
 * OH_NNModel_AddOperation names it.
 *
 * @param dataBuffer  is copied.
 * @param length      its bytes: as many as the tensor has.
 * @return OH_NN_INVALID_PARAMETER for another number of bytes, for a tensor that has elements, and for an index that there
 *         isn't; OH_NN_OPERATION_FORBIDDEN for a tensor with a dimension that only a run decides, for an input or an output
 *         of the model, and once the model is finished.
 * @since 9
 */
OH_NN_ReturnCode OH_NNModel_SetTensorData(OH_NNModel *model, uint32_t index, const void *dataBuffer, size_t length);

/**
 * Have a tensor be quantized. A call that fails for what the parameters are leaves the tensor without any.
 *
 * @param quantParam  is copied. Without any values the tensor is not quantized.
 * @return OH_NN_INVALID_PARAMETER for parameters that don't go together, and for an index that there isn't;
 *         OH_NN_OPERATION_FORBIDDEN once the model is finished.
 * @since 11
 */
OH_NN_ReturnCode OH_NNModel_SetTensorQuantParams(OH_NNModel *model, uint32_t index, NN_QuantParam *quantParam);

/**
 * Say which parameter of an operation a tensor is; the last call counts.
 *
 * @return OH_NN_INVALID_PARAMETER for what is no such type, and for an index that there isn't;
 *         OH_NN_OPERATION_FORBIDDEN once the model is finished.
 * @since 11
 */
OH_NN_ReturnCode OH_NNModel_SetTensorType(OH_NNModel *model, uint32_t index, OH_NN_TensorType tensorType);

/**
 * Add an operation. neural_network_runtime_type.h says which tensors each one reads.
 *
 * @param op             the operation.
 * @param paramIndices   indices of its parameters, in any order; those left out have their defaults. An array without
 *                       any is a null pointer with size 0.
 * @param inputIndices   indices of its inputs, in the operation's order; 1 to 200.
 * @param outputIndices  indices of its outputs, in the operation's order; 1 to 200.
 * @return OH_NN_INVALID_PARAMETER for tensors that don't fit, OH_NN_OPERATION_FORBIDDEN once the model is finished.
 * @since 9
 */
OH_NN_ReturnCode OH_NNModel_AddOperation(
    OH_NNModel *model,
    OH_NN_OperationType op,
    const OH_NN_UInt32Array *paramIndices,
    const OH_NN_UInt32Array *inputIndices,
    const OH_NN_UInt32Array *outputIndices);

/**
 * Say what the inputs and the outputs of the model are: 1 to 200 of each. Executors know them by their positions here.
 *
 * @return OH_NN_INVALID_PARAMETER for indices that there aren't, for one in both arrays, and for a parameter of an
 *         operation; OH_NN_OPERATION_FORBIDDEN for a second call that succeeds, and once the model is finished.
 * @since 9
 */
OH_NN_ReturnCode OH_NNModel_SpecifyInputsAndOutputs(
    OH_NNModel *model, const OH_NN_UInt32Array *inputIndices, const OH_NN_UInt32Array *outputIndices);

/**
 * Finish a model: nothing of it changes any more, and it can be compiled. What its operations read of each other is not
 * looked at here: OH_NNCompilation_Build returns OH_NN_INVALID_PARAMETER for a graph that has a circle, or reads what
 * nothing gives.
 *
 * @return OH_NN_OPERATION_FORBIDDEN for a model without operations, inputs or outputs, and for one that is finished.
 * @since 9
 */
OH_NN_ReturnCode OH_NNModel_Finish(OH_NNModel *model);

/**
 * Destroy a model. Compilations that were made from it go on.
 *
 * @param model  points to the model; null afterwards.
 * @since 9
 */
void OH_NNModel_Destroy(OH_NNModel **model);

/**
 * Ask a device which operations of a model it runs.
 *
 * @param isSupported  points to a null pointer; gets a truth value for each operation, in the order in which they were
 *                     added. They live as long as the model.
 * @param opCount      gets their number.
 * @return OH_NN_INVALID_PARAMETER where `*isSupported` is not null, OH_NN_OPERATION_FORBIDDEN for a model that is not
 *         finished, OH_NN_FAILED for an id that no device has that answers, OH_NN_UNAVAILABLE_DEVICE where its daemon dies
 *         meanwhile.
 * @since 9
 */
OH_NN_ReturnCode OH_NNModel_GetAvailableOperations(
    OH_NNModel *model, size_t deviceID, const bool **isSupported, uint32_t *opCount);

/* ---- API 9: deprecated since 11. What they are replaced by takes tensors that the program makes once. */

/**
 * Add a tensor; use OH_NNModel_AddTensorToModel, with which this shares the indices.
 *
 * @param tensor  is copied, with all that it points to. Without dimensions it is a scalar; it has at most 200.
 * @return as of OH_NNModel_AddTensorToModel; OH_NN_INVALID_PARAMETER, too, for an array without elements and for
 *         elements without an array.
 * @since 9
 * @deprecated since 11
 */
OH_NN_ReturnCode OH_NNModel_AddTensor(OH_NNModel *model, const OH_NN_Tensor *tensor);

/**
 * Set an input of the next runs; use OH_NNExecutor_RunSync.
 *
 * @param tensor      what the input is in these runs: its data type, and its shape, all of whose dimensions are known.
 * @param dataBuffer  is copied.
 * @param length      its bytes, at least those of the tensor.
 * @return OH_NN_INVALID_PARAMETER for an index that there isn't, and for a tensor that doesn't fit.
 * @since 9
 * @deprecated since 11
 */
OH_NN_ReturnCode OH_NNExecutor_SetInput(
    OH_NNExecutor *executor, uint32_t inputIndex, const OH_NN_Tensor *tensor, const void *dataBuffer, size_t length);

/**
 * Set where an output of the next runs goes; use OH_NNExecutor_RunSync.
 *
 * @param dataBuffer  OH_NNExecutor_Run writes it. It stays the program's, and must live until then.
 * @param length      its bytes.
 * @return OH_NN_INVALID_PARAMETER for an index that there isn't, and for fewer bytes than an output has whose shape the
 *         model declares.
 * @since 9
 * @deprecated since 11
 */
OH_NN_ReturnCode OH_NNExecutor_SetOutput(
    OH_NNExecutor *executor, uint32_t outputIndex, void *dataBuffer, size_t length);

/**
 * Run the model with the inputs and outputs that have been set, which stay set; use OH_NNExecutor_RunSync.
 *
 * @return OH_NN_INVALID_PARAMETER where one has not been set, or its memory has been destroyed, and for an output that is
 *         too small; else as of OH_NNExecutor_RunSync.
 * @since 9
 * @deprecated since 11
 */
OH_NN_ReturnCode OH_NNExecutor_Run(OH_NNExecutor *executor);

/**
 * Memory for an input, which the device reads where it is; use OH_NNTensor_CreateWithSize.
 *
 * @param length  1 byte to 1 GiB.
 * @return the memory, to be destroyed by OH_NNExecutor_DestroyInputMemory; NULL for an index that there isn't, and where
 *         memory is short.
 * @since 9
 * @deprecated since 11
 */
OH_NN_Memory *OH_NNExecutor_AllocateInputMemory(OH_NNExecutor *executor, uint32_t inputIndex, size_t length);

/**
 * Memory for an output, in the same way.
 *
 * @since 9
 * @deprecated since 11
 */
OH_NN_Memory *OH_NNExecutor_AllocateOutputMemory(OH_NNExecutor *executor, uint32_t outputIndex, size_t length);

/**
 * Destroy memory. Only the executor and the index that it was allocated for do so; others change nothing.
 *
 * @param memory  points to the memory; null afterwards.
 * @since 9
 * @deprecated since 11
 */
void OH_NNExecutor_DestroyInputMemory(OH_NNExecutor *executor, uint32_t inputIndex, OH_NN_Memory **memory);

/**
 * Destroy memory of an output, in the same way.
 *
 * @since 9
 * @deprecated since 11
 */
void OH_NNExecutor_DestroyOutputMemory(OH_NNExecutor *executor, uint32_t outputIndex, OH_NN_Memory **memory);

/**
 * Have the next runs read an input from memory; use OH_NNExecutor_RunSync.
 *
 * @param tensor  as of OH_NNExecutor_SetInput.
 * @param memory  of any executor, with at least the bytes of the tensor.
 * @return OH_NN_INVALID_PARAMETER for an index that there isn't, and for a tensor or memory that doesn't fit.
 * @since 9
 * @deprecated since 11
 */
OH_NN_ReturnCode OH_NNExecutor_SetInputWithMemory(
    OH_NNExecutor *executor, uint32_t inputIndex, const OH_NN_Tensor *tensor, const OH_NN_Memory *memory);

/**
 * Have the next runs write an output to memory; use OH_NNExecutor_RunSync.
 *
 * @return as of OH_NNExecutor_SetOutput.
 * @since 9
 * @deprecated since 11
 */
OH_NN_ReturnCode OH_NNExecutor_SetOutputWithMemory(
    OH_NNExecutor *executor, uint32_t outputIndex, const OH_NN_Memory *memory);

#ifdef __cplusplus
}
#endif

#endif
