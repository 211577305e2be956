/**
 * @file neural_network_core.h
 *
 * Devices, descriptions of tensors, tensors, compilations and executors: what turns a model into numbers.
 *
 * All functions may be called by any thread. A handle belongs to one thread at a time, but for executors, whose runs
 * any number of threads may ask for. A handle that has been destroyed, and a pointer that never was one, count as null
 * pointers: they give OH_NN_INVALID_PARAMETER, or NULL.
 *
 * Devices are those of daemons at the addresses in the environment variable NNRT_DEVICES, and without it those of this
 * host.
 *
 * Codes that any function may return besides those that it names: OH_NN_INVALID_PARAMETER for a null pointer,
 * OH_NN_MEMORY_ERROR where memory is short, OH_NN_FAILED for what nobody foresaw. A function that has failed has
 * changed nothing, and written nothing through its pointers, unless it says so. `nnrt_last_error` (nnrt.h) tells why.
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
 * Find the devices that answer now and take work, in the order of their addresses.
 *
 * @param allDevicesID  points to a null pointer; gets the ids. They live as long as the process.
 * @param deviceCount   gets their number, which may be 0; then the array is a null pointer.
 * @return OH_NN_INVALID_PARAMETER where `*allDevicesID` is not null.
 * @since 9
 */
OH_NN_ReturnCode OH_NNDevice_GetAllDevicesID(const size_t **allDevicesID, uint32_t *deviceCount);

/**
 * The name of a device, made of the device's, its vendor's, and the version of the device interface. No two devices of a
 * fleet have the same.
 *
 * @param deviceID  as OH_NNDevice_GetAllDevicesID gave it; 0 is the first device.
 * @param name      points to a null pointer; gets the name, which lives as long as the process.
 * @return OH_NN_INVALID_PARAMETER where `*name` is not null, OH_NN_FAILED for an id that no device has that answers.
 * @since 9
 */
OH_NN_ReturnCode OH_NNDevice_GetName(size_t deviceID, const char **name);

/**
 * The kind of a device.
 *
 * @param deviceID    as OH_NNDevice_GetAllDevicesID gave it; 0 is the first device.
 * @param deviceType  gets the kind.
 * @return OH_NN_INVALID_PARAMETER for an id that no device has, OH_NN_UNAVAILABLE_DEVICE for one whose daemon is gone.
 * @since 9
 */
OH_NN_ReturnCode OH_NNDevice_GetType(size_t deviceID, OH_NN_DeviceType *deviceType);

/* ---- Descriptions of tensors */

/**
 * A description with an empty name, OH_NN_UNKNOWN, OH_NN_FORMAT_NONE, and no shape.
 *
 * @return the description, to be destroyed by OH_NNTensorDesc_Destroy; NULL where memory is short.
 * @since 11
 */
NN_TensorDesc *OH_NNTensorDesc_Create(void);

/**
 * Destroy a description. Tensors and models that were made with it have copies.
 *
 * @param tensorDesc  points to the description; null afterwards.
 * @return OH_NN_INVALID_PARAMETER for one that belongs to a tensor (OH_NNTensor_GetTensorDesc), which stays.
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
 * The name; empty if none has been set.
 *
 * @param name  points to a null pointer; gets the name, which lives as long as the description.
 * @return OH_NN_INVALID_PARAMETER where `*name` is not null.
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensorDesc_GetName(const NN_TensorDesc *tensorDesc, const char **name);

/**
 * Set the type of the elements.
 *
 * @return OH_NN_INVALID_PARAMETER for what is no data type.
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensorDesc_SetDataType(NN_TensorDesc *tensorDesc, OH_NN_DataType dataType);

/**
 * The type of the elements; OH_NN_UNKNOWN if none has been set.
 *
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensorDesc_GetDataType(const NN_TensorDesc *tensorDesc, OH_NN_DataType *dataType);

/**
 * Set the dimensions. They are not looked at here: -1 stands for one that only a run decides, and a scalar is {1}.
 *
 * @param shape        1 to 10 dimensions, which are copied.
 * @param shapeLength  their number.
 * @return OH_NN_INVALID_PARAMETER for another number of them.
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensorDesc_SetShape(NN_TensorDesc *tensorDesc, const int32_t *shape, size_t shapeLength);

/**
 * The dimensions; a null pointer and 0 if none have been set.
 *
 * @param shape        points to a null pointer; gets the dimensions, which live as long as the description.
 * @param shapeLength  gets their number.
 * @return OH_NN_INVALID_PARAMETER where `*shape` is not null.
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensorDesc_GetShape(const NN_TensorDesc *tensorDesc, int32_t **shape, size_t *shapeLength);

/**
 * Set the order of the dimensions.
 *
 * @return OH_NN_INVALID_PARAMETER for what is no format.
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensorDesc_SetFormat(NN_TensorDesc *tensorDesc, OH_NN_Format format);

/**
 * The order of the dimensions; OH_NN_FORMAT_NONE if none has been set.
 *
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensorDesc_GetFormat(const NN_TensorDesc *tensorDesc, OH_NN_Format *format);

/**
 * The number of elements.
 *
 * @param elementCount  gets it; 0 where a dimension is not known.
 * @return OH_NN_DYNAMIC_SHAPE where a dimension is not known, OH_NN_INVALID_PARAMETER without a shape, and for a number
 *         that no size_t holds.
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensorDesc_GetElementCount(const NN_TensorDesc *tensorDesc, size_t *elementCount);

/**
 * The size in bytes.
 *
 * @param byteSize  gets it; 0 where a dimension is not known.
 * @return OH_NN_DYNAMIC_SHAPE where a dimension is not known, OH_NN_INVALID_PARAMETER without a shape or a data type, and
 *         for a size that no size_t holds.
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensorDesc_GetByteSize(const NN_TensorDesc *tensorDesc, size_t *byteSize);

/* ---- Tensors */

