/* Ends with runs under way, whose callbacks may or may not come:
 *
 *     ending main|thread|callback|child
 *
 * by the return from main, while another thread makes runs, in a callback, or in a child that was forked meanwhile. */
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"

static OH_NNExecutor *executor;
static int exits_in_callback;

static void on_run_done(void *user_data, OH_NN_ReturnCode code, void *outputs[], int32_t count) {
    (void)user_data, (void)code, (void)outputs, (void)count;
    if (exits_in_callback) exit(0);
}

static void on_service_died(void *user_data) { (void)user_data; }

static void *run_for_ever(void *ends) {
    NN_Tensor *inputs[] = {input_of(executor, 0), input_of(executor, 1)}, *outputs[] = {output_of(executor, 0)};
    for (;;) {
        OH_NNExecutor_RunSync(executor, inputs, 2, outputs, 1);
        if (ends && write(((int *)ends)[1], "", 1) != 1) abort();
        ends = NULL;
    }
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "main";
    executor = executor_of(sum_model(1 << 20));
    CHECK(OH_NNExecutor_SetOnRunDone(executor, on_run_done));
    CHECK(OH_NNExecutor_SetOnServiceDied(executor, on_service_died));
    exits_in_callback = !strcmp(how, "callback");
    printf("under way\n");
    fflush(stdout);
    for (int number = 0; number < 16; number++) {
        NN_Tensor *inputs[] = {input_of(executor, 0), input_of(executor, 1)}, *outputs[] = {output_of(executor, 0)};
        OH_NN_ReturnCode code = OH_NNExecutor_RunAsync(executor, inputs, 2, outputs, 1, 60000, &executor);
        if (!exits_in_callback) CHECK(code);  /* Else the first callback may have ended everything already. */
    }
    if (exits_in_callback) pause();
    if (!strcmp(how, "thread")) {
        pthread_t other;
        int ends[2];
        char byte;
        if (pipe(ends) || pthread_create(&other, NULL, run_for_ever, ends) || read(ends[0], &byte, 1) != 1) abort();
    }
    if (!strcmp(how, "child")) {
        int status;
        pid_t child = fork();
        if (!child) return 0;
        if (waitpid(child, &status, 0) != child || status) return 3;
    }
    return 0;
}
