/* Builds and runs again and again; prints by how many KiB the process grew in the second half of each. */
#include <string.h>

#include "checks.h"

static long resident_kib(void) {
    char line[256];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, "VmRSS:", 6)) kib = atol(line + 6);
    fclose(file);
    return kib;
}

int main(int argc, char **argv) {
    long builds = argc > 1 ? atol(argv[1]) : 200, runs = argc > 2 ? atol(argv[2]) : 2000, half = 0;
    for (long number = 0; number < builds; number++) {
        if (number == builds / 2) half = resident_kib();
        OH_NNExecutor *executor = executor_of(sum_model(4));
        OH_NNExecutor_Destroy(&executor);
    }
    printf("builds %ld KiB\n", resident_kib() - half);
    OH_NNExecutor *executor = executor_of(sum_model(4));
    for (long number = 0; number < runs; number++) {
        if (number == runs / 2) half = resident_kib();
        NN_Tensor *inputs[] = {input_of(executor, 0), input_of(executor, 1)}, *outputs[] = {output_of(executor, 0)};
        CHECK(OH_NNExecutor_RunSync(executor, inputs, 2, outputs, 1));
        int32_t *shape = NULL;
        uint32_t rank;
        CHECK(OH_NNExecutor_GetOutputShape(executor, 0, &shape, &rank));
        for (int at = 0; at < 2; at++) CHECK(OH_NNTensor_Destroy(&inputs[at]));
        CHECK(OH_NNTensor_Destroy(&outputs[0]));
    }
    printf("runs %ld KiB\n", resident_kib() - half);
    OH_NNExecutor_Destroy(&executor);
    return 0;
}