/**
 * A tensor in memory that the device reads and writes where it is, as large as its description says.
 *
 * @param tensorDesc  is copied. All its dimensions are known.
 * @return the tensor, to be destroyed by OH_NNTensor_Destroy; NULL for an id that no device has that answers, for a
 *         description whose size is not known or more than 1 GiB, and where memory is short.
 * @since 11
 */
NN_Tensor *OH_NNTensor_Create(size_t deviceID, NN_TensorDesc *tensorDesc);

/**
 * A tensor with room for so many bytes: for an output whose shape only the run decides.
 *
 * @param tensorDesc  is copied. It has a shape, of which dimensions may be unknown; where all are known it must not need
 *                    more than `size`.
 * @param size        1 byte to 1 GiB.
 * @return as of OH_NNTensor_Create.
 * @since 11
 */
NN_Tensor *OH_NNTensor_CreateWithSize(size_t deviceID, NN_TensorDesc *tensorDesc, size_t size);

/**
 * A tensor in shared memory that the program has: a memfd, or what another NN_Tensor's OH_NNTensor_GetFd gives.
 *
 * @param tensorDesc  is copied, as by OH_NNTensor_CreateWithSize. What it needs must fit between `offset` and `size`.
 * @param fd          stays the program's, which may close it when this has returned.
 * @param size        the number of bytes of the memory, from its begin.
 * @param offset      the first byte of the tensor, less than `size`.
 * @return as of OH_NNTensor_Create; NULL, too, for a descriptor that can't be mapped or has fewer bytes.
 * @since 11
 */
NN_Tensor *OH_NNTensor_CreateWithFd(size_t deviceID, NN_TensorDesc *tensorDesc, int fd, size_t size, size_t offset);

/**
 * Destroy a tensor, and with it its memory and its description. A run that is under way keeps what it needs.
 *
 * @param tensor  points to the tensor; null afterwards.
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensor_Destroy(NN_Tensor **tensor);

/**
 * The memory of a tensor, from its offset on, to be read and written while no run has it.
 *
 * @return the first byte; it is valid until the tensor is destroyed. NULL for no tensor.
 * @since 11
 */
void *OH_NNTensor_GetDataBuffer(const NN_Tensor *tensor);

/**
 * The descriptor of the memory of a tensor.
 *
 * @param fd  gets it. It belongs to the tensor, and is closed with it.
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensor_GetFd(const NN_Tensor *tensor, int *fd);

/**
 * The bytes of the memory of a tensor, what is before its offset included.
 *
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensor_GetSize(const NN_Tensor *tensor, size_t *size);

/**
 * The first byte of a tensor in its memory; 0 unless it was created with a descriptor.
 *
 * @since 11
 */
OH_NN_ReturnCode OH_NNTensor_GetOffset(const NN_Tensor *tensor, size_t *offset);

/**
 * The tensor's own description. What is set there is what the next run takes for an input; a run sets the shapes of its
 * outputs there.
 *
 * @return the description, which belongs to the tensor: don't destroy it. NULL for no tensor.
 * @since 11
 */
NN_TensorDesc *OH_NNTensor_GetTensorDesc(const NN_Tensor *tensor);

