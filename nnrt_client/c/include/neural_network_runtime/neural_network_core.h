/**
 * @file neural_network_core.h
 *
 * Devices, descriptions of tensors, tensors, compilations and executors.
 *
 * Any thread may call these functions. Only one thread at a time may use a handle, except that several threads may run
 * one executor. Destroyed handles and pointers that are no handles count as null pointers: the functions return
 * OH_NN_INVALID_PARAMETER or NULL.
 *
 * The devices are those of the daemons at the addresses in the environment variable NNRT_DEVICES, or, without it, the
 * devices of this host.
 *
 * Besides the codes in its comment, any function may return OH_NN_INVALID_PARAMETER for a null pointer,
 * OH_NN_MEMORY_ERROR if there is not enough memory, and OH_NN_FAILED for an unexpected error. Unless its comment says
 * otherwise, a function that fails changes nothing and writes nothing through its pointers. `nnrt_last_error` (nnrt.h)
 * returns the reason.
 */
#ifndef NEURAL_NETWORK_RUNTIME_NEURAL_NETWORK_CORE_H
#define NEURAL_NETWORK_RUNTIME_NEURAL_NETWORK_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "neural_network_runtime_type.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Devices */

/**
 * Find the devices that answer now and accept work, in the order of their addresses.
 *
 * @param allDevicesID  points to a null pointer; gets the ids. They live as long as the process.
 * @param deviceCount   gets their number. If it is 0, the array is a null pointer.
 * @return OH_NN_INVALID_PARAMETER if `*allDevicesID` is not null.
 * @since 9
 */
OH_NN_ReturnCode OH_NNDevice_GetAllDevicesID(const size_t **allDevicesID, uint32_t *deviceCount);

/**
 * Get the unique name of a device. It contains the names of device and vendor, and the version of the device interface.
 *
 * @param deviceID  an id of OH_NNDevice_GetAllDevicesID; 0 is the first device.
 * @param name      points to a null pointer; gets the name, which lives as long as the process.
 * @return OH_NN_INVALID_PARAMETER if `*name` is not null, OH_NN_FAILED if no device with this id answers.
 * @since 9
 */
OH_NN_ReturnCode OH_NNDevice_GetName(size_t deviceID, const char **name);

/**
 * Get the kind of a device.
 *
 * @param deviceID    an id of OH_NNDevice_GetAllDevicesID; 0 is the first device.
 * @param deviceType  gets the kind.
 * @return OH_NN_INVALID_PARAMETER for an unknown id, OH_NN_UNAVAILABLE_DEVICE if the device's daemon is gone.
 * @since 9
 */
OH_NN_ReturnCode OH_NNDevice_GetType(size_t deviceID, OH_NN_DeviceType *deviceType);

/* ---- Descriptions of tensors */

/**
 * Create a description with an empty name, OH_NN_UNKNOWN, OH_NN_FORMAT_NONE, and no shape.
 *
 * @return the description, to be destroyed by OH_NNTensorDesc_Destroy; NULL if there is not enough memory.
 * @since 11
 */
NN_TensorDesc *OH_NNTensorDesc_Create(void);

