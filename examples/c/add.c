/* Computes relu(a + b). NNRT_DEVICES has the addresses of the devices.
 *
 *     cc add.c $(python -m nnrt_client.c --cflags --libs) -o add && ./add
 */
#include "checks.h"

int main(void) {
    const float given[2][4] = {{1, 2, 3, 4}, {10, -20, 30, -40}};
    OH_NNExecutor *executor = executor_of(sum_model(4));
    NN_Tensor *inputs[] = {input_of(executor, 0), input_of(executor, 1)}, *outputs[] = {output_of(executor, 0)};
    for (int at = 0; at < 2; at++) {
        float *elements = (float *)OH_NNTensor_GetDataBuffer(inputs[at]);
        for (int index = 0; index < 4; index++) elements[index] = given[at][index];
    }
    CHECK(OH_NNExecutor_RunSync(executor, inputs, 2, outputs, 1));
    const float *sums = (const float *)OH_NNTensor_GetDataBuffer(outputs[0]);
    printf("%g %g %g %g\n", sums[0], sums[1], sums[2], sums[3]);
    for (int at = 0; at < 2; at++) CHECK(OH_NNTensor_Destroy(&inputs[at]));
    CHECK(OH_NNTensor_Destroy(&outputs[0]));
    OH_NNExecutor_Destroy(&executor);
    return 0;
}
