/* What calls of a C program cost: the time from its start to the first result in milliseconds; then, for each line on the
 * standard input, the median of 500 small runs and of 500 setters in microseconds. */
#include <stdlib.h>
#include <time.h>

#include "checks.h"

enum { CALLS = 500, NUMBERS = 256 };

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int compared(const void *one, const void *other) {
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

static double median_us(double *took) {
    qsort(took, CALLS, sizeof *took, compared);
    return took[CALLS / 2] * 1e6;
}

int main(void) {
    double began = now_s(), took[CALLS];
    char line[16];
    OH_NNExecutor *executor = executor_of(sum_model(NUMBERS));
    NN_Tensor *inputs[] = {input_of(executor, 0), input_of(executor, 1)}, *outputs[] = {output_of(executor, 0)};
    CHECK(OH_NNExecutor_RunSync(executor, inputs, 2, outputs, 1));
    printf("%.1f\n", (now_s() - began) * 1e3);
    fflush(stdout);
    NN_TensorDesc *desc = MADE(NN_TensorDesc, OH_NNTensorDesc_Create());
    while (fgets(line, sizeof line, stdin)) {
        for (int call = 0; call < CALLS; call++) {
            double start = now_s();
            CHECK(OH_NNExecutor_RunSync(executor, inputs, 2, outputs, 1));
            took[call] = now_s() - start;
        }
        printf("%.2f ", median_us(took));
        for (int call = 0; call < CALLS; call++) {
            double start = now_s();
            CHECK(OH_NNTensorDesc_SetDataType(desc, OH_NN_FLOAT32));
            took[call] = now_s() - start;
        }
        printf("%.2f\n", median_us(took));
        fflush(stdout);
    }
    CHECK(OH_NNTensorDesc_Destroy(&desc));
    OH_NNExecutor_Destroy(&executor);
    return 0;
}
