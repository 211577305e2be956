/* libneural_network_runtime: NNRt's functions, implemented by the Python package that contains this library.
 *
 * One build works with every version of Python, because it includes no headers of Python and looks up the functions of
 * libpython by name. The first call starts an interpreter, or uses the one that the program has started, and calls
 * nnrt_client.c.library, which fills `table` with callbacks. In the callbacks ctypes takes and releases the
 * interpreter's lock, also for threads that Python doesn't know.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "neural_network_runtime/neural_network_runtime.h"
#include "neural_network_runtime/nnrt.h"

#define EXPORTED __attribute__((visibility("default")))
/* The 75 of NNRt, and nnrt_last_error. */
#define FUNCTIONS 76
#define LAST_ERROR 75

extern char **environ;

static void *table[FUNCTIONS];
/* Stage of the start, which one thread performs. From FOUND on the functions of libpython are known. */
static enum { UNSTARTED, STARTING, FOUND, STARTED, FAILED } stage;
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_come_further = PTHREAD_COND_INITIALIZER;
/* Reason of the failure. */
static char problem[2 * PATH_MAX];

/* Functions of libpython, under their own names. */
static struct {
    int (*Py_IsInitialized)(void);
    int (*PyGILState_Ensure)(void);
    void (*PyGILState_Release)(int);
    int (*PyGILState_Check)(void);
    void *(*PyGILState_GetThisThreadState)(void);
    void *(*PyEval_SaveThread)(void);
    void (*PyEval_RestoreThread)(void *);
    void (*PyThreadState_Clear)(void *);
    void (*PyThreadState_DeleteCurrent)(void);
    void (*PyOS_BeforeFork)(void);
    void (*PyOS_AfterFork_Parent)(void);
    void (*PyOS_AfterFork_Child)(void);
    void *(*PySys_GetObject)(const char *);
    void *(*PyUnicode_DecodeFSDefault)(const char *);
    int (*PySequence_Contains)(void *, void *);
    int (*PyList_Append)(void *, void *);
    void *(*PyImport_ImportModule)(const char *);
    void *(*PyObject_CallMethod)(void *, const char *, const char *, ...);
    void (*PyErr_Print)(void);
} python;

static int look_up(void *library) {
    int found = 1;
#define LOOK_UP(name) found &= (*(void **)&python.name = dlsym(library, #name)) != NULL
    LOOK_UP(Py_IsInitialized);
    LOOK_UP(PyGILState_Ensure);
    LOOK_UP(PyGILState_Release);
    LOOK_UP(PyGILState_Check);
    LOOK_UP(PyGILState_GetThisThreadState);
    LOOK_UP(PyEval_SaveThread);
    LOOK_UP(PyEval_RestoreThread);
    LOOK_UP(PyThreadState_Clear);
    LOOK_UP(PyThreadState_DeleteCurrent);
    LOOK_UP(PyOS_BeforeFork);
    LOOK_UP(PyOS_AfterFork_Parent);
    LOOK_UP(PyOS_AfterFork_Child);
    LOOK_UP(PySys_GetObject);
    LOOK_UP(PyUnicode_DecodeFSDefault);
    LOOK_UP(PySequence_Contains);
    LOOK_UP(PyList_Append);
    LOOK_UP(PyImport_ImportModule);
    LOOK_UP(PyObject_CallMethod);
    LOOK_UP(PyErr_Print);
#undef LOOK_UP
    return found;
}

static void complain(const char *what, const char *detail) {
    snprintf(problem, sizeof problem, "%s%s%s", what, detail ? ": " : "", detail ? detail : "");
    fprintf(stderr, "libneural_network_runtime: %s\n", problem);
}

/* ---- finding Python */

/* Find the site-packages directory of this library, which is in nnrt_client/c/lib/ there. */
static int own_site(char *path) {
    Dl_info info;
    char real[PATH_MAX];
    if (!dladdr((void *)own_site, &info) || !realpath(info.dli_fname, real)) return 0;
    char *directory = real;
    for (int level = 0; level < 4; level++) directory = dirname(directory);
    snprintf(path, PATH_MAX, "%s", directory);
    return 1;
}

