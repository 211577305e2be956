// Uses the library as a framework's delegate does: handles in objects, runs by threads, lambdas for what comes after.
// The delegate outlives main, so it ends after the library has closed its connections.
#include <neural_network_runtime/neural_network_runtime.h>
#include <neural_network_runtime/nnrt.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int32_t kNumbers = 256;
constexpr int kThreads = 4;
constexpr int kRuns = 50;

void check(OH_NN_ReturnCode code) {
    if (code != OH_NN_SUCCESS) throw std::runtime_error(std::to_string(code) + ": " + nnrt_last_error());
}

// A handle, which is destroyed with its object.
template <typename Type, auto destroy>
struct Destroy {
    void operator()(Type *handle) const { destroy(&handle); }
};
template <typename Type, auto destroy>
using Owned = std::unique_ptr<Type, Destroy<Type, destroy>>;

using Desc = Owned<NN_TensorDesc, OH_NNTensorDesc_Destroy>;
using Tensor = Owned<NN_Tensor, OH_NNTensor_Destroy>;
using QuantParam = Owned<NN_QuantParam, OH_NNQuantParam_Destroy>;
using Model = Owned<OH_NNModel, OH_NNModel_Destroy>;
using Compilation = Owned<OH_NNCompilation, OH_NNCompilation_Destroy>;
using Executor = Owned<OH_NNExecutor, OH_NNExecutor_Destroy>;

template <typename Handle>
Handle made(typename Handle::pointer pointer) {
    if (!pointer) throw std::runtime_error(std::string("NULL: ") + nnrt_last_error());
    return Handle(pointer);
}

class Delegate {
public:
    explicit Delegate(const OH_NNModel *model) {
        auto compilation = made<Compilation>(OH_NNCompilation_Construct(model));
        check(OH_NNCompilation_SetDevice(compilation.get(), 0));
        check(OH_NNCompilation_Build(compilation.get()));
        executor_ = made<Executor>(OH_NNExecutor_Construct(compilation.get()));
        check(OH_NNExecutor_SetOnRunDone(executor_.get(), [](void *data, OH_NN_ReturnCode code, void **, int32_t) {
            ended(data, code);
        }));
        check(OH_NNExecutor_SetOnServiceDied(executor_.get(), [](void *data) { ended(data, OH_NN_UNAVAILABLE_DEVICE); }));
    }

    Tensor input(size_t index) const {
        return tensor(made<Desc>(OH_NNExecutor_CreateInputTensorDesc(executor_.get(), index)));
    }
    Tensor output(size_t index) const {
        return tensor(made<Desc>(OH_NNExecutor_CreateOutputTensorDesc(executor_.get(), index)));
    }

    void run(std::vector<NN_Tensor *> inputs, std::vector<NN_Tensor *> outputs) {
        check(OH_NNExecutor_RunSync(executor_.get(), inputs.data(), inputs.size(), outputs.data(), outputs.size()));
    }

    // Begin a run, and have its code told once.
    void start(
        std::vector<NN_Tensor *> inputs, std::vector<NN_Tensor *> outputs, std::function<void(OH_NN_ReturnCode)> then) {
        auto kept = std::make_unique<std::function<void(OH_NN_ReturnCode)>>(std::move(then));
        check(OH_NNExecutor_RunAsync(
            executor_.get(), inputs.data(), inputs.size(), outputs.data(), outputs.size(), 60000, kept.get()));
        kept.release();
    }

private:
    static Tensor tensor(const Desc &desc) { return made<Tensor>(OH_NNTensor_Create(0, desc.get())); }

    static void ended(void *data, OH_NN_ReturnCode code) {
        std::unique_ptr<std::function<void(OH_NN_ReturnCode)>> then(
            static_cast<std::function<void(OH_NN_ReturnCode)> *>(data));
        (*then)(code);
    }

    Executor executor_;
};

Desc desc_of(OH_NN_DataType type, const std::vector<int32_t> &shape) {
    auto desc = made<Desc>(OH_NNTensorDesc_Create());
    check(OH_NNTensorDesc_SetDataType(desc.get(), type));
    check(OH_NNTensorDesc_SetShape(desc.get(), shape.data(), shape.size()));
    return desc;
}

Model sum_model() {
    auto model = made<Model>(OH_NNModel_Construct());
    for (int tensor = 0; tensor < 3; tensor++)
        check(OH_NNModel_AddTensorToModel(model.get(), desc_of(OH_NN_FLOAT32, {1, kNumbers}).get()));
    uint32_t inputs[] = {0, 1}, output = 2;
    const OH_NN_UInt32Array in{inputs, 2}, out{&output, 1}, none{nullptr, 0};
    check(OH_NNModel_AddOperation(model.get(), OH_NN_OPS_ADD, &none, &in, &out));
    check(OH_NNModel_SpecifyInputsAndOutputs(model.get(), &in, &out));
    check(OH_NNModel_Finish(model.get()));
    return model;
}

void fill(const Tensor &tensor, float first) {
    auto *numbers = static_cast<float *>(OH_NNTensor_GetDataBuffer(tensor.get()));
    for (int32_t at = 0; at < kNumbers; at++) numbers[at] = first + static_cast<float>(at);
}

bool holds(const Tensor &tensor, float first) {
    const auto *numbers = static_cast<const float *>(OH_NNTensor_GetDataBuffer(tensor.get()));
    for (int32_t at = 0; at < kNumbers; at++)
        if (numbers[at] != first + 2 * static_cast<float>(at)) return false;
    return true;
}

std::unique_ptr<Delegate> delegate;
std::vector<Tensor> left_to_the_end;

int work(int number) {
    const Tensor one = delegate->input(0), other = delegate->input(1), sum = delegate->output(0);
    int right = 0;
    for (int run = 0; run < kRuns; run++) {
        const auto first = static_cast<float>(number * 1000 + run);
        fill(one, first);
        fill(other, first);
        if (run % 2) {
            delegate->run({one.get(), other.get()}, {sum.get()});
            right += holds(sum, 2 * first);
            continue;
        }
        std::promise<OH_NN_ReturnCode> promise;
        delegate->start({one.get(), other.get()}, {sum.get()}, [&](OH_NN_ReturnCode code) { promise.set_value(code); });
        right += promise.get_future().get() == OH_NN_SUCCESS && holds(sum, 2 * first);
    }
    return right;
}

// A callback may destroy the executor whose run has ended.
bool ends_in_a_callback() {
    auto own = std::make_unique<Delegate>(sum_model().get());
    const Tensor one = own->input(0), other = own->input(1), sum = own->output(0);
    std::promise<OH_NN_ReturnCode> promise;
    own->start({one.get(), other.get()}, {sum.get()}, [&](OH_NN_ReturnCode code) {
        own.reset();
        promise.set_value(code);
    });
    return promise.get_future().get() == OH_NN_SUCCESS && !own;
}

}  // namespace

int main() {
    try {
        delegate = std::make_unique<Delegate>(sum_model().get());
        auto scale = made<QuantParam>(OH_NNQuantParam_Create());
        std::atomic<int> right{0};
        std::vector<std::thread> threads;
        for (int number = 0; number < kThreads; number++) threads.emplace_back([&, number] { right += work(number); });
        for (auto &thread : threads) thread.join();
        left_to_the_end.push_back(delegate->input(0));
        if (!ends_in_a_callback()) throw std::runtime_error("an executor can't be destroyed in a callback");
        std::printf("%d of %d\n", right.load(), kThreads * kRuns);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