/* ---- Compilations */

/**
 * A compilation of a model, which is finished before the compilation is built. The model's handle may be destroyed at
 * once.
 *
 * @return the compilation, to be destroyed by OH_NNCompilation_Destroy; NULL for no model.
 * @since 9
 */
OH_NNCompilation *OH_NNCompilation_Construct(const OH_NNModel *model);

/**
 * A compilation of an offline model: a file that was compiled for the device before. It is read when the compilation is
 * built: OH_NNCompilation_Build returns OH_NN_INVALID_PATH where it isn't there, OH_NN_INVALID_FILE where it can't be read
 * or is empty, and OH_NN_FAILED where the device doesn't take it.
 *
 * @param modelPath  the name of the file, which is copied.
 * @return as of OH_NNCompilation_Construct; NULL without a name.
 * @since 11
 */
OH_NNCompilation *OH_NNCompilation_ConstructWithOfflineModelFile(const char *modelPath);

/**
 * A compilation of an offline model in memory.
 *
 * @param modelBuffer  is not copied: it stays as it is until the compilation is destroyed.
 * @param modelSize    its bytes, at least 1.
 * @return as of OH_NNCompilation_Construct; NULL without any bytes.
 * @since 11
 */
OH_NNCompilation *OH_NNCompilation_ConstructWithOfflineModelBuffer(const void *modelBuffer, size_t modelSize);

/**
 * A compilation of a cache, which OH_NNCompilation_SetCache or OH_NNCompilation_ImportCacheFromBuffer names.
 *
 * @return as of OH_NNCompilation_Construct; NULL where memory is short.
 * @since 11
 */
OH_NNCompilation *OH_NNCompilation_ConstructForCache(void);

/**
 * Choose the device; without this, the first one. Any id is taken here: OH_NNCompilation_Build looks for the device.
 *
 * @return OH_NN_OPERATION_FORBIDDEN once it has been built.
 * @since 9
 */
OH_NN_ReturnCode OH_NNCompilation_SetDevice(OH_NNCompilation *compilation, size_t deviceID);

/**
 * Read what was compiled from this directory, if it is there; else write it there. Either is done by
 * OH_NNCompilation_Build.
 *
 * @param cachePath  the name of a directory that exists, which is copied. Each device has a directory of its own in it.
 * @param version    of the model: what was written with a lower one is written anew.
 * @return OH_NN_INVALID_PATH for what is no directory, or can't be used; OH_NN_INVALID_FILE where what was written there
 *         is damaged, incomplete, or another device's; OH_NN_INVALID_PARAMETER where it has a higher version (then
 *         OH_NNCompilation_Build does as if this had not been called); OH_NN_OPERATION_FORBIDDEN once it has been built.
 *         OH_NNCompilation_Build looks again, and returns the same codes, OH_NN_OPERATION_FORBIDDEN where the device has
 *         no caches, OH_NN_INVALID_PARAMETER for the version UINT32_MAX, and OH_NN_SAVE_CACHE_EXCEPTION where it has
 *         compiled the model, which can be used, but can't write it.
 * @since 9
 */
OH_NN_ReturnCode OH_NNCompilation_SetCache(OH_NNCompilation *compilation, const char *cachePath, uint32_t version);

/**
 * Choose how fast the device works; without this, OH_NN_PERFORMANCE_NONE: as it likes.
 *
 * @return OH_NN_OPERATION_FORBIDDEN once it has been built, OH_NN_UNAVAILABLE_DEVICE where the device has no choice (but
 *         the value that stands without this is taken). OH_NNCompilation_Build returns OH_NN_INVALID_PARAMETER for what is
 *         no such value, and OH_NN_OPERATION_FORBIDDEN where a device that was chosen later has no choice.
 * @since 9
 */
OH_NN_ReturnCode OH_NNCompilation_SetPerformanceMode(
    OH_NNCompilation *compilation, OH_NN_PerformanceMode performanceMode);

/**
 * Choose which runs go first, of those of the same user; without this, OH_NN_PRIORITY_NONE.
 *
 * @return as of OH_NNCompilation_SetPerformanceMode.
 * @since 9
 */
OH_NN_ReturnCode OH_NNCompilation_SetPriority(OH_NNCompilation *compilation, OH_NN_Priority priority);

/**
 * Have the device compute in half precision what the model has in FLOAT32; without this, false.
 *
 * @return as of OH_NNCompilation_SetPerformanceMode.
 * @since 9
 */
OH_NN_ReturnCode OH_NNCompilation_EnableFloat16(OH_NNCompilation *compilation, bool enableFloat16);