/**
 * Destroy a description. Tensors and models that were made with it have copies.
 *
 * @param tensorDesc  points to the description; null afterwards.
 * @return OH_NN_INVALID_PARAMETER for a tensor's own description (OH_NNTensor_GetTensorDesc), which is not destroyed.
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensorDesc_Destroy(NN_TensorDesc **tensorDesc);

/**
 * Set the name.
 *
 * @param name  a text in UTF-8, which may be empty. It is copied.
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensorDesc_SetName(NN_TensorDesc *tensorDesc, const char *name);

/**
 * Get the name, which is empty if none has been set.
 *
 * @param name  points to a null pointer; gets the name, which lives as long as the description.
 * @return OH_NN_INVALID_PARAMETER if `*name` is not null.
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensorDesc_GetName(const NN_TensorDesc *tensorDesc, const char **name);

/**
 * Set the type of the elements.
 *
 * @return OH_NN_INVALID_PARAMETER if it is no data type.
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensorDesc_SetDataType(NN_TensorDesc *tensorDesc, OH_NN_DataType dataType);

/**
 * Get the type of the elements, which is OH_NN_UNKNOWN if none has been set.
 *
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensorDesc_GetDataType(const NN_TensorDesc *tensorDesc, OH_NN_DataType *dataType);

/**
 * Set the dimensions. Their values are not checked. -1 is a dimension that is known only in a run; a scalar is {1}.
 *
 * @param shape        1 to 10 dimensions, which are copied.
 * @param shapeLength  their number.
 * @return OH_NN_INVALID_PARAMETER for another number of dimensions.
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensorDesc_SetShape(NN_TensorDesc *tensorDesc, const int32_t *shape, size_t shapeLength);

/**
 * Get the dimensions: a null pointer and 0 if none have been set.
 *
 * @param shape        points to a null pointer; gets the dimensions, which live as long as the description.
 * @param shapeLength  gets their number.
 * @return OH_NN_INVALID_PARAMETER if `*shape` is not null.
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensorDesc_GetShape(const NN_TensorDesc *tensorDesc, int32_t **shape, size_t *shapeLength);

/**
 * Set the order of the dimensions.
 *
 * @return OH_NN_INVALID_PARAMETER if it is no format.
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensorDesc_SetFormat(NN_TensorDesc *tensorDesc, OH_NN_Format format);

/**
 * Get the order of the dimensions, which is OH_NN_FORMAT_NONE if none has been set.
 *
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensorDesc_GetFormat(const NN_TensorDesc *tensorDesc, OH_NN_Format *format);

/**
 * Get the number of elements.
 *
 * @param elementCount  gets the number; 0 if a dimension is unknown.
 * @return OH_NN_DYNAMIC_SHAPE if a dimension is unknown, OH_NN_INVALID_PARAMETER if there is no shape, or if the number
 *         does not fit into a size_t.
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensorDesc_GetElementCount(const NN_TensorDesc *tensorDesc, size_t *elementCount);

/**
 * Get the size in bytes.
 *
 * @param byteSize  gets the size; 0 if a dimension is unknown.
 * @return OH_NN_DYNAMIC_SHAPE if a dimension is unknown, OH_NN_INVALID_PARAMETER if there is no shape or data type, or
 *         if the size does not fit into a size_t.
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensorDesc_GetByteSize(const NN_TensorDesc *tensorDesc, size_t *byteSize);

/* ---- Tensors */

/**
 * Create a tensor in memory that the device accesses directly. Its size follows from the description.
 *
 * @param tensorDesc  is copied. All its dimensions must be known.
 * @return the tensor, to be destroyed by OH_NNTensor_Destroy; NULL if no device with this id answers, if the size is
 *         unknown or more than 1 GiB, and if there is not enough memory.
 * @since 11
 */
NN_Tensor *OH_NNTensor_Create(size_t deviceID, NN_TensorDesc *tensorDesc);

/**
 * Create a tensor of a given size, for example for an output whose shape is known only in a run.
 *
 * @param tensorDesc  is copied. It must have a shape, whose dimensions may be unknown. If all are known, it must not
 *                    need more than `size` bytes.
 * @param size        1 byte to 1 GiB.
 * @return as of OH_NNTensor_Create.
 * @since 11
 */
NN_Tensor *OH_NNTensor_CreateWithSize(size_t deviceID, NN_TensorDesc *tensorDesc, size_t size);

/**
 * Create a tensor in the program's shared memory: a memfd, or the result of OH_NNTensor_GetFd.
 *
 * @param tensorDesc  is copied, as by OH_NNTensor_CreateWithSize. The tensor must fit between `offset` and `size`.
 * @param fd          stays the program's, which may close it after the call.
 * @param size        size of the memory in bytes, from its begin.
 * @param offset      position of the tensor's first byte, less than `size`.
 * @return as of OH_NNTensor_Create; also NULL if the memory can't be mapped or is smaller than `size`.
 * @since 11
 */
