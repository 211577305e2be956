/**
 * @file neural_network_runtime.h
 *
 * Quantization parameters, models, and deprecated functions of API 9. neural_network_core.h has compilations and
 * executors, and the rules for all functions.
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
 * Create quantization parameters without values.
 *
 * @return the parameters, to be destroyed by OH_NNQuantParam_Destroy; NULL if there is not enough memory.
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
 * Set the numbers of bits: as many as scales, each 8. They are checked when a tensor gets the parameters.
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
 * Create an empty model.
 *
 * @return the model, to be destroyed by OH_NNModel_Destroy; NULL if there is not enough memory.
 * @since 9
 */
OH_NNModel *OH_NNModel_Construct(void);

/**
 * Add a tensor. Its index is the number of tensors that were added before.
 *
 * @param tensorDesc  is copied. Without a shape it describes a scalar; -1 is a dimension that is known only in a run.
 * @return OH_NN_INVALID_PARAMETER for a dimension of 0 or below -1, and for more than 4 GiB;
 *         OH_NN_OPERATION_FORBIDDEN after the model is finished.
 * @since 11
 */
OH_NN_ReturnCode OH_NNModel_AddTensorToModel(OH_NNModel *model, const NN_TensorDesc *tensorDesc);

/**
 * Set the elements of a constant, or of a parameter of an operation, once. A parameter must have its elements when
 * OH_NNModel_AddOperation is called.
 *
 * @param dataBuffer  is copied.
 * @param length      its size in bytes, which must be that of the tensor.
 * @return OH_NN_INVALID_PARAMETER for another size, for a tensor that has elements, and for an index that doesn't
 *         exist; OH_NN_OPERATION_FORBIDDEN for a tensor with an unknown dimension, for an input or an output of the
 *         model, and after the model is finished.
 * @since 9
 */
OH_NN_ReturnCode OH_NNModel_SetTensorData(OH_NNModel *model, uint32_t index, const void *dataBuffer, size_t length);

/**
 * Set the quantization parameters of a tensor. If they are invalid, the call fails and the tensor is left without any.
 *
 * @param quantParam  is copied. Without values the tensor is not quantized.
 * @return OH_NN_INVALID_PARAMETER for parameters that don't fit each other, and for an index that doesn't exist;
 *         OH_NN_OPERATION_FORBIDDEN after the model is finished.
 * @since 11
 */
OH_NN_ReturnCode OH_NNModel_SetTensorQuantParams(OH_NNModel *model, uint32_t index, NN_QuantParam *quantParam);

/**
 * Set which parameter of an operation a tensor is. The last call counts.
 *
 * @return OH_NN_INVALID_PARAMETER for an invalid type, and for an index that doesn't exist; OH_NN_OPERATION_FORBIDDEN
 *         after the model is finished.
 * @since 11
 */
OH_NN_ReturnCode OH_NNModel_SetTensorType(OH_NNModel *model, uint32_t index, OH_NN_TensorType tensorType);

/**
 * Add an operation. neural_network_runtime_type.h lists the tensors that each operation reads.
 *
 * @param op             the operation.
 * @param paramIndices   indices of its parameters, in any order. Parameters that are left out have their defaults. An
 *                       empty array is a null pointer with size 0.
 * @param inputIndices   indices of its inputs, in the operation's order; 1 to 200.
 * @param outputIndices  indices of its outputs, in the operation's order; 1 to 200.
 * @return OH_NN_INVALID_PARAMETER for tensors that don't fit, OH_NN_OPERATION_FORBIDDEN after the model is finished.
 * @since 9
 */
OH_NN_ReturnCode OH_NNModel_AddOperation(
    OH_NNModel *model,
    OH_NN_OperationType op,
    const OH_NN_UInt32Array *paramIndices,
    const OH_NN_UInt32Array *inputIndices,
    const OH_NN_UInt32Array *outputIndices);

/**
 * Set the inputs and the outputs of the model: 1 to 200 of each. Executors number them by their positions here.
 *
 * @return OH_NN_INVALID_PARAMETER for indices that don't exist, for one in both arrays, and for a parameter of an
 *         operation; OH_NN_OPERATION_FORBIDDEN if an earlier call has succeeded, and after the model is finished.
 * @since 9
 */
OH_NN_ReturnCode OH_NNModel_SpecifyInputsAndOutputs(
    OH_NNModel *model, const OH_NN_UInt32Array *inputIndices, const OH_NN_UInt32Array *outputIndices);

/**
 * Finish a model. After that it can be compiled, but not changed. The order of its operations is not checked here:
 * OH_NNCompilation_Build returns OH_NN_INVALID_PARAMETER for a graph that has a cycle, or reads a tensor that no
 * operation writes.
 *
 * @return OH_NN_OPERATION_FORBIDDEN for a model without operations, inputs or outputs, and for a finished one.
 * @since 9
 */
OH_NN_ReturnCode OH_NNModel_Finish(OH_NNModel *model);

/**
 * Destroy a model. Its compilations keep working.
 *
 * @param model  points to the model; null afterwards.
 * @since 9
 */
void OH_NNModel_Destroy(OH_NNModel **model);