/**
 * Take what was compiled from a buffer that OH_NNCompilation_ExportCacheToBuffer has written.
 *
 * @param buffer     is not copied: it stays as it is until the compilation is destroyed.
 * @param modelSize  its bytes, at least 1.
 * @return OH_NN_OPERATION_FORBIDDEN once it has been built. OH_NNCompilation_Build returns OH_NN_INVALID_FILE for a
 *         buffer that holds something else, or another device's, and OH_NN_INVALID_PARAMETER where the compilation has a
 *         model or a directory, too.
 * @since 11
 */
OH_NN_ReturnCode OH_NNCompilation_ImportCacheFromBuffer(
    OH_NNCompilation *compilation, const void *buffer, size_t modelSize);

/**
 * Write what was compiled into a buffer.
 *
 * @param buffer     is written from its begin.
 * @param length     its bytes.
 * @param modelSize  gets the bytes that were written; of a buffer that is too small, those that are needed.
 * @return OH_NN_INVALID_PARAMETER for a buffer that is too small, and unless it has been built; OH_NN_UNSUPPORTED where
 *         the device doesn't give what it has compiled, OH_NN_SAVE_CACHE_EXCEPTION where it fails to.
 * @since 11
 */
OH_NN_ReturnCode OH_NNCompilation_ExportCacheToBuffer(
    OH_NNCompilation *compilation, const void *buffer, size_t length, size_t *modelSize);

/**
 * Give the device a setting of its vendor's. A name that is given twice has both values, joined by '|'.
 *
 * @param configName       which one, not empty; it is copied. "ModelName" tells models in one directory of caches apart.
 * @param configValue      its value, which is copied.
 * @param configValueSize  the bytes of the value, at least 1.
 * @return OH_NN_OPERATION_FORBIDDEN once it has been built. OH_NNCompilation_Build returns OH_NN_INVALID_PARAMETER for a
 *         setting that the device doesn't know.
 * @since 11
 */
OH_NN_ReturnCode OH_NNCompilation_AddExtensionConfig(
    OH_NNCompilation *compilation, const char *configName, const void *configValue, const size_t configValueSize);

/**
 * Compile the model. That may take minutes. Once a device has decided, nothing of the compilation can be changed; where
 * it could not, for it was not there or its daemon died, this may be called again.
 *
 * @return OH_NN_INVALID_PARAMETER for a model that is not finished, for a compilation that a device has decided about, and
 *         for one without a model or with several; OH_NN_FAILED where the device doesn't run the model or there is no such
 *         device, OH_NN_UNAVAILABLE_DEVICE where its daemon dies, OH_NN_CONNECTION_EXCEPTION where the connection to it is
 *         lost, and what the functions above say: OH_NN_OPERATION_FORBIDDEN, OH_NN_INVALID_PATH, OH_NN_INVALID_FILE,
 *         OH_NN_SAVE_CACHE_EXCEPTION.
 * @since 9
 */
OH_NN_ReturnCode OH_NNCompilation_Build(OH_NNCompilation *compilation);

/**
 * Destroy a compilation. Executors that were made from it go on.
 *
 * @param compilation  points to the compilation; null afterwards.
 * @since 9
 */
void OH_NNCompilation_Destroy(OH_NNCompilation **compilation);

/* ---- Executors */

/**
 * An executor of a compilation that has been built. The compilation may be destroyed at once.
 *
 * @return the executor, to be destroyed by OH_NNExecutor_Destroy; NULL for a compilation that has not been built, and
 *         where the daemon that has built it is gone.
 * @since 9
 */
OH_NNExecutor *OH_NNExecutor_Construct(OH_NNCompilation *compilation);

/**
 * The shape of an output in the last run; before one, the shape that the model declares, with -1 for what is not known.
 * After a run for which an output's tensor was too small, the shape that it needs.
 *
 * @param shape        points to a null pointer; gets the dimensions, which live as long as the executor.
 * @param shapeLength  gets their number.
 * @return OH_NN_INVALID_PARAMETER where `*shape` is not null, and for an index that there isn't.
 * @since 9
 */
OH_NN_ReturnCode OH_NNExecutor_GetOutputShape(
    OH_NNExecutor *executor, uint32_t outputIndex, int32_t **shape, uint32_t *shapeLength);

/**
 * Destroy an executor. Its runs end with OH_NN_FAILED, and their callbacks have returned when this returns, but for one
 * that calls this itself.
 *
 * @param executor  points to the executor; null afterwards.
 * @since 9
 */