NN_Tensor *OH_NNTensor_CreateWithFd(size_t deviceID, NN_TensorDesc *tensorDesc, int fd, size_t size, size_t offset);

/**
 * Destroy a tensor with its memory and its description. A current run keeps the memory that it needs.
 *
 * @param tensor  points to the tensor; null afterwards.
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensor_Destroy(NN_Tensor **tensor);

/**
 * Get the memory of a tensor, from its offset on. The program may read and write it while no run uses it.
 *
 * @return the address of the first byte, valid until the tensor is destroyed; NULL for a null pointer.
 * @since 11
 */
void *OH_NNTensor_GetDataBuffer(const NN_Tensor *tensor);

/**
 * Get the file descriptor of a tensor's memory.
 *
 * @param fd  gets the descriptor, which belongs to the tensor and is closed with it.
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensor_GetFd(const NN_Tensor *tensor, int *fd);

/**
 * Get the size of a tensor's memory in bytes, with the bytes before its offset.
 *
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensor_GetSize(const NN_Tensor *tensor, size_t *size);

/**
 * Get the position of a tensor's first byte in its memory: 0, unless the tensor was created with a descriptor.
 *
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensor_GetOffset(const NN_Tensor *tensor, size_t *offset);

/**
 * Get the tensor's own description. The next run reads it for an input. A run writes the shapes of its outputs to it.
 *
 * @return the description, which belongs to the tensor: don't destroy it. NULL for a null pointer.
 * @since 11
 */
NN_TensorDesc *OH_NNTensor_GetTensorDesc(const NN_Tensor *tensor);

/* ---- Compilations */

/**
 * Create a compilation of a model, which must be finished before the compilation is built. The model's handle may be
 * destroyed at once.
 *
 * @return the compilation, to be destroyed by OH_NNCompilation_Destroy; NULL for a null pointer.
 * @since 9
 */
OH_NNCompilation *OH_NNCompilation_Construct(const OH_NNModel *model);

/**
 * Create a compilation of an offline model: a file that was compiled for the device before. OH_NNCompilation_Build
 * reads the file. It returns OH_NN_INVALID_PATH if the file doesn't exist, OH_NN_INVALID_FILE if it can't be read or is
 * empty, and OH_NN_FAILED if the device refuses it.
 *
 * @param modelPath  the name of the file, which is copied.
 * @return as of OH_NNCompilation_Construct.
 * @since 11
 */
OH_NNCompilation *OH_NNCompilation_ConstructWithOfflineModelFile(const char *modelPath);

/**
 * Create a compilation of an offline model in memory.
 *
 * @param modelBuffer  is not copied: it must not change until the compilation is destroyed.
 * @param modelSize    its size in bytes, at least 1.
 * @return as of OH_NNCompilation_Construct; also NULL for size 0.
 * @since 11
 */
OH_NNCompilation *OH_NNCompilation_ConstructWithOfflineModelBuffer(const void *modelBuffer, size_t modelSize);

/**
 * Create a compilation of a cache, which OH_NNCompilation_SetCache or OH_NNCompilation_ImportCacheFromBuffer sets.
 *
 * @return as of OH_NNCompilation_Construct; NULL if there is not enough memory.
 * @since 11
 */
OH_NNCompilation *OH_NNCompilation_ConstructForCache(void);

/**
 * Set the device, by default the first one. Any id is accepted: OH_NNCompilation_Build looks for the device.
 *
 * @return OH_NN_OPERATION_FORBIDDEN after the compilation has been built.
 * @since 9
 */
OH_NN_ReturnCode OH_NNCompilation_SetDevice(OH_NNCompilation *compilation, size_t deviceID);

