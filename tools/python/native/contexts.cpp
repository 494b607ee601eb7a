#include "contexts.hpp"
#include "without_lock.hpp"

#include <map>
#include <mutex>

namespace jitgemm::python {

int current_cuda_device() {
  const nb::object torch = nb::module_::import_("sys").attr("modules").attr("get")("torch");
  if (torch.is_none() || !nb::cast<bool>(torch.attr("cuda").attr("is_available")())) return 0;
  return nb::cast<int>(torch.attr("cuda").attr("current_device")());
}

void check_signals() {
  const WithLock lock;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

ContextHandle::ContextHandle(ContextOptions options, std::shared_ptr<nb::object> fallback)
    : fallback_(std::move(fallback)), device_(options.device) {
  options.progress = [](const Problem&, int, int) { check_signals(); };
  if (device_ == Device::cuda && options.cuda_device < 0) options.cuda_device = current_cuda_device();
  number_ = options.cuda_device;
  const WithoutLock unlock;
  context_ = std::make_unique<Context>(options);
}

ContextHandle::~ContextHandle() {
  const WithoutLock unlock;
  try {
    if (device_ == Device::cuda) context_->trim();
  } catch (...) {  // the device's own failure, which its next call reports
  }
  context_.reset();
}

void ContextHandle::require(const Place& place) const {
  if (device_ == Device::compile_only ||
      (place.cuda ? device_ == Device::cuda && number_ == place.number : device_ == Device::emulator))
    return;
  throw nb::value_error(("the context is of " +
                         (device_ == Device::cuda ? to_string(Place{true, number_}) : std::string("the emulator")) +
                         ", and the arrays are on " + to_string(place) + "; move one of them")
                            .c_str());
}

namespace {

/// By the CUDA device's number, the emulator's at -1. Under Python's lock; never destroyed, since captured graphs and
/// other threads may outlive the interpreter.
std::map<int, ContextHandle*>& default_contexts() {
  static auto& contexts = *new std::map<int, ContextHandle*>;
  return contexts;
}

}  // namespace

ContextHandle& default_context(const Place& place) {
  std::map<int, ContextHandle*>& contexts = default_contexts();
  const int key = place.cuda ? place.number : -1;
  if (const auto found = contexts.find(key); found != contexts.end()) return *found->second;
  ContextOptions options;
  options.device = place.cuda ? Device::cuda : Device::emulator;
  if (place.cuda) options.cuda_device = place.number;
  auto context = std::make_unique<ContextHandle>(options);  // other threads run meanwhile, and may have made one too
  const auto [entry, added] = contexts.try_emplace(key, context.get());
  if (added) context.release();
  if (added && !place.cuda &&
      PyErr_WarnEx(PyExc_UserWarning,
                   "jitgemm multiplies arrays on the CPU by its GPU emulator: right, and slow; this is said once",
                   1) != 0)
    throw nb::python_error();
  return *entry->second;
}

ContextHandle& context_for(nb::handle context, const Place& place) {
  if (context.is_none()) return default_context(place);
  ContextHandle* handle = nullptr;
  if (!nb::try_cast<ContextHandle*>(context, handle) || !handle)
    throw nb::type_error("context is no jitgemm.Context; leave it out for the one of the arrays' device");
  handle->require(place);
  return *handle;
}

void set_default_context(nb::handle context) {
  ContextHandle* handle = nullptr;
  if (!nb::try_cast<ContextHandle*>(context, handle) || !handle) throw nb::type_error("context is no jitgemm.Context");
  if (handle->device() == Device::compile_only)
    throw nb::value_error("compile_only serves no arrays; make a Context of a device the default one");
  context.inc_ref();  // for ever: calls in progress may use the one before, too
  default_contexts()[handle->device() == Device::cuda ? handle->number() : -1] = handle;
}

}  // namespace jitgemm::python
