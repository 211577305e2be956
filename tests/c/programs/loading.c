/* Loads the library, uses it, unloads it, and does so again: `loading LIBRARY`. */
#include <dlfcn.h>
#include <neural_network_runtime/neural_network_runtime.h>
#include <pthread.h>
#include <stdio.h>

static void *use(void *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return NULL;
    OH_NN_ReturnCode (*find)(const size_t **, uint32_t *) =
        (OH_NN_ReturnCode(*)(const size_t **, uint32_t *))dlsym(library, "OH_NNDevice_GetAllDevicesID");
    const size_t *ids = NULL;
    uint32_t count = 0;
    OH_NN_ReturnCode code = find ? find(&ids, &count) : OH_NN_FAILED;
    int closed = dlclose(library);
    printf("%d %d %u\n", code, closed, count);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    use(argv[1]);
    pthread_t other; /* Ends when the library has been unloaded. */
    pthread_create(&other, NULL, use, argv[1]);
    pthread_join(other, NULL);
    return 0;
}
