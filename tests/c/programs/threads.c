/* Asynchronous runs of four threads at a time: each ends once, with its own numbers. Prints how many were right. */
#include <pthread.h>
#include <unistd.h>

#include "checks.h"

enum { THREADS = 4, NUMBERS = 256 };

static OH_NNExecutor *executor;
static long runs_each;
static long right;

struct run {
    NN_Tensor *inputs[2], *outputs[1];
    float number;
    int ends[2]; /* of a pipe, by which the callback tells of the end */
};

static void on_run_done(void *user_data, OH_NN_ReturnCode code, void *outputs[], int32_t count) {
    struct run *run = user_data;
    int is_right = code == OH_NN_SUCCESS && count == 1 && outputs[0] == run->outputs[0];
    const float *sums = (const float *)OH_NNTensor_GetDataBuffer(outputs[0]);
    for (int at = 0; is_right && at < NUMBERS; at++) is_right = sums[at] == 2 * run->number + (float)at;
    __atomic_fetch_add(&right, is_right, __ATOMIC_RELAXED);
    char byte = 0;
    if (write(run->ends[1], &byte, 1) != 1) abort();
}

static void *work(void *number) {
    struct run run = {{input_of(executor, 0), input_of(executor, 1)}, {output_of(executor, 0)}, 0, {0, 0}};
    if (pipe(run.ends)) abort();
    for (long index = 0; index < runs_each; index++) {
        run.number = (float)(index % 1000 + 1 + (long)number * 1000);
        for (int which = 0; which < 2; which++) {
            float *elements = (float *)OH_NNTensor_GetDataBuffer(run.inputs[which]);
            for (int at = 0; at < NUMBERS; at++) elements[at] = run.number + (which ? (float)at : 0);
        }
        CHECK(OH_NNExecutor_RunAsync(executor, run.inputs, 2, run.outputs, 1, 60000, &run));
        char byte;
        if (read(run.ends[0], &byte, 1) != 1) abort();
    }
    for (int which = 0; which < 2; which++) CHECK(OH_NNTensor_Destroy(&run.inputs[which]));
    CHECK(OH_NNTensor_Destroy(&run.outputs[0]));
    close(run.ends[0]);
    close(run.ends[1]);
    return NULL;
}

static void on_service_died(void *user_data) {
    (void)user_data;
    fprintf(stderr, "the daemon died\n");
    abort();
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    runs_each = argc > 1 ? atol(argv[1]) : 1000;
    executor = executor_of(sum_model(NUMBERS));
    CHECK(OH_NNExecutor_SetOnRunDone(executor, on_run_done));
    CHECK(OH_NNExecutor_SetOnServiceDied(executor, on_service_died));
    for (long number = 0; number < THREADS; number++) pthread_create(&threads[number], NULL, work, (void *)number);
    for (int number = 0; number < THREADS; number++) pthread_join(threads[number], NULL);
    OH_NNExecutor_Destroy(&executor);
    printf("%ld of %ld\n", right, THREADS * runs_each);
    return right != THREADS * runs_each;
}
