/* Keeps several runs in progress until RUNS are done, or the daemon dies.
 *
 *     asynchronous [RUNS]
 *
 * Each run ends once: with one callback, or with the other if the daemon died meanwhile.
 */
#include <unistd.h>

#include "checks.h"

/* The runs in progress at a time, and the finished runs after which the program reports it. */
enum { UNDER_WAY = 8, TOLD_AT = 100 };

struct run {
    NN_Tensor *inputs[2], *outputs[1];
};

struct message {
    struct run *run;
    char what; /* 'd'one, 'f'ailed, or 'x', for a death */
};

/* A pipe: callbacks come in threads of the library, and the main thread does the rest. */
static int ends[2];

static void tell(char what, struct run *run) {
    struct message message = {run, what};
    if (write(ends[1], &message, sizeof message) != (ssize_t)sizeof message) abort();
}

static void on_run_done(void *user_data, OH_NN_ReturnCode code, void *outputs[], int32_t count) {
    (void)outputs, (void)count;
    tell(code == OH_NN_SUCCESS ? 'd' : 'f', (struct run *)user_data);
}

static void on_service_died(void *user_data) { tell('x', (struct run *)user_data); }

int main(int argc, char **argv) {
    long left = argc > 1 ? atol(argv[1]) : 1000, done = 0, failed = 0, died = 0, under_way = 0;
    struct run runs[UNDER_WAY];
    if (pipe(ends)) abort();
    OH_NNExecutor *executor = executor_of(sum_model(4));
    CHECK(OH_NNExecutor_SetOnRunDone(executor, on_run_done));
    CHECK(OH_NNExecutor_SetOnServiceDied(executor, on_service_died));
    for (int at = 0; at < UNDER_WAY; at++) {
        runs[at] = (struct run){{input_of(executor, 0), input_of(executor, 1)}, {output_of(executor, 0)}};
    }
    for (; under_way < UNDER_WAY && left > 0; under_way++, left--) {
        struct run *run = &runs[under_way];
        CHECK(OH_NNExecutor_RunAsync(executor, run->inputs, 2, run->outputs, 1, 60000, run));
    }
    printf("under way\n");
    fflush(stdout);
    while (under_way > 0) {
        struct message message;
        if (read(ends[0], &message, sizeof message) != (ssize_t)sizeof message) abort();
        struct run *run = message.run;
        done += message.what == 'd';
        failed += message.what == 'f';
        died += message.what == 'x';
        under_way--;
        if (done == TOLD_AT && message.what == 'd') {
            printf("%ld are done\n", done);
            fflush(stdout);
        }
        if (left > 0 && !died &&
            OH_NNExecutor_RunAsync(executor, run->inputs, 2, run->outputs, 1, 60000, run) == OH_NN_SUCCESS) {
            under_way++;
            left--;
        }
    }
    printf("%ld done, %ld failed, %ld died\n", done, failed, died);
    for (int at = 0; at < UNDER_WAY; at++) {
        for (int index = 0; index < 2; index++) CHECK(OH_NNTensor_Destroy(&runs[at].inputs[index]));
        CHECK(OH_NNTensor_Destroy(&runs[at].outputs[0]));
    }
    OH_NNExecutor_Destroy(&executor);
    return 0;
}
