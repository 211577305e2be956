/* Keeps several runs in flight until RUNS have finished or the daemon dies.
 *
 *     asynchronous [RUNS]
 *
 * Each run ends with exactly one callback: on_run_done, or on_service_died if the daemon died meanwhile.
 */
#include <unistd.h>

#include "checks.h"

/* Number of runs in flight, and of finished runs after which the program prints a line. */
enum { IN_FLIGHT = 8, REPORT_AT = 100 };

struct run {
    NN_Tensor *inputs[2], *outputs[1];
};

struct message {
    struct run *run;
    char what; /* 'd'one, 'f'ailed, or 'x' if the daemon died */
};

/* Pipe from the callbacks, which the library's threads call, to the main thread. */
static int ends[2];

static void send_message(char what, struct run *run) {
    struct message message = {run, what};
    if (write(ends[1], &message, sizeof message) != (ssize_t)sizeof message) abort();
}

static void on_run_done(void *user_data, OH_NN_ReturnCode code, void *outputs[], int32_t count) {
    (void)outputs, (void)count;
    send_message(code == OH_NN_SUCCESS ? 'd' : 'f', (struct run *)user_data);
}

static void on_service_died(void *user_data) { send_message('x', (struct run *)user_data); }

int main(int argc, char **argv) {
    long left = argc > 1 ? atol(argv[1]) : 1000, done = 0, failed = 0, died = 0, in_flight = 0;
    struct run runs[IN_FLIGHT];
    if (pipe(ends)) abort();
    OH_NNExecutor *executor = executor_of(sum_model(4));
    CHECK(OH_NNExecutor_SetOnRunDone(executor, on_run_done));
    CHECK(OH_NNExecutor_SetOnServiceDied(executor, on_service_died));
    for (int at = 0; at < IN_FLIGHT; at++) {
        runs[at] = (struct run){{input_of(executor, 0), input_of(executor, 1)}, {output_of(executor, 0)}};
    }
    for (; in_flight < IN_FLIGHT && left > 0; in_flight++, left--) {
        struct run *run = &runs[in_flight];
        CHECK(OH_NNExecutor_RunAsync(executor, run->inputs, 2, run->outputs, 1, 60000, run));
    }
    printf("under way\n");
    fflush(stdout);
    while (in_flight > 0) {
        struct message message;
        if (read(ends[0], &message, sizeof message) != (ssize_t)sizeof message) abort();
        struct run *run = message.run;
        done += message.what == 'd';
        failed += message.what == 'f';
        died += message.what == 'x';
        in_flight--;
        if (done == REPORT_AT && message.what == 'd') {
            printf("%ld are done\n", done);
            fflush(stdout);
        }
        if (left > 0 && !died &&
            OH_NNExecutor_RunAsync(executor, run->inputs, 2, run->outputs, 1, 60000, run) == OH_NN_SUCCESS) {
            in_flight++;
            left--;
        }
    }
    printf("%ld done, %ld failed, %ld died\n", done, failed, died);
    for (int at = 0; at < IN_FLIGHT; at++) {
        for (int index = 0; index < 2; index++) CHECK(OH_NNTensor_Destroy(&runs[at].inputs[index]));
        CHECK(OH_NNTensor_Destroy(&runs[at].outputs[0]));
    }
    OH_NNExecutor_Destroy(&executor);
    return 0;
}