/**
 * Set the directory of the cache. OH_NNCompilation_Build reads the compiled model from it if it is there, and else
 * writes it there.
 *
 * @param cachePath  the name of an existing directory, which is copied. Each device has a directory of its own in it.
 * @param version    version of the model. A cache of a lower version is overwritten.
 * @return OH_NN_INVALID_PATH if it is no directory or can't be used; OH_NN_INVALID_FILE if the cache is damaged,
 *         incomplete, or of another device; OH_NN_INVALID_PARAMETER if the cache has a higher version (then
 *         OH_NNCompilation_Build ignores this call); OH_NN_OPERATION_FORBIDDEN after the compilation has been built.
 *         OH_NNCompilation_Build checks again and returns the same codes. It also returns OH_NN_OPERATION_FORBIDDEN if
 *         the device has no caches, OH_NN_INVALID_PARAMETER for the version UINT32_MAX, and OH_NN_SAVE_CACHE_EXCEPTION
 *         if it has compiled the model, which can be used, but can't write the cache.
 * @since 9
 */
OH_NN_ReturnCode OH_NNCompilation_SetCache(OH_NNCompilation *compilation, const char *cachePath, uint32_t version);

/**
 * Set the performance mode. By default it is OH_NN_PERFORMANCE_NONE, with which the device decides.
 *
 * @return OH_NN_OPERATION_FORBIDDEN after the compilation has been built, OH_NN_UNAVAILABLE_DEVICE if the device
 *         doesn't support this setting, unless the value is the default. OH_NNCompilation_Build returns
 *         OH_NN_INVALID_PARAMETER for an invalid value, and OH_NN_OPERATION_FORBIDDEN if a device that was set later
 *         doesn't support the setting.
 * @since 9
 */
OH_NN_ReturnCode OH_NNCompilation_SetPerformanceMode(
    OH_NNCompilation *compilation, OH_NN_PerformanceMode performanceMode);

/**
 * Set the priority of the runs, among the runs of the same user. By default it is OH_NN_PRIORITY_NONE.
 *
 * @return as of OH_NNCompilation_SetPerformanceMode.
 * @since 9
 */
OH_NN_ReturnCode OH_NNCompilation_SetPriority(OH_NNCompilation *compilation, OH_NN_Priority priority);

/**
 * Set whether the device computes in half precision where the model has FLOAT32. By default it does not.
 *
 * @return as of OH_NNCompilation_SetPerformanceMode.
 * @since 9
 */
OH_NN_ReturnCode OH_NNCompilation_EnableFloat16(OH_NNCompilation *compilation, bool enableFloat16);

/**
 * Set a buffer with a compiled model, written by OH_NNCompilation_ExportCacheToBuffer.
 *
 * @param buffer     is not copied: it must not change until the compilation is destroyed.
 * @param modelSize  its size in bytes, at least 1.
 * @return OH_NN_OPERATION_FORBIDDEN after the compilation has been built. OH_NNCompilation_Build returns
 *         OH_NN_INVALID_FILE if the buffer contains no compiled model of the device, and OH_NN_INVALID_PARAMETER if the
 *         compilation also has a model or a directory.
 * @since 11
 */
OH_NN_ReturnCode OH_NNCompilation_ImportCacheFromBuffer(
    OH_NNCompilation *compilation, const void *buffer, size_t modelSize);

/**
 * Write the compiled model to a buffer.
 *
 * @param buffer     gets the compiled model, from its begin.
 * @param length     its size in bytes.
 * @param modelSize  gets the number of bytes written, or of bytes needed if the buffer is too small.
 * @return OH_NN_INVALID_PARAMETER if the buffer is too small, or the compilation has not been built; OH_NN_UNSUPPORTED
 *         if the device can't export compiled models, OH_NN_SAVE_CACHE_EXCEPTION if it fails to.
 * @since 11
 */
OH_NN_ReturnCode OH_NNCompilation_ExportCacheToBuffer(
    OH_NNCompilation *compilation, const void *buffer, size_t length, size_t *modelSize);

