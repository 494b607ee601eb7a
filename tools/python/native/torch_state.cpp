#include "torch_state.hpp"

#include <dlfcn.h>
#include <nanobind/stl/string_view.h>

#include <array>
#include <cstdint>
#include <string_view>

namespace jitgemm::python {
namespace {

nb::object torch_attribute(const char* path) {
  nb::object found = nb::module_::import_("torch");
  for (std::string_view rest = path; !rest.empty() && !found.is_none();) {
    const std::size_t dot = rest.find('.');
    found = nb::getattr(found, nb::str(rest.data(), std::min(dot, rest.size())), nb::none());
    rest = dot == rest.npos ? "" : rest.substr(dot + 1);
  }
  return found;
}

/// c10's LocalDispatchKeySet of a thread: two sets of keys, as differences from the defaults. To read them takes two
/// nanoseconds; torch's Python functions, one for each kind of watcher, take hundreds.
struct LocalKeys {
  std::uint64_t included, excluded;
};
constexpr const char* local_keys_symbol = "_ZN3c104impl26raw_local_dispatch_key_setE";
constexpr const char* grad_mode_symbol = "_ZN3c108GradMode10is_enabledEv";

class Torch {
 public:
  static const Torch& instance() {
    static constinit const Torch* torch = nullptr;  // see imported.hpp for why not itself
    if (!torch) {
      auto* const made = new Torch;
      if (torch)
        delete made;
      else
        torch = made;
    }
    return *torch;
  }

  TorchState state() const {
    const LocalKeys* keys = local_keys();
    const bool forward_mode = forward_mode_ && in_forward_mode();
    if (!keys && !forward_mode) return {.gradients = nb::cast<bool>(is_grad_enabled_())};
    if (forward_mode || (keys->included & ~harmless_) != 0) return {.known = true};
    return {.watched = false,
            .autocast = (keys->excluded & autocast_) != 0,
            .known = true,
            .gradients = (keys->excluded & autograd_) == 0 && grad_mode_()};
  }

  void note_written(nb::handle tensor) const {
    if (of_many_)
      increment_version_(nb::make_tuple(tensor));
    else
      increment_version_(tensor);
  }

  nb::object tf32, precision;

 private:
  // What it does not find leaves library_ null: then all products go by torch's operators, which is slower and right.
  Torch() {
    precision = torch_attribute("get_float32_matmul_precision");
    tf32 = torch_attribute("_C._get_fp32_precision_getter");
    is_grad_enabled_ = torch_attribute("is_grad_enabled");
    increment_version_ = torch_attribute("_C._increment_version");
    of_many_ = !increment_version_.is_none() && takes_many(increment_version_);
    if (!of_many_) increment_version_ = torch_attribute("autograd.graph.increment_version");
    forward_mode_ = PyModule_GetDict(torch_attribute("autograd.forward_ad").ptr());
    const nb::object inference_mode = torch_attribute("inference_mode");
    void* library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
    if (!library || !forward_mode_ || !dlsym(library, local_keys_symbol)) return;
    grad_mode_ = reinterpret_cast<bool (*)()>(dlsym(library, grad_mode_symbol));
    const std::uint64_t ignored = keys_of({"ADInplaceOrView"});
    autograd_ = keys_of({"AutogradFunctionality"});
    autocast_ = keys_of({"AutocastCPU", "AutocastCUDA"});
    if (!grad_mode_ || !ignored || !autograd_ || !autocast_) return;
    harmless_ = ignored;
    library_ = library;
    // That the words are where they were: inference mode changes both.
    const nb::object mode = inference_mode();
    mode.attr("__enter__")();
    const LocalKeys seen = *local_keys();
    mode.attr("__exit__")(nb::none(), nb::none(), nb::none());
    if (!(seen.included & ignored) || !(seen.excluded & autograd_)) library_ = nullptr;
  }

  /// Newer torch's takes tensors, and costs half of what the public function does.
  static bool takes_many(const nb::object& function) {
    try {
      function(nb::make_tuple());
      return true;
    } catch (nb::python_error&) {
      return false;
    }
  }

  static std::uint64_t keys_of(std::initializer_list<const char*> names) {
    std::uint64_t keys = 0;
    const nb::object key_set = torch_attribute("_C.DispatchKeySet"), kinds = torch_attribute("_C.DispatchKey");
    for (const char* name : names) {
      const nb::object kind = nb::getattr(kinds, name, nb::none());
      if (kind.is_none() || !nb::hasattr(key_set, "raw_repr")) return 0;
      keys |= nb::cast<std::uint64_t>(key_set(kind).attr("raw_repr")());
    }
    return keys;
  }

  const LocalKeys* local_keys() const {
    thread_local const LocalKeys* keys = nullptr;  // the symbol is thread_local too
    if (!keys && library_) keys = static_cast<const LocalKeys*>(dlsym(library_, local_keys_symbol));
    return library_ ? keys : nullptr;
  }

  /// Inside torch.autograd.forward_ad.dual_level(), where tensors have tangents and look like any other.
  bool in_forward_mode() const {
    static PyObject* const name = PyUnicode_InternFromString("_current_level");
    PyObject* const level = PyDict_GetItemWithError(forward_mode_, name);
    return !level || PyLong_AsLong(level) >= 0;
  }

  nb::object is_grad_enabled_, increment_version_;
  bool of_many_ = false;
  void* library_ = nullptr;
  bool (*grad_mode_)() = nullptr;
  PyObject* forward_mode_ = nullptr;  // the module's names; held for ever
  std::uint64_t harmless_ = 0, autograd_ = 0, autocast_ = 0;
};

}  // namespace

TorchState torch_state() { return Torch::instance().state(); }

bool torch_prefers_tf32() {
  const Torch& torch = Torch::instance();
  // get_float32_matmul_precision() refuses to answer programs that use torch's newer settings.
  if (!torch.tf32.is_none()) return nb::cast<std::string_view>(torch.tf32("cuda", "matmul")) == "tf32";
  return nb::cast<std::string_view>(torch.precision()) != "highest";
}

void note_written(nb::handle tensor) { Torch::instance().note_written(tensor); }

}  // namespace jitgemm::python