/**
 * Ask a device which operations of a model it supports.
 *
 * @param isSupported  points to a null pointer; gets a flag for each operation, in the order in which they were added.
 *                     The flags live as long as the model.
 * @param opCount      gets their number.
 * @return OH_NN_INVALID_PARAMETER if `*isSupported` is not null, OH_NN_OPERATION_FORBIDDEN for a model that is not
 *         finished, OH_NN_FAILED if no device with this id answers, OH_NN_UNAVAILABLE_DEVICE if its daemon dies during
 *         the call.
 * @since 9
 */
OH_NN_ReturnCode OH_NNModel_GetAvailableOperations(
    OH_NNModel *model, size_t deviceID, const bool **isSupported, uint32_t *opCount);

/* ---- API 9: deprecated since 11. The newer functions use tensors that a program creates once for many runs. */

/**
 * Add a tensor. Use OH_NNModel_AddTensorToModel, which numbers tensors together with this function.
 *
 * @param tensor  is copied, with all that it points to. It has at most 200 dimensions; without any it is a scalar.
 * @return as of OH_NNModel_AddTensorToModel; also OH_NN_INVALID_PARAMETER for an array with a pointer but no count, or
 *         with a count but no pointer.
 * @since 9
 * @deprecated since 11
 */
OH_NN_ReturnCode OH_NNModel_AddTensor(OH_NNModel *model, const OH_NN_Tensor *tensor);

/**
 * Set an input of later runs. Use OH_NNExecutor_RunSync.
 *
 * @param tensor      data type and shape of the input in these runs. All dimensions must be known.
 * @param dataBuffer  is copied.
 * @param length      its size in bytes, at least that of the tensor.
 * @return OH_NN_INVALID_PARAMETER for an index that doesn't exist, and for a tensor that doesn't fit.
 * @since 9
 * @deprecated since 11
 */
OH_NN_ReturnCode OH_NNExecutor_SetInput(
    OH_NNExecutor *executor, uint32_t inputIndex, const OH_NN_Tensor *tensor, const void *dataBuffer, size_t length);

/**
 * Set the buffer for an output of later runs. Use OH_NNExecutor_RunSync.
 *
 * @param dataBuffer  OH_NNExecutor_Run writes to it. It stays the program's, and must be valid during the runs.
 * @param length      its size in bytes.
 * @return OH_NN_INVALID_PARAMETER for an index that doesn't exist, and for a buffer that is smaller than an output of
 *         known shape.
 * @since 9
 * @deprecated since 11
 */
OH_NN_ReturnCode OH_NNExecutor_SetOutput(
    OH_NNExecutor *executor, uint32_t outputIndex, void *dataBuffer, size_t length);

/**
 * Run the model with the inputs and outputs that have been set, which stay set. Use OH_NNExecutor_RunSync.
 *
 * @return OH_NN_INVALID_PARAMETER if an input or output has not been set, if its memory has been destroyed, or if an
 *         output is too small; else as of OH_NNExecutor_RunSync.
 * @since 9
 * @deprecated since 11
 */
OH_NN_ReturnCode OH_NNExecutor_Run(OH_NNExecutor *executor);

/**
 * Allocate memory for an input. Use OH_NNTensor_CreateWithSize.
 *
 * @param length  1 byte to 1 GiB.
 * @return the memory, to be destroyed by OH_NNExecutor_DestroyInputMemory; NULL for an index that doesn't exist, and if
 *         there is not enough memory.
 * @since 9
 * @deprecated since 11
 */
OH_NN_Memory *OH_NNExecutor_AllocateInputMemory(OH_NNExecutor *executor, uint32_t inputIndex, size_t length);

/**
 * Allocate memory for an output, as OH_NNExecutor_AllocateInputMemory does for an input.
 *
 * @since 9
 * @deprecated since 11
 */
OH_NN_Memory *OH_NNExecutor_AllocateOutputMemory(OH_NNExecutor *executor, uint32_t outputIndex, size_t length);

/**
 * Destroy memory of an input, given the executor and the index that it was allocated for. Other arguments change
 * nothing.
 *
 * @param memory  points to the memory; null afterwards.
 * @since 9
 * @deprecated since 11
 */
void OH_NNExecutor_DestroyInputMemory(OH_NNExecutor *executor, uint32_t inputIndex, OH_NN_Memory **memory);

/**
 * Destroy memory of an output, as OH_NNExecutor_DestroyInputMemory does of an input.
 *
 * @since 9
 * @deprecated since 11
 */
void OH_NNExecutor_DestroyOutputMemory(OH_NNExecutor *executor, uint32_t outputIndex, OH_NN_Memory **memory);

/**
 * Set the memory from which later runs read an input. Use OH_NNExecutor_RunSync.
 *
 * @param tensor  as of OH_NNExecutor_SetInput.
 * @param memory  memory of any executor, at least as large as the tensor.
 * @return OH_NN_INVALID_PARAMETER for an index that doesn't exist, and for a tensor or memory that doesn't fit.
 * @since 9
 * @deprecated since 11
 */
OH_NN_ReturnCode OH_NNExecutor_SetInputWithMemory(
    OH_NNExecutor *executor, uint32_t inputIndex, const OH_NN_Tensor *tensor, const OH_NN_Memory *memory);

/**
 * Set the memory to which later runs write an output. Use OH_NNExecutor_RunSync.
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