/* Find the interpreter to start: NNRT_PYTHON, else that of the environment in which this library is installed, else
 * python3 in PATH. */
static void interpreter(const char *site, char *path) {
    const char *given = getenv("NNRT_PYTHON");
    if (given && *given) {
        snprintf(path, PATH_MAX, "%s", given);
        return;
    }
    char directory[PATH_MAX];
    snprintf(directory, sizeof directory, "%s", site);
    for (char *up = directory; strlen(up) > 1; up = dirname(up)) {
        if (snprintf(path, PATH_MAX, "%s/bin/python3", up) < PATH_MAX && access(path, X_OK) == 0) return;
    }
    snprintf(path, PATH_MAX, "python3");
}

/* Read what an interpreter prints when it executes the code. Return the length, or -1. */
static ssize_t said_by(const char *executable, const char *code, char *said, size_t size) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return -1;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    char *arguments[] = {(char *)executable, "-I", "-S", "-c", (char *)code, NULL};
    pid_t child;
    int error = posix_spawnp(&child, executable, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    ssize_t length = error ? -1 : 0, count;
    while (!error && (size_t)length < size - 1 &&
           ((count = read(ends[0], said + length, size - 1 - length)) > 0 || (count < 0 && errno == EINTR)))
        length += count > 0 ? count : 0;
    close(ends[0]);
    int status = 0;
    while (!error && waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    if (error || !WIFEXITED(status) || WEXITSTATUS(status)) return -1;
    said[length] = 0;
    return length;
}

static const char ASKED[] =
    "import sys, sysconfig as s, os\n"
    "v = s.get_config_var\n"
    "print(os.path.join(v('LIBDIR'), v('INSTSONAME') or v('LDLIBRARY')))\n"
    "print(sys.executable)\n";

/* Start the interpreter with this executable, without signal handlers. Its environment variables PYTHON... are ignored,
 * because they are meant for other programs. Return whether it has started. */
static int initialize(void *libpython, const char *executable) {
    /* Python 3.14 and later take a configuration, earlier versions global variables and the program's name. */
    void *(*create)(void) = (void *(*)(void))dlsym(libpython, "PyInitConfig_Create");
    if (create) {
        int (*set)(void *, const char *, const char *) =
            (int (*)(void *, const char *, const char *))dlsym(libpython, "PyInitConfig_SetStr");
        int (*set_number)(void *, const char *, int64_t) =
            (int (*)(void *, const char *, int64_t))dlsym(libpython, "PyInitConfig_SetInt");
        int (*start)(void *) = (int (*)(void *))dlsym(libpython, "Py_InitializeFromInitConfig");
        void (*release)(void *) = (void (*)(void *))dlsym(libpython, "PyInitConfig_Free");
        void *config = create(); /* By default isolated and without signal handlers. */
        int failed = !config || set(config, "executable", executable) || set_number(config, "utf8_mode", 1) || start(config);
        if (config) release(config);
        return !failed;
    }
    wchar_t *(*decode)(const char *, size_t *) =
        (wchar_t * (*)(const char *, size_t *)) dlsym(libpython, "Py_DecodeLocale");
    void (*set)(const wchar_t *) = (void (*)(const wchar_t *))dlsym(libpython, "Py_SetProgramName");
    void (*start)(int) = (void (*)(int))dlsym(libpython, "Py_InitializeEx");
    int *is_isolated = (int *)dlsym(libpython, "Py_IsolatedFlag");
    int *is_utf8 = (int *)dlsym(libpython, "Py_UTF8Mode");
    wchar_t *wide = decode ? decode(executable, NULL) : NULL;
    if (!wide || !set || !start || !is_isolated || !is_utf8) return 0;
    *is_isolated = *is_utf8 = 1;
    set(wide);
    /* Py_InitializeEx sets the process's locale to that of the environment. */
    const char *former = setlocale(LC_CTYPE, NULL);
    char *kept = former ? strdup(former) : NULL;
    start(0);
    if (kept) setlocale(LC_CTYPE, kept);
    free(kept);
    return 1;
}

/* Load the interpreter's libpython, and start the interpreter if it has not been started. */
static void *load_python(const char *site, int *is_own) {
    char executable[PATH_MAX], said[2 * PATH_MAX + 2];
    interpreter(site, executable);
    char *end;
    if (said_by(executable, ASKED, said, sizeof said) < 0 || !(end = strchr(said, '\n'))) {
        complain("this is no interpreter of Python that works; set NNRT_PYTHON to one that has the package nnrt", executable);
        return NULL;
    }
    *end = 0;
    void *libpython = dlopen(said, RTLD_NOW | RTLD_GLOBAL);
    if (!libpython) {
        complain("the interpreter has no shared library; use one that was built with --enable-shared", dlerror());
        return NULL;
    }
    /* The program may have loaded libpython with RTLD_LOCAL, and started it. */
    int (*is_initialized)(void) = (int (*)(void))dlsym(libpython, "Py_IsInitialized");
    *is_own = !(is_initialized && is_initialized());
    char *name = end + 1;
    name[strcspn(name, "\n")] = 0;
    if (*is_own && !initialize(libpython, name)) {
        complain("Python doesn't start", name);
        return NULL;
    }
    return libpython;
}

/* ---- threads, forks and the end */

/* Python needs a thread state, which also has the thread's last error, for a thread that it has not started. The state
 * is kept from the first call until the thread ends, because creating it takes longer than most calls. */
static pthread_key_t state_of_thread;
static __thread int keeps_state;

static void forget_thread(void *state) {
    if (!table[0]) return; /* The program has ended its interpreter. */
    python.PyEval_RestoreThread(state);
    python.PyThreadState_Clear(state);
    python.PyThreadState_DeleteCurrent();
}

static void keep_thread(void) {
    if (python.PyGILState_GetThisThreadState()) return; /* Python has started the thread. */
    keeps_state = 1;
    python.PyGILState_Ensure();
    pthread_setspecific(state_of_thread, python.PyEval_SaveThread());
}

/* A thread that holds the interpreter's lock forks by Python's os.fork, which calls these functions itself. They must
 * not be called twice. */
static __thread int is_forking, held;

static void before_fork(void) {
    is_forking = table[0] && !python.PyGILState_Check();
    if (is_forking) {
        held = python.PyGILState_Ensure();
        python.PyOS_BeforeFork();
    }
}

static void after_fork_parent(void) {
    if (is_forking) {
        python.PyOS_AfterFork_Parent();
        python.PyGILState_Release(held);
    }
    is_forking = 0;
}

static void after_fork_child(void) {
    if (is_forking) {
        python.PyOS_AfterFork_Child();
        python.PyGILState_Release(held);
    }
    is_forking = 0;
}

/* If a process forks while another thread starts the library, no thread of the child completes the start. */
static void after_fork_while_starting(void) {
    if (stage == STARTING || stage == FOUND) {
        pthread_mutex_init(&starting, NULL);
        pthread_cond_init(&has_come_further, NULL);
        stage = FAILED;
        snprintf(problem, sizeof problem, "this process was forked while its parent started Python");
    }
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, after_fork_while_starting); }

