/* Classifies handwritten digits with a small convolutional network that it builds operation by operation.
 *
 *     digits digits.bin [CACHE]
 *
 * demo.py writes digits.bin: the trained weights, images of 8 x 8 pixels, and their labels. With the directory
 * CACHE the network is compiled once, and loaded from the cache the next time.
 */
#include "checks.h"

enum { PIXELS = 64, CLASSES = 10 };

/* The file has the number of images, the weights in the order in which they are read here, the images, the labels. */
static void *take(FILE *file, size_t size) {
    void *bytes = malloc(size);
    if (!bytes || fread(bytes, size, 1, file) != 1) {
        fprintf(stderr, "the file ends too soon\n");
        exit(1);
    }
    return bytes;
}

/* Model under construction. */
struct network {
    OH_NNModel *model;
    uint32_t tensors;
    FILE *weights;
};

static uint32_t floats(struct network *network, const int32_t *shape, size_t rank, const void *elements) {
    return add_tensor(network->model, &network->tensors, OH_NN_FLOAT32, shape, rank, OH_NN_TENSOR, elements);
}

static uint32_t weight(struct network *network, const int32_t *shape, size_t rank) {
    size_t count = 1;
    for (size_t at = 0; at < rank; at++) count *= (size_t)shape[at];
    void *elements = take(network->weights, count * sizeof(float));
    uint32_t index = floats(network, shape, rank, elements);
    free(elements);
    return index;
}

static uint32_t flag(struct network *network, OH_NN_TensorType role, int8_t value) {
    const int32_t one[] = {1};
    return add_tensor(network->model, &network->tensors, OH_NN_INT8, one, 1, role, &value);
}

static uint32_t pair(struct network *network, OH_NN_TensorType role, int64_t value) {
    const int32_t two[] = {2};
    const int64_t values[] = {value, value};
    return add_tensor(network->model, &network->tensors, OH_NN_INT64, two, 1, role, values);
}

static void operation(
    struct network *network, OH_NN_OperationType type, uint32_t *inputs, uint32_t input_count, uint32_t output,
    uint32_t *parameters, uint32_t parameter_count) {
    const OH_NN_UInt32Array in = {inputs, input_count}, out = {&output, 1}, given = {parameters, parameter_count};
    CHECK(OH_NNModel_AddOperation(network->model, type, &given, &in, &out));
}

/* Adds a convolution with 3 x 3 windows and ReLU, and 2 x 2 max pooling. */
static uint32_t layer(struct network *network, uint32_t x, int32_t size, int32_t in, int32_t out) {
    const int32_t shape[] = {out, 3, 3, in}, bias[] = {out}, whole[] = {-1, size, size, out};
    const int32_t half[] = {-1, size / 2, size / 2, out};
    uint32_t operands[] = {x, 0, 0}; /* In the order of the file. */
    operands[1] = weight(network, shape, 4);
    operands[2] = weight(network, bias, 1);
    uint32_t parameters[] = {
        flag(network, OH_NN_CONV2D_PAD_MODE, 0), flag(network, OH_NN_CONV2D_ACTIVATION_TYPE, OH_NN_FUSED_RELU),
        pair(network, OH_NN_CONV2D_STRIDES, 1)};
    uint32_t y = floats(network, whole, 4, NULL);
    operation(network, OH_NN_OPS_CONV2D, operands, 3, y, parameters, 3);
    uint32_t window[] = {
        pair(network, OH_NN_MAX_POOL_KERNEL_SIZE, 2), pair(network, OH_NN_MAX_POOL_STRIDE, 2),
        flag(network, OH_NN_MAX_POOL_PAD_MODE, 1)};
    uint32_t pooled = floats(network, half, 4, NULL);
    operation(network, OH_NN_OPS_MAX_POOL, &y, 1, pooled, window, 3);
    return pooled;
}

