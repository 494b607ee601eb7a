#include "tensor_parallel.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <chrono>
#include <thread>

#include "backend/backend.hpp"
#include "context_internals.hpp"
#include "core/problem.hpp"
#include "jitgemm/error.hpp"
#include "parallel/nccl_api.hpp"
#include "torch_way.hpp"
#include "without_lock.hpp"

namespace jitgemm::python {
namespace {

struct ExchangeName {
  Exchange exchange;
  const char* name;
};
constexpr ExchangeName exchange_names[] = {
    {Exchange::all_gather_a, "all_gather_matmul"},
    {Exchange::reduce_scatter_d, "matmul_reduce_scatter"},
    {Exchange::all_reduce_d, "matmul_all_reduce"},
};

bool is_address(nb::handle value) {
  return !PyBool_Check(value.ptr()) && PyIndex_Check(value.ptr()) && !nb::hasattr(value, "__dlpack__");
}

NcclCommunicator communicator_at(nb::handle address) {
  constexpr std::uintptr_t first_page = 4096;  // where no object is
  const nb::object integer = nb::steal(PyNumber_Index(address.ptr()));
  if (!integer.is_valid()) throw nb::python_error();
  std::uintptr_t value = 0;
  if (!nb::try_cast(integer, value) || (value > 0 && value < first_page)) {
    throw nb::value_error(("communicator is " + nb::cast<std::string>(nb::str(integer)) +
                           ", which is no address; pass an ncclComm_t, or a process group that this rank is in")
                              .c_str());
  }
  return reinterpret_cast<NcclCommunicator>(value);
}

/// Of the process group, once its communicator is there.
NcclCommunicator communicator_of_group(nb::handle group, const ContextHandle* context) {
  const nb::module_ groups = nb::module_::import_("jitgemm._process_groups");
  nb::object device = nb::none();
  if (context)
    device = nb::cast(context->device() == Device::cuda ? "cuda:" + std::to_string(context->number()) : "cpu");
  return communicator_at(groups.attr("communicator_of")(group, device));
}

/// The CUDA device; the first where NCCL does not tell, which is told when the communicator is used.
int device_of(NcclCommunicator communicator) {
  int device = 0;
  const WithoutLock unlock;
  const nccl::NcclApi& api = nccl::nccl();
  if (!communicator || api.comm_cu_device(communicator, &device) != nccl::Result::success) return 0;
  return device;
}

ContextHandle* context_given(nb::handle context) {
  ContextHandle* handle = nullptr;
  if (context.is_none()) return nullptr;
  if (!nb::try_cast(context, handle) || !handle)
    throw nb::type_error("context is no jitgemm.Context; leave it out for the one of the communicator's device");
  if (handle->device() == Device::compile_only)
    throw nb::value_error("compile_only multiplies nothing; pass a Context of the communicator's device");
  return handle;
}

void check_aligned(const char* name, const void* pointer, const Matrix& matrix) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (address % std::uintptr_t(matrix.alignment) == 0) return;
  throw nb::value_error((std::string(name) + " begins at no multiple of " + std::to_string(matrix.alignment) +
                         " bytes, by which all ranks choose; pass a copy of it, or pad its rows")
                            .c_str());
}

/// Before other ranks begin to wait for this one. What is wrong with the problem itself, they are told.
void check_aligned(const Problem& asked, const Operands& operands) {
  Problem problem;
  try {
    problem = normalise(asked);
  } catch (const Error&) {
    return;
  }
  check_aligned("a", operands.a, problem.a);
  check_aligned("b", operands.b, problem.b);
  if (operands.c) check_aligned("c", operands.c, problem.c);
  check_aligned("out", operands.d, problem.d);
}

}  // namespace

Exchange exchange_named(nb::handle name) {
  std::string names;
  std::string_view text;
  const bool is_text = nb::try_cast(name, text);
  for (const auto& [exchange, known] : exchange_names) {
    if (is_text && text == known) return exchange;
    names += (names.empty() ? "" : ", ") + std::string(known);
  }
  const std::string shown = nb::cast<std::string>(nb::repr(name)).substr(0, 80);
  const std::string message = "exchange is " + shown + "; choose one of " + names;
  if (is_text) throw nb::value_error(message.c_str());
  throw nb::type_error(message.c_str());
}

const char* name_of(Exchange exchange) {
  for (const auto& [known, name] : exchange_names)
    if (known == exchange) return name;
  return "unknown";
}