static void *package;

static void end(void) {
    if (!table[0]) return;
    int state = python.PyGILState_Ensure();
    if (!python.PyObject_CallMethod(package, "end", NULL)) python.PyErr_Print();
    python.PyGILState_Release(state);
}

/* ---- starting */

/* Call Python to fill the table. The caller holds the interpreter's lock. Objects made here live as long as the
 * process. */
static int fill_table(const char *site) {
    /* The first import of `signal` installs a handler of SIGINT: restore the program's. */
    struct sigaction former;
    sigaction(SIGINT, NULL, &former);
    python.PyImport_ImportModule("signal");
    sigaction(SIGINT, &former, NULL);
    void *path = python.PySys_GetObject("path"), *own = python.PyUnicode_DecodeFSDefault(site);
    int is_there = path && own ? python.PySequence_Contains(path, own) : -1;
    if (is_there < 0 || (!is_there && python.PyList_Append(path, own))) return 0;
    package = python.PyImport_ImportModule("nnrt_client.c.library");
    return package && python.PyObject_CallMethod(package, "fill", "ni", (ssize_t)(size_t)table, FUNCTIONS);
}

static void come_to(int further) {
    pthread_mutex_lock(&starting);
    __atomic_store_n(&stage, further, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&has_come_further);
    pthread_mutex_unlock(&starting);
}

