/* Each thread has its own last error, which stays until its next one. Prints those of three threads, each of which asks
 * when all have failed. */
#include <pthread.h>
#include <string.h>

#include "checks.h"

enum { THREADS = 3 };

static pthread_barrier_t all_have_failed;
static char told[THREADS][256];

static void *work(void *number) {
    long which = (long)number;
    const int32_t shape[16] = {0};
    NN_TensorDesc *desc = MADE(NN_TensorDesc, OH_NNTensorDesc_Create());
    if (OH_NNTensorDesc_SetShape(desc, shape, (size_t)which + 11) != OH_NN_INVALID_PARAMETER) abort();
    pthread_barrier_wait(&all_have_failed);
    const char *text = nnrt_last_error();
    CHECK(OH_NNTensorDesc_Destroy(&desc)); /* The text stays as it is. */
    snprintf(told[which], sizeof told[which], "%s", text);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&all_have_failed, NULL, THREADS);
    for (long number = 0; number < THREADS; number++) pthread_create(&threads[number], NULL, work, (void *)number);
    for (int number = 0; number < THREADS; number++) pthread_join(threads[number], NULL);
    for (int number = 0; number < THREADS; number++) printf("%s\n", told[number]);
    return 0;
}