TensorParallelHandle::TensorParallelHandle(nb::handle communicator, nb::handle context,
                                           const TensorParallelOptions& options)
    : communicator_(nb::borrow(communicator)), context_(context_given(context)) {
  const NcclCommunicator nccl_communicator =
      is_address(communicator) ? communicator_at(communicator) : communicator_of_group(communicator, context_);
  if (!context_) {
    const bool cuda = !cuda_devices().empty();
    context_ = &default_context({cuda, cuda ? device_of(nccl_communicator) : 0});
  }
  context_object_ = nb::cast(context_, nb::rv_policy::reference);
  const WithoutLock unlock;
  parallel_ = std::make_shared<TensorParallel>(**context_, nccl_communicator, options);
  rank_ = parallel_->rank();
  ranks_ = parallel_->ranks();
}

TensorParallelHandle::~TensorParallelHandle() { close(); }

void TensorParallelHandle::close() {
  std::shared_ptr<TensorParallel> last = std::move(parallel_);
  parallel_.reset();
  const WithoutLock unlock;
  last.reset();
}

template <typename Function>
auto TensorParallelHandle::unlocked(Function function) {
  if (!parallel_) throw std::runtime_error("this TensorParallel is closed; make another one");
  std::shared_ptr<TensorParallel> parallel = parallel_;
  const WithoutLock unlock;
  const std::shared_ptr<TensorParallel> held = std::move(parallel);  // may be the last one, which ends without the lock
  return function(*held);
}

void TensorParallelHandle::wait(TensorParallel& parallel, Stream stream) {
  Backend& backend = ContextInternals::backend(**context_);
  if (backend.capture_status(stream) == CaptureStatus::capturing) return;
  while (!backend.is_idle(stream)) {
    parallel.check();  // a rank that is gone, for which the stream waits for ever
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

MatmulArguments TensorParallelHandle::own_arguments(const MatmulArguments& arguments, nb::object& cast) const {
  MatmulArguments own = past_torch(arguments, "a product across ranks", cast);
  own.context = context_object_;
  return own;
}

nb::object TensorParallelHandle::multiply(const MatmulArguments& arguments, Exchange exchange) {
  if (closed()) unlocked([](TensorParallel&) {});
  nb::object cast;
  const MatmulArguments it = own_arguments(arguments, cast);
  const Shards shards{exchange, ranks_};
  const PreparedMatmul prepared(it, PreparedMatmul::Purpose::run, &shards);
  check_aligned(prepared.product().problem, prepared.operands());
  // The emulator's ranks may be threads of one process, whose products would wait for each other on one stream.
  const bool own_stream = it.stream.is_none() && !prepared.place().cuda;
  const Stream stream = own_stream ? reinterpret_cast<Stream>(this) : prepared.stream();
  unlocked([&](TensorParallel& parallel) {
    parallel.gemm(prepared.product().problem, exchange, prepared.operands(), stream);
    if (prepared.waits()) wait(parallel, stream);
  });
  return prepared.result();
}

Problem TensorParallelHandle::problem_of(const MatmulArguments& arguments, Exchange exchange) const {
  Problem* problem = nullptr;
  if (PyUnicode_Check(arguments.a.ptr())) return parse_problem(nb::cast<std::string>(arguments.a));
  if (nb::try_cast(arguments.a, problem) && problem) return *problem;
  if (arguments.b.is_none()) throw nb::type_error("b is missing; pass this rank's two arrays, or a Problem");
  nb::object cast;
  const MatmulArguments it = own_arguments(arguments, cast);
  const Shards shards{exchange, ranks_};
  return PreparedMatmul(it, PreparedMatmul::Purpose::describe, &shards).product().problem;
}

void TensorParallelHandle::prepare(const MatmulArguments& arguments, Exchange exchange) {
  const Problem problem = problem_of(arguments, exchange);
  unlocked([&](TensorParallel& parallel) { parallel.prepare(problem, exchange); });
}

ParallelPlan TensorParallelHandle::plan(const MatmulArguments& arguments, Exchange exchange) {
  const Problem problem = problem_of(arguments, exchange);
  return unlocked([&](TensorParallel& parallel) { return parallel.plan(problem, exchange); });
}

void TensorParallelHandle::check() {
  unlocked([](TensorParallel& parallel) { parallel.check(); });
}

void TensorParallelHandle::abort() {
  if (!closed()) unlocked([](TensorParallel& parallel) { parallel.abort(); });
}

}  // namespace jitgemm::python
