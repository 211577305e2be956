/* A program that has an interpreter of its own.
 *
 *     embedding LIBPYTHON EXECUTABLE global|local|late
 *
 * It starts the interpreter before the first call, and has loaded libpython for all or for itself only; or joins the one
 * that the library has started. Then it ends it, as far as it is the program's, and prints what still works. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

#include "checks.h"

static void *libpython;

static void *function(const char *name) {
    void *found = dlsym(libpython, name);
    if (!found) abort();
    return found;
}

static int run(const char *code) {
    return ((int (*)(const char *, void *))function("PyRun_SimpleStringFlags"))(code, NULL);
}

static void *computes(void *nothing) {
    OH_NNExecutor *executor = executor_of(sum_model(4));
    NN_Tensor *inputs[] = {input_of(executor, 0), input_of(executor, 1)}, *outputs[] = {output_of(executor, 0)};
    CHECK(OH_NNExecutor_RunSync(executor, inputs, 2, outputs, 1));
    for (int at = 0; at < 2; at++) CHECK(OH_NNTensor_Destroy(&inputs[at]));
    CHECK(OH_NNTensor_Destroy(&outputs[0]));
    OH_NNExecutor_Destroy(&executor);
    return nothing;
}

static int of_child(void) {
    int status;
    pid_t child = fork();
    if (!child) _exit(7);
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    int is_late = !strcmp(argv[3], "late");
    if (is_late) computes(NULL);
    libpython = dlopen(argv[1], RTLD_NOW | (strcmp(argv[3], "local") ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!libpython) return 3;
    if (is_late) { /* Does nothing. */
        ((void (*)(void))function("Py_Initialize"))();
        int state = ((int (*)(void))function("PyGILState_Ensure"))();
        if (run("answer = 6 * 7")) return 4;
        computes(NULL); /* With the lock held. */
        ((void (*)(int))function("PyGILState_Release"))(state);
        printf("late %d\n", of_child());
        return 0;
    }
    wchar_t name[4096];
    mbstowcs(name, argv[2], 4096);
    ((void (*)(const wchar_t *))function("Py_SetProgramName"))(name);
    ((void (*)(void))function("Py_Initialize"))();
    if (run("site = library = sys = 'mine'")) return 4;
    /* Two first calls at once, one of them with the interpreter's lock held. */
    pthread_t other;
    pthread_create(&other, NULL, computes, NULL);
    computes(NULL);
    void *state = ((void *(*)(void))function("PyEval_SaveThread"))();
    pthread_join(other, NULL);
    ((void (*)(void *))function("PyEval_RestoreThread"))(state);
    if (run("assert (site, library, sys) == ('mine',) * 3, (site, library, sys)")) return 5;
    int child = of_child();
    int ended = ((int (*)(void))function("Py_FinalizeEx"))();
    NN_TensorDesc *desc = OH_NNTensorDesc_Create();
    printf("%d %d %s %d\n", child, ended, desc ? "alive" : "ended", of_child());
    return 0;
}
