/* What the library leaves alone in its program: handlers of signals, the locale, SIGPIPE. Runs until the daemon dies, and
 * then some more; prints what has changed. */
#include <locale.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "checks.h"

enum { MORE = 20 };

static void handlers(struct sigaction *actions) {
    memset(actions, 0, NSIG * sizeof *actions);
    for (int number = 1; number < NSIG; number++) sigaction(number, NULL, &actions[number]);
}

int main(void) {
    static struct sigaction before[NSIG], after[NSIG];
    handlers(before);
    sigset_t mask_before, mask_after;
    sigprocmask(SIG_BLOCK, NULL, &mask_before);
    OH_NNExecutor *executor = executor_of(sum_model(4));
    NN_Tensor *inputs[] = {input_of(executor, 0), input_of(executor, 1)}, *outputs[] = {output_of(executor, 0)};
    printf("runs\n");
    fflush(stdout);
    OH_NN_ReturnCode code;
    do {
        code = OH_NNExecutor_RunSync(executor, inputs, 2, outputs, 1);
    } while (code == OH_NN_SUCCESS);
    for (int more = 0; more < MORE; more++) {
        if (OH_NNExecutor_RunSync(executor, inputs, 2, outputs, 1) != OH_NN_UNAVAILABLE_DEVICE) printf("another code\n");
    }
    handlers(after);
    for (int number = 1; number < NSIG; number++) {
        if (before[number].sa_handler != after[number].sa_handler) printf("signal %d is handled\n", number);
    }
    sigprocmask(SIG_BLOCK, NULL, &mask_after);
    if (memcmp(&mask_before, &mask_after, sizeof(long))) printf("the mask is another\n");
    if (strcmp(setlocale(LC_ALL, NULL), "C")) printf("the locale is %s\n", setlocale(LC_ALL, NULL));
    printf("%d\n", code);
    for (int at = 0; at < 2; at++) CHECK(OH_NNTensor_Destroy(&inputs[at]));
    CHECK(OH_NNTensor_Destroy(&outputs[0]));
    OH_NNExecutor_Destroy(&executor);
    return 0;
}
