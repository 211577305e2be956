/* Children: one before the first call, which computes as its parent does, and one after it, whose calls fail. Prints
 * the codes that each of them ends with. */
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"

static int computes(void) {
    OH_NNExecutor *executor = executor_of(sum_model(4));
    NN_Tensor *inputs[] = {input_of(executor, 0), input_of(executor, 1)}, *outputs[] = {output_of(executor, 0)};
    CHECK(OH_NNExecutor_RunSync(executor, inputs, 2, outputs, 1));
    OH_NNExecutor_Destroy(&executor);
    return 0;
}

static int ended_with(pid_t child) {
    int status;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(void) {
    pid_t child = fork();
    if (!child) return computes();
    int before = ended_with(child);
    int own = computes();
    OH_NNExecutor *executor = executor_of(sum_model(4));
    NN_Tensor *inputs[] = {input_of(executor, 0), input_of(executor, 1)}, *outputs[] = {output_of(executor, 0)};
    child = fork();
    if (!child) _exit(OH_NNExecutor_RunSync(executor, inputs, 2, outputs, 1));
    int after = ended_with(child);
    CHECK(OH_NNExecutor_RunSync(executor, inputs, 2, outputs, 1));
    printf("%d %d %d\n", before, own, after);
    return 0;
}