static int start(void) {
    char site[PATH_MAX];
    if (!own_site(site)) {
        complain("the place of this library can't be found", NULL);
        return 0;
    }
    int (*is_initialized)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    int is_own = !(is_initialized && is_initialized());
    void *library = is_own ? load_python(site, &is_own) : RTLD_DEFAULT;
    if (is_own && !library) return 0;
    if (!look_up(library)) {
        complain("libpython lacks a function", NULL);
        return 0;
    }
    come_to(FOUND);
    int state = is_own ? 0 : python.PyGILState_Ensure();
    int is_filled = fill_table(site);
    if (!is_filled) python.PyErr_Print();
    if (is_own) {
        python.PyEval_SaveThread();
        keeps_state = 1; /* The state of the interpreter's first thread. */
    } else {
        python.PyGILState_Release(state);
    }
    if (!is_filled) {
        complain("the package nnrt can't be used from", site);
        return 0;
    }
    pthread_key_create(&state_of_thread, forget_thread);
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
    atexit(end);
    return 1;
}

/* Start the library, or wait until another thread has started it. That thread needs the interpreter's lock, so this one
 * releases it while it waits. */
static void start_once(void) {
    pthread_mutex_lock(&starting);
    int is_first = stage == UNSTARTED;
    if (is_first) stage = STARTING;
    while (!is_first && stage == STARTING) pthread_cond_wait(&has_come_further, &starting);
    int is_found = stage == FOUND;
    pthread_mutex_unlock(&starting);
    if (is_first) {
        come_to(start() ? STARTED : FAILED);
    } else if (is_found) {
        void *state = python.PyGILState_Check() ? python.PyEval_SaveThread() : NULL;
        pthread_mutex_lock(&starting);
        while (stage == FOUND) pthread_cond_wait(&has_come_further, &starting);
        pthread_mutex_unlock(&starting);
        if (state) python.PyEval_RestoreThread(state);
    }
}

static void *entry(int index) {
    if (__atomic_load_n(&stage, __ATOMIC_ACQUIRE) != STARTED) start_once();
    if (!keeps_state && table[index]) keep_thread();
    return table[index];
}

/* ---- the functions */

#define CODE(index, name, parameters, arguments)                                          \
    EXPORTED OH_NN_ReturnCode name parameters {                                           \
        OH_NN_ReturnCode(*function) parameters = (OH_NN_ReturnCode(*) parameters)entry(index); \
        return function ? function arguments : OH_NN_FAILED;                              \
    }
#define POINTER(index, type, name, parameters, arguments)            \
    EXPORTED type name parameters {                                  \
        type(*function) parameters = (type(*) parameters)entry(index); \
        return function ? function arguments : NULL;                 \
    }
#define NOTHING(index, name, parameters, arguments)                  \
    EXPORTED void name parameters {                                  \
        void (*function) parameters = (void (*) parameters)entry(index); \
        if (function) function arguments;                            \
    }

#include "functions.inc"

EXPORTED const char *nnrt_last_error(void) {
    const char *(*function)(void) = (const char *(*)(void))(stage == STARTED ? entry(LAST_ERROR) : NULL);
    return function ? function() : problem;
}