/**
 * Set an option that the device's vendor defines. If a name is set twice, its values are joined by '|'.
 *
 * @param configName       name of the option, not empty; it is copied. The option "ModelName" distinguishes models
 *                         whose caches are in one directory.
 * @param configValue      its value, which is copied.
 * @param configValueSize  the size of the value in bytes, at least 1.
 * @return OH_NN_OPERATION_FORBIDDEN after the compilation has been built. OH_NNCompilation_Build returns
 *         OH_NN_INVALID_PARAMETER for an option that the device doesn't know.
 * @since 11
 */
OH_NN_ReturnCode OH_NNCompilation_AddExtensionConfig(
    OH_NNCompilation *compilation, const char *configName, const void *configValue, const size_t configValueSize);

/**
 * Compile the model, which may take minutes. Once a device has accepted or refused the model, the compilation can't be
 * changed. If the device was not there or its daemon died, the call may be repeated.
 *
 * @return OH_NN_INVALID_PARAMETER for a model that is not finished, for a compilation that a device has accepted or
 *         refused, and for one without a model or with several; OH_NN_FAILED if the device can't run the model or there
 *         is no such device, OH_NN_UNAVAILABLE_DEVICE if its daemon dies, OH_NN_CONNECTION_EXCEPTION if the connection
 *         is lost, and codes that the functions above name: OH_NN_OPERATION_FORBIDDEN, OH_NN_INVALID_PATH,
 *         OH_NN_INVALID_FILE, OH_NN_SAVE_CACHE_EXCEPTION.
 * @since 9
 */
OH_NN_ReturnCode OH_NNCompilation_Build(OH_NNCompilation *compilation);

/**
 * Destroy a compilation. Its executors keep working.
 *
 * @param compilation  points to the compilation; null afterwards.
 * @since 9
 */
void OH_NNCompilation_Destroy(OH_NNCompilation **compilation);

/* ---- Executors */

/**
 * Create an executor of a compilation that has been built. The compilation may be destroyed at once.
 *
 * @return the executor, to be destroyed by OH_NNExecutor_Destroy; NULL if the compilation has not been built, or the
 *         daemon that has built it is gone.
 * @since 9
 */
OH_NNExecutor *OH_NNExecutor_Construct(OH_NNCompilation *compilation);

/**
 * Get the shape of an output in the last run. Before the first run it is the declared shape, with -1 for unknown
 * dimensions. After a run in which an output's tensor was too small, it is the shape that the output needs.
 *
 * @param shape        points to a null pointer; gets the dimensions, which live as long as the executor.
 * @param shapeLength  gets their number.
 * @return OH_NN_INVALID_PARAMETER if `*shape` is not null, and for an index that doesn't exist.
 * @since 9
 */
OH_NN_ReturnCode OH_NNExecutor_GetOutputShape(
    OH_NNExecutor *executor, uint32_t outputIndex, int32_t **shape, uint32_t *shapeLength);

/**
 * Destroy an executor. Its runs end with OH_NN_FAILED. The function returns after their callbacks have returned, except
 * for a callback that calls it.
 *
 * @param executor  points to the executor; null afterwards.
 * @since 9
 */
void OH_NNExecutor_Destroy(OH_NNExecutor **executor);

/**
 * Get the number of inputs of a run.
 *
 * @since 11
 */
OH_NN_ReturnCode OH_NNExecutor_GetInputCount(const OH_NNExecutor *executor, size_t *inputCount);

/**
 * Get the number of outputs of a run.
 *
 * @since 11
 */
OH_NN_ReturnCode OH_NNExecutor_GetOutputCount(const OH_NNExecutor *executor, size_t *outputCount);

/**
 * Create a description of an input as the model declares it. A scalar has the shape {1}.
 *
 * @param index  the position of the input in the call of OH_NNModel_SpecifyInputsAndOutputs.
 * @return the description, to be destroyed by OH_NNTensorDesc_Destroy; NULL for an index that doesn't exist.
 * @since 11
 */
NN_TensorDesc *OH_NNExecutor_CreateInputTensorDesc(const OH_NNExecutor *executor, size_t index);

/**
 * Create a description of an output, as OH_NNExecutor_CreateInputTensorDesc does of an input.
 *
 * @since 11
 */
