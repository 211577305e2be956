/**
 * @file nnrt.h
 *
 * Functions of this implementation that NNRt doesn't have.
 */
#ifndef NEURAL_NETWORK_RUNTIME_NNRT_H
#define NEURAL_NETWORK_RUNTIME_NNRT_H

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Describe the last error of this thread: where it happened, what was given, and what would be right.
 *
 * @return a text in UTF-8, which is valid until the same thread calls this function again; empty if no function has
 *         failed yet.
 */
const char *nnrt_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
