/* Functions that the examples share. If something fails they end the program with the reason. */
#ifndef NNRT_EXAMPLES_CHECKS_H
#define NNRT_EXAMPLES_CHECKS_H

#include <neural_network_runtime/neural_network_runtime.h>
#include <neural_network_runtime/nnrt.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the program unless `code` is OH_NN_SUCCESS. */
#define CHECK(code)                                                      \
    do {                                                                 \
        int code_ = (code);                                              \
        if (code_ != OH_NN_SUCCESS) {                                    \
            fprintf(stderr, "%s: %d: %s\n", #code, code_, nnrt_last_error()); \
            exit(1);                                                     \
        }                                                                \
    } while (0)

/* Ends the program if `made` is NULL; else it is the value. */
#define MADE(type, made) ((type *)made_or_end((made), #made))

static inline void *made_or_end(void *made, const char *what) {
    if (made) return made;
    fprintf(stderr, "%s: NULL: %s\n", what, nnrt_last_error());
    exit(1);
}

/* Returns a description, to be destroyed by OH_NNTensorDesc_Destroy. */
static inline NN_TensorDesc *desc_of(OH_NN_DataType type, const int32_t *shape, size_t rank) {
    NN_TensorDesc *desc = MADE(NN_TensorDesc, OH_NNTensorDesc_Create());
    CHECK(OH_NNTensorDesc_SetDataType(desc, type));
    CHECK(OH_NNTensorDesc_SetShape(desc, shape, rank));
    return desc;
}

/* Adds a tensor to a model, and returns its index. With elements it is a constant or a parameter. */
static inline uint32_t add_tensor(
    OH_NNModel *model, uint32_t *count, OH_NN_DataType type, const int32_t *shape, size_t rank, OH_NN_TensorType role,
    const void *elements) {
    NN_TensorDesc *desc = desc_of(type, shape, rank);
    CHECK(OH_NNModel_AddTensorToModel(model, desc));
    CHECK(OH_NNModel_SetTensorType(model, *count, role));
    if (elements) {
        size_t size;
        CHECK(OH_NNTensorDesc_GetByteSize(desc, &size));
        CHECK(OH_NNModel_SetTensorData(model, *count, elements, size));
    }
    CHECK(OH_NNTensorDesc_Destroy(&desc));
    return (*count)++;
}

/* Compiles a model for the first device, destroys the model, and returns an executor. */
static inline OH_NNExecutor *executor_of(OH_NNModel *model) {
    OH_NNCompilation *compilation = MADE(OH_NNCompilation, OH_NNCompilation_Construct(model));
    OH_NNModel_Destroy(&model);
    CHECK(OH_NNCompilation_SetDevice(compilation, 0));
    CHECK(OH_NNCompilation_Build(compilation));
    OH_NNExecutor *executor = MADE(OH_NNExecutor, OH_NNExecutor_Construct(compilation));
    OH_NNCompilation_Destroy(&compilation);
    return executor;
}

/* Returns a tensor for an input or an output of an executor with known shapes. */
static inline NN_Tensor *input_of(OH_NNExecutor *executor, size_t index) {
    NN_TensorDesc *desc = MADE(NN_TensorDesc, OH_NNExecutor_CreateInputTensorDesc(executor, index));
    NN_Tensor *tensor = MADE(NN_Tensor, OH_NNTensor_Create(0, desc));
    CHECK(OH_NNTensorDesc_Destroy(&desc));
    return tensor;
}

static inline NN_Tensor *output_of(OH_NNExecutor *executor, size_t index) {
    NN_TensorDesc *desc = MADE(NN_TensorDesc, OH_NNExecutor_CreateOutputTensorDesc(executor, index));
    NN_Tensor *tensor = MADE(NN_Tensor, OH_NNTensor_Create(0, desc));
    CHECK(OH_NNTensorDesc_Destroy(&desc));
    return tensor;
}

/* Returns a model of relu(a + b) for two tensors of so many numbers. */
static inline OH_NNModel *sum_model(int32_t numbers) {
    OH_NNModel *model = MADE(OH_NNModel, OH_NNModel_Construct());
    const int32_t shape[] = {1, numbers}, one[] = {1};
    const int8_t relu = OH_NN_FUSED_RELU;
    uint32_t count = 0;
    uint32_t inputs[2], output, parameter;
    for (int at = 0; at < 2; at++) inputs[at] = add_tensor(model, &count, OH_NN_FLOAT32, shape, 2, OH_NN_TENSOR, NULL);
    output = add_tensor(model, &count, OH_NN_FLOAT32, shape, 2, OH_NN_TENSOR, NULL);
    parameter = add_tensor(model, &count, OH_NN_INT8, one, 1, OH_NN_ADD_ACTIVATIONTYPE, &relu);
    const OH_NN_UInt32Array in = {inputs, 2}, out = {&output, 1}, parameters = {&parameter, 1};
    CHECK(OH_NNModel_AddOperation(model, OH_NN_OPS_ADD, &parameters, &in, &out));
    CHECK(OH_NNModel_SpecifyInputsAndOutputs(model, &in, &out));
    CHECK(OH_NNModel_Finish(model));
    return model;
}

#endif
