/**
 * @file nnrt.h
 *
 * What this implementation has besides NNRt's own functions.
 */
#ifndef NEURAL_NETWORK_RUNTIME_NNRT_H
#define NEURAL_NETWORK_RUNTIME_NNRT_H

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Why the last function of this thread failed, in words: where, what was given, and what would be right.
 *
 * @return a text in UTF-8, which is valid until the next call of this function by the same thread; empty where none has
 *         failed yet.
 */
const char *nnrt_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