void OH_NNExecutor_Destroy(OH_NNExecutor **executor);

/**
 * The number of inputs that a run takes.
 *
 * @since 11
 */
OH_NN_ReturnCode OH_NNExecutor_GetInputCount(const OH_NNExecutor *executor, size_t *inputCount);

/**
 * The number of outputs that a run gives.
 *
 * @since 11
 */
OH_NN_ReturnCode OH_NNExecutor_GetOutputCount(const OH_NNExecutor *executor, size_t *outputCount);

/**
 * A description of an input, as the model declares it; a scalar is {1}.
 *
 * @param index  the position in the inputs that OH_NNModel_SpecifyInputsAndOutputs was given.
 * @return the description, to be destroyed by OH_NNTensorDesc_Destroy; NULL for an index that there isn't.
 * @since 11
 */
NN_TensorDesc *OH_NNExecutor_CreateInputTensorDesc(const OH_NNExecutor *executor, size_t index);

/**
 * A description of an output, in the same way.
 *
 * @since 11
 */
NN_TensorDesc *OH_NNExecutor_CreateOutputTensorDesc(const OH_NNExecutor *executor, size_t index);

/**
 * The smallest and the largest dimensions of an input that the device takes.
 *
 * @param minInputDims  gets the smallest ones, which live as long as the executor, whatever it pointed to before.
 * @param maxInputDims  gets the largest ones, in the same way.
 * @param shapeLength   gets their number.
 * @return OH_NN_INVALID_PARAMETER for an index that there isn't, OH_NN_OPERATION_FORBIDDEN where the device doesn't say,
 *         OH_NN_UNAVAILABLE_DEVICE where its daemon is gone.
 * @since 11
 */
OH_NN_ReturnCode OH_NNExecutor_GetInputDimRange(
    const OH_NNExecutor *executor, size_t index, size_t **minInputDims, size_t **maxInputDims, size_t *shapeLength);

/**
 * Set what is called when a run that begins from now on with OH_NNExecutor_RunAsync has ended.
 *
 * It is called by a thread of the library's, once for each run, and may call any function here.
 *
 * @since 11
 */
OH_NN_ReturnCode OH_NNExecutor_SetOnRunDone(OH_NNExecutor *executor, NN_OnRunDone onRunDone);

/**
 * Set what is called when the daemon dies while a run is under way that begins from now on with OH_NNExecutor_RunAsync:
 * once for each such run, in place of what OH_NNExecutor_SetOnRunDone has set, in the same way. Without it that is called,
 * with OH_NN_UNAVAILABLE_DEVICE.
 *
 * @since 11
 */
OH_NN_ReturnCode OH_NNExecutor_SetOnServiceDied(OH_NNExecutor *executor, NN_OnServiceDied onServiceDied);

/**
 * Run the model, and wait for the end. The results are then in the memory of the outputs, their shapes in the
 * descriptions of these.
 *
 * @param inputTensor   a tensor for each input, of its data type and of a shape that fits.
 * @param outputTensor  a tensor for each output, with room for it.
 * @return OH_NN_INVALID_PARAMETER for tensors that don't fit, or an output that is too small (then
 *         OH_NNExecutor_GetOutputShape tells what it needs); OH_NN_NULL_PTR for a null pointer among the inputs, where
 *         OH_NNExecutor_GetInputDimRange has an answer; OH_NN_FAILED for a tensor whose description needs more than its
 *         memory has, OH_NN_TIMEOUT for a run that takes too long, OH_NN_UNAVAILABLE_DEVICE where the daemon dies or has
 *         died, or the device fails, OH_NN_CONNECTION_EXCEPTION where the connection to it is lost.
 * @since 11
 */
OH_NN_ReturnCode OH_NNExecutor_RunSync(
    OH_NNExecutor *executor,
    NN_Tensor *inputTensor[],
    size_t inputCount,
    NN_Tensor *outputTensor[],
    size_t outputCount);

/**
 * Begin a run, and return. If this returns OH_NN_SUCCESS, one callback follows: what OH_NNExecutor_SetOnRunDone or
 * OH_NNExecutor_SetOnServiceDied has set. Leave the tensors alone until then; they may be destroyed.
 *
 * @param timeout   milliseconds until the run ends with OH_NN_TIMEOUT, at least 1.
 * @param userData  is given to the callback, and not null.
 * @return as of OH_NNExecutor_RunSync for what is wrong before the run begins; OH_NN_OPERATION_FORBIDDEN where
 *         OH_NNExecutor_SetOnRunDone has set nothing.
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