static OH_NNModel *digits_model(FILE *weights) {
    struct network network = {MADE(OH_NNModel, OH_NNModel_Construct()), 0, weights};
    const int32_t image_shape[] = {-1, 8, 8, 1}, flat[] = {-1, 128}, two[] = {2}, matrix[] = {CLASSES, 128};
    const int32_t classes[] = {CLASSES}, answer[] = {-1, CLASSES};
    const int64_t target[] = {-1, 128};
    uint32_t image = floats(&network, image_shape, 4, NULL);
    uint32_t pooled = layer(&network, layer(&network, image, 8, 1, 16), 4, 16, 32);
    uint32_t reshaped[] = {
        pooled, add_tensor(network.model, &network.tensors, OH_NN_INT64, two, 1, OH_NN_TENSOR, target)};
    uint32_t row = floats(&network, flat, 2, NULL);
    operation(&network, OH_NN_OPS_RESHAPE, reshaped, 2, row, NULL, 0);
    uint32_t dense[] = {row, 0, 0};
    dense[1] = weight(&network, matrix, 2);
    dense[2] = weight(&network, classes, 1);
    uint32_t scores = floats(&network, answer, 2, NULL);
    operation(&network, OH_NN_OPS_FULL_CONNECTION, dense, 3, scores, NULL, 0);
    uint32_t probabilities = floats(&network, answer, 2, NULL);
    operation(&network, OH_NN_OPS_SOFTMAX, &scores, 1, probabilities, NULL, 0);
    const OH_NN_UInt32Array in = {&image, 1}, out = {&probabilities, 1};
    CHECK(OH_NNModel_SpecifyInputsAndOutputs(network.model, &in, &out));
    CHECK(OH_NNModel_Finish(network.model));
    return network.model;
}

int main(int argc, char **argv) {
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (!file) {
        fprintf(stderr, "usage: digits digits.bin [CACHE]\n");
        return 2;
    }
    int32_t count;
    int32_t *counted = (int32_t *)take(file, sizeof count);
    count = *counted;
    free(counted);
    OH_NNModel *model = digits_model(file);
    float *images = (float *)take(file, (size_t)count * PIXELS * sizeof(float));
    int32_t *labels = (int32_t *)take(file, (size_t)count * sizeof(int32_t));
    fclose(file);

    const char *name = NULL;
    CHECK(OH_NNDevice_GetName(0, &name));
    OH_NNCompilation *compilation = MADE(OH_NNCompilation, OH_NNCompilation_Construct(model));
    OH_NNModel_Destroy(&model);
    if (argc > 2) CHECK(OH_NNCompilation_SetCache(compilation, argv[2], 1));
    CHECK(OH_NNCompilation_Build(compilation));
    OH_NNExecutor *executor = MADE(OH_NNExecutor, OH_NNExecutor_Construct(compilation));
    OH_NNCompilation_Destroy(&compilation);

    const int32_t image_shape[] = {count, 8, 8, 1}, answer[] = {count, CLASSES};
    NN_TensorDesc *given = desc_of(OH_NN_FLOAT32, image_shape, 4), *wanted = desc_of(OH_NN_FLOAT32, answer, 2);
    NN_Tensor *inputs[] = {MADE(NN_Tensor, OH_NNTensor_Create(0, given))};
    NN_Tensor *outputs[] = {MADE(NN_Tensor, OH_NNTensor_Create(0, wanted))};
    CHECK(OH_NNTensorDesc_Destroy(&given));
    CHECK(OH_NNTensorDesc_Destroy(&wanted));
    float *pixels = (float *)OH_NNTensor_GetDataBuffer(inputs[0]);
    for (int32_t at = 0; at < count * PIXELS; at++) pixels[at] = images[at];
    CHECK(OH_NNExecutor_RunSync(executor, inputs, 1, outputs, 1));
    const float *probabilities = (const float *)OH_NNTensor_GetDataBuffer(outputs[0]);
    int32_t right = 0;
    for (int32_t image = 0; image < count; image++) {
        int best = 0;
        for (int digit = 1; digit < CLASSES; digit++)
            if (probabilities[image * CLASSES + digit] > probabilities[image * CLASSES + best]) best = digit;
        right += best == labels[image];
    }
    printf("%s: %d of %d digits are right\n", name, right, count);
    CHECK(OH_NNTensor_Destroy(&inputs[0]));
    CHECK(OH_NNTensor_Destroy(&outputs[0]));
    OH_NNExecutor_Destroy(&executor);
    free(images);
    free(labels);
    return 0;
}