NN_TensorDesc *OH_NNExecutor_CreateOutputTensorDesc(const OH_NNExecutor *executor, size_t index);

/**
 * Get the smallest and the largest dimensions of an input that the device accepts.
 *
 * @param minInputDims  gets the smallest dimensions, which live as long as the executor. Its value before doesn't
 *                      matter.
 * @param maxInputDims  gets the largest dimensions, in the same way.
 * @param shapeLength   gets the number of dimensions.
 * @return OH_NN_INVALID_PARAMETER for an index that doesn't exist, OH_NN_OPERATION_FORBIDDEN if the device doesn't
 *         tell, OH_NN_UNAVAILABLE_DEVICE if its daemon is gone.
 * @since 11
 */
OH_NN_ReturnCode OH_NNExecutor_GetInputDimRange(
    const OH_NNExecutor *executor, size_t index, size_t **minInputDims, size_t **maxInputDims, size_t *shapeLength);

/**
 * Set the callback of later runs of OH_NNExecutor_RunAsync.
 *
 * A thread of the library calls it once for each run that has ended. It may call any function of this library.
 *
 * @since 11
 */
OH_NN_ReturnCode OH_NNExecutor_SetOnRunDone(OH_NNExecutor *executor, NN_OnRunDone onRunDone);

/**
 * Set the callback for later runs of OH_NNExecutor_RunAsync whose daemon dies. For each such run a thread of the
 * library calls it in place of the callback of OH_NNExecutor_SetOnRunDone. Without it, that callback is called with
 * OH_NN_UNAVAILABLE_DEVICE.
 *
 * @since 11
 */
OH_NN_ReturnCode OH_NNExecutor_SetOnServiceDied(OH_NNExecutor *executor, NN_OnServiceDied onServiceDied);

/**
 * Run the model and wait until the run ends. It writes the results to the memory of the outputs, and their shapes to
 * the descriptions of the outputs.
 *
 * @param inputTensor   a tensor for each input, with its data type and a shape that fits.
 * @param outputTensor  a tensor for each output, which must be large enough.
 * @return OH_NN_INVALID_PARAMETER for tensors that don't fit, and for an output that is too small (then
 *         OH_NNExecutor_GetOutputShape returns the shape that it needs); OH_NN_NULL_PTR for a null pointer among the
 *         inputs, if the device answers OH_NNExecutor_GetInputDimRange; OH_NN_FAILED for a tensor whose description
 *         needs more than its memory, OH_NN_TIMEOUT for a run that takes too long, OH_NN_UNAVAILABLE_DEVICE if the
 *         daemon dies or has died or the device fails, OH_NN_CONNECTION_EXCEPTION if the connection is lost.
 * @since 11
 */
OH_NN_ReturnCode OH_NNExecutor_RunSync(
    OH_NNExecutor *executor,
    NN_Tensor *inputTensor[],
    size_t inputCount,
    NN_Tensor *outputTensor[],
    size_t outputCount);

/**
 * Start a run and return. After OH_NN_SUCCESS exactly one callback follows, of OH_NNExecutor_SetOnRunDone or
 * OH_NNExecutor_SetOnServiceDied. Until then the program must not access the memory of the tensors, but it may destroy
 * them.
 *
 * @param timeout   milliseconds until the run ends with OH_NN_TIMEOUT, at least 1.
 * @param userData  argument of the callback, not null.
 * @return as of OH_NNExecutor_RunSync for errors before the run starts; OH_NN_OPERATION_FORBIDDEN if
 *         OH_NNExecutor_SetOnRunDone has not been called.
 * @since 11
 */
OH_NN_ReturnCode OH_NNExecutor_RunAsync(
    OH_NNExecutor *executor,
    NN_Tensor *inputTensor[],
    size_t inputCount,
    NN_Tensor *outputTensor[],
    size_t outputCount,
    int32_t timeout,
    void *userData);

#ifdef __cplusplus
}
#endif

#endif
