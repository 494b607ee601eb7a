#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "collected.hpp"
#include "core/epilogue_function.hpp"
#include "jitgemm/error.hpp"
#include "settings.hpp"
#include "streams.hpp"
#include "without_lock.hpp"

namespace jitgemm::python {
namespace {

using namespace nb::literals;

/// A Python callable that may be destroyed without Python's lock.
std::shared_ptr<nb::object> shared(nb::handle callable) {
  return {new nb::object(nb::borrow(callable)), [](nb::object* object) {
            const WithLock lock;
            delete object;
          }};
}

int number_after_colon(const std::string& device) {
  try {
    std::size_t end = 0;
    const int number = std::stoi(device.substr(5), &end);
    if (number >= 0 && 5 + end == device.size()) return number;
  } catch (const std::logic_error&) {
  }
  throw nb::value_error(("device is \"" + device + "\"; name a device as \"cuda:0\"").c_str());
}

Tuning tuning_of(nb::handle value) {
  const std::string text = nb::cast<std::string>(value);
  if (text == "off") return Tuning::off;
  if (text == "cached") return Tuning::cached;
  if (text == "on") return Tuning::on;
  throw nb::value_error(("tuning is \"" + text + "\"; choose one of off, cached, on").c_str());
}

nb::object address_of(const void* pointer) {
  return pointer ? nb::cast(reinterpret_cast<std::uintptr_t>(pointer)) : nb::none();
}

/// What each operand of the caller's epilogue is in this call, by name; None without one.
nb::object epilogue_values(const Problem& problem, const Operands& operands) {
  if (!has_epilogue_function(problem)) return nb::none();
  nb::dict values;
  for (std::size_t i = 0; i < operands.epilogue_count; ++i) {
    const EpilogueOperand& operand = epilogue_function(problem).operands[i];
    const EpilogueValue& value = operands.epilogue[i];
    const nb::str name(operand.name.data(), operand.name.size());
    if (operand.shape == OperandShape::scalar) {
      values[name] = value.scalar;
      continue;
    }
    const OperandMatrix lies = matrix_of(operand, value, problem);
    values[name] = nb::make_tuple(address_of(operand.output ? value.out : value.in), lies.ld, lies.stride);
  }
  return values;
}

std::function<bool(const Problem&, const Operands&, Stream)> asking(const std::shared_ptr<nb::object>& fallback) {
  return [fallback](const Problem& problem, const Operands& operands, Stream stream) {
    const WithLock lock;
    const nb::object function = *fallback;
    if (!function.is_valid()) return false;  // the garbage collector has it
    nb::dict pointers;
    const auto add = [&](const char* operand, const void* pointer) { pointers[operand] = address_of(pointer); };
    add("a", operands.a);
    add("b", operands.b);
    add("c", operands.c);
    add("d", operands.d);
    add("bias", operands.bias);
    add("scale_a", operands.scale_a);
    add("scale_b", operands.scale_b);
    add("scale_d", operands.scale_d);
    add("scales_d", operands.scales_d);
    add("group_rows", operands.group_rows);
    pointers["epilogue"] = epilogue_values(problem, operands);
    const nb::object served = function(problem, pointers, reinterpret_cast<std::uintptr_t>(stream));
    if (!PyBool_Check(served.ptr()))
      throw nb::type_error(("fallback returned a " + python_name(served.type()) +
                            ", which is no bool; return True where it has served the call, else False")
                               .c_str());
    return served.is(nb::handle(Py_True));
  };
}

/// A keyword of Context and what it sets.
struct Option {
  const char* name;
  void (*set)(ContextOptions& options, nb::handle value);
};

template <auto Member>
void set(ContextOptions& options, nb::handle value) {
  using Value = std::remove_reference_t<decltype(options.*Member)>;
  options.*Member = nb::cast<Value>(value);
}
template <auto Member>
void set_constraint(ContextOptions& options, nb::handle value) {
  using Value = std::remove_reference_t<decltype(options.constraints.*Member)>;
  options.constraints.*Member = nb::cast<Value>(value);
}

constexpr Option context_options[] = {
    {"architecture", &set<&ContextOptions::architecture>},
    {"tuning", [](ContextOptions& options, nb::handle value) { options.tuning = tuning_of(value); }},
    {"tuning_budget_seconds", &set<&ContextOptions::tuning_budget_seconds>},
    {"tuning_total_budget_seconds", &set<&ContextOptions::tuning_total_budget_seconds>},
    {"batch_invariant", &set_constraint<&Constraints::batch_invariant>},
    {"workspace_limit", &set_constraint<&Constraints::workspace_bytes>},
    {"sm_limit", &set_constraint<&Constraints::sms>},
    {"workspace_bound_bytes", &set<&ContextOptions::workspace_bound_bytes>},
    {"bucket_m", &set<&ContextOptions::bucket_m>},
    {"dependent_launch", &set<&ContextOptions::dependent_launch>},
    {"compile_in_background", &set<&ContextOptions::compile_in_background>},
    {"at_hand_within", &set<&ContextOptions::at_hand_within>},
    {"fallback", [](ContextOptions&, nb::handle) {}},  // of the object, which shows it to the garbage collector
    {"cache_dir",
     [](ContextOptions& options, nb::handle value) {
       options.cache_dir = nb::cast<std::string>(nb::module_::import_("os").attr("fsdecode")(value));
     }},
    {"emulator_sm_count", &set<&ContextOptions::emulator_sm_count>},
    {"emulator_seed", &set<&ContextOptions::emulator_seed>},
};

void set_option(ContextOptions& options, const std::string& name, nb::handle value) {
  std::string names;
  for (const Option& option : context_options) {
    if (name == option.name) {
      if (value.is_none()) return;  // the default
      try {
        return option.set(options, value);
      } catch (const std::bad_cast&) {
        throw nb::type_error(
            (name + " is " + nb::cast<std::string>(nb::repr(value)) + ", which that option of Context does not take")
                .c_str());
      }
    }
    names += (names.empty() ? "" : ", ") + std::string(option.name);
  }
  throw nb::type_error(("Context has no option " + name + "; it has " + names).c_str());
}

ContextOptions options_of(const std::string& device, const nb::kwargs& fields) {
  ContextOptions options;
  if (device == "cuda") {
    options.device = Device::cuda;
  } else if (device.starts_with("cuda:")) {
    options.device = Device::cuda;
    options.cuda_device = number_after_colon(device);
  } else if (device == "cpu") {
    options.device = Device::emulator;
  } else if (device == "compile_only") {
    options.device = Device::compile_only;
  } else {
    throw nb::value_error(("device is \"" + device + "\"; choose one of cuda, cuda:N, cpu, compile_only").c_str());
  }
  for (const auto [key, value] : fields) set_option(options, nb::cast<std::string>(key), value);
  return options;
}

std::optional<KernelConfig> config_of(const std::optional<std::string>& text) {
  return text ? std::optional(parse_kernel_config(*text)) : std::nullopt;
}

nb::dict as_dict(const std::vector<KernelText>& texts, bool binary) {
  nb::dict result;
  for (const KernelText& kernel : texts) {
    const nb::object text = binary ? nb::object(nb::bytes(kernel.text.data(), kernel.text.size()))
                                   : nb::object(nb::str(kernel.text.data(), kernel.text.size()));
    result[kernel.name.c_str()] = text;
  }
  return result;
}

}  // namespace

std::function<void(int, int)> progress_of(nb::handle progress) {
  if (progress.is_none() || progress.is(nb::handle(Py_False))) return [](int, int) { check_signals(); };
  const nb::object report = progress.is(nb::handle(Py_True))
                                ? nb::module_::import_("jitgemm._progress").attr("Bar")("tuning")
                                : nb::borrow(progress);
  if (!PyCallable_Check(report.ptr()))
    throw nb::type_error("progress is neither True nor a function of (done, total); pass one of them");
  return [callable = shared(report), last = std::pair(-1, -1)](int done, int total) mutable {
    const WithLock lock;
    const std::pair state(done, total);
    if (std::exchange(last, state) != state) (*callable)(done, total);
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  };
}

std::string source_of(ContextHandle& context, const Problem& problem, const std::optional<KernelConfig>& config) {
  const WithoutLock unlock;
  return config ? context->source(problem, *config) : context->source(problem);
}

Plan plan_of(ContextHandle& context, const Problem& problem, const std::optional<KernelConfig>& config, bool compiled) {
  const WithoutLock unlock;
  if (compiled) return config ? context->compile(problem, *config) : context->compile(problem);
  return config ? context->plan(problem, *config) : context->plan(problem);
}

TuneReport tune(ContextHandle& context, const Problem& problem, nb::handle progress) {
  const std::function<void(int, int)> report = progress_of(progress);
  const WithoutLock unlock;
  return context->tune(problem, report);
}

void bind_context(nb::module_& module) {
  using Text = std::optional<std::string>;
  nb::class_<ContextHandle>(
      module, "Context",
      "One device's kernels, tuning results and workspaces. Threads may share one.\n\n"
      "device: \"cuda\" (torch's current device, else the first), \"cuda:N\", \"cpu\" (the emulator) or\n"
      "\"compile_only\", for `architecture`. Options, with their defaults in C++'s ContextOptions: architecture,\n"
      "tuning (\"off\", \"cached\", \"on\"), tuning_budget_seconds, tuning_total_budget_seconds, batch_invariant,\n"
      "workspace_limit (bytes a call), sm_limit, workspace_bound_bytes, bucket_m, dependent_launch,\n"
      "compile_in_background, at_hand_within, fallback, cache_dir, emulator_sm_count, emulator_seed. CUDA graphs that\n"
      "were captured with a Context need it for as long as they are launched.\n\n"
      "fallback: a function of (problem, pointers, stream) that may compute a call by other means, on the stream, and\n"
      "returns True then. pointers has the addresses of a, b, c, d, bias, scale_a, scale_b, scale_d, scales_d and\n"
      "group_rows (offs or counts), None of those that are not there, and epilogue: None, or of an epilogue of one's\n"
      "own {name: number, or (address, ld, stride)}, in elements. str(problem) says what they mean; of a problem with "
      "a\n"
      "word that it does not know, a fallback returns False.",
      nb::is_weak_referenceable(), nb::type_slots(collected_slots<ContextHandle>))
      .def(
          "__init__",
          [](ContextHandle* self, const std::string& device, const nb::kwargs& options) {
            ContextOptions given = options_of(device, options);
            std::shared_ptr<nb::object> fallback;
            if (const nb::object function = options.get("fallback", nb::none()); !function.is_none()) {
              fallback = shared(function);
              given.fallback = asking(fallback);
            }
            new (self) ContextHandle(std::move(given), std::move(fallback));
          },
          "device"_a = "cuda", "options"_a,
          nb::sig("def __init__(self, device: str = \"cuda\", **options: object) -> None"))
      .def(
          "plan",
          [](ContextHandle& self, const Problem& problem, const Text& config) {
            return plan_of(self, problem, config_of(config), false);
          },
          "problem"_a, "config"_a = nb::none(), "What would run now. Measures and compiles nothing.")
      .def(
          "compile",
          [](ContextHandle& self, const Problem& problem, const Text& config) {
            return plan_of(self, problem, config_of(config), true);
          },
          "problem"_a, "config"_a = nb::none(), "The plan once its kernel is compiled.")
      .def(
          "source",
          [](ContextHandle& self, const Problem& problem, const Text& config) {
            return source_of(self, problem, config_of(config));
          },
          "problem"_a, "config"_a = nb::none(), "The generated source of the GEMM kernel.")
      .def(
          "sources",
          [](ContextHandle& self, const Problem& problem, const Text& config) {
            const auto texts = [&] {
              const WithoutLock unlock;
              return config ? self->sources(problem, parse_kernel_config(*config)) : self->sources(problem);
            }();
            return as_dict(texts, false);
          },
          "problem"_a, "config"_a = nb::none(),
          nb::sig("def sources(self, problem: Problem, config: str | None = None) -> dict[str, str]"),
          "By name, those of all kernels that run for it, in the order of their launches.")
      .def(
          "binaries",
          [](ContextHandle& self, const Problem& problem, const Text& config) {
            const auto texts = [&] {
              const WithoutLock unlock;
              return config ? self->binaries(problem, parse_kernel_config(*config)) : self->binaries(problem);
            }();
            return as_dict(texts, true);
          },
          "problem"_a, "config"_a = nb::none(),
          nb::sig("def binaries(self, problem: Problem, config: str | None = None) -> dict[str, bytes]"),
          "The same compiled: cubins, or shared objects on the emulator.")
      .def(
          "warm", [](ContextHandle& self, const Problem& problem) { self->warm(problem); }, "problem"_a,
          nb::call_guard<WithoutLock>(), "Compiles into the cache on disk what would run.")
      .def(
          "tune",
          [](ContextHandle& self, nb::handle problem, nb::handle progress) {
            const Problem* given = nullptr;
            if (!nb::try_cast(problem, given) || !given)
              throw nb::type_error("problem is no jitgemm.Problem; pass one, Problem(\"64x96x128\") say");
            return tune(self, *given, progress);
          },
          nb::arg("problem").none(), "progress"_a = nb::none(),
          nb::sig("def tune(self, problem: Problem, progress: bool | collections.abc.Callable[[int, int], None] | "
                  "None = None) -> "
                  "TuneReport"),
          "Measures now, and stores the winner. progress: True shows a bar, a function gets (done, total).")
      .def(
          "candidates", [](ContextHandle& self, const Problem& problem) { return self->candidates(problem); },
          "problem"_a, nb::call_guard<WithoutLock>(), "The plans that are worth a measurement, best predicted first.")
      .def(
          "workspace_size",
          [](ContextHandle& self, const Problem& problem, const Text& config) {
            return config ? self->workspace_size(problem, parse_kernel_config(*config)) : self->workspace_size(problem);
          },
          "problem"_a, "config"_a = nb::none(), nb::call_guard<WithoutLock>(),
          "Bytes of device memory that a call needs beside its arrays; the context brings them.")
      .def(
          "trim", [](ContextHandle& self) { self->trim(); }, nb::call_guard<WithoutLock>(),
          "Frees workspaces that nothing uses, and waits for the device.")
      .def(
          "check",
          [](ContextHandle& self, nb::handle stream) {
            const Stream waited = stream.is_none() ? nullptr : stream_of(stream);
            const WithoutLock unlock;
            self->check(waited);
          },
          "stream"_a = nb::none(), nb::sig("def check(self, stream: object = None) -> None"),
          "Waits for the stream. Raises where offs or counts of a grouped_mm() since the last check went backwards or "
          "out of range, or a matrix of its MatrixPointers had no memory.\n\n"
          "Of arrays on the CPU, check default_context(\"cpu\"), the emulator's, or the Context(\"cpu\") that was\n"
          "given: without a GPU default_context() itself raises \"no CUDA driver\".")
      .def_prop_ro("device", [](ContextHandle& self) { return self->device(); })
      .def_prop_ro("counters", [](ContextHandle& self) { return self->counters(); });
  module.def("devices", &cuda_devices, nb::call_guard<WithoutLock>(),
             "The visible CUDA devices; empty without a driver.");
  module.def("set_default_context", &set_default_context, nb::arg("context").none(),
             nb::sig("def set_default_context(context: Context) -> None"),
             "Makes a Context the one that serves arrays on its device where no other is named.");
  module.def(
      "default_context",
      [](const std::string& device) -> ContextHandle& {
        const ContextOptions options = options_of(device, {});
        if (options.device == Device::compile_only)
          throw nb::value_error("compile_only has no default context; make a Context with an architecture");
        const bool cuda = options.device == Device::cuda;
        return default_context({cuda, cuda ? std::max(0, options.cuda_device) : 0});
      },
      "device"_a = "cuda", nb::rv_policy::reference,
      "The Context that serves arrays on a device when no other is named.\n\n"
      "device: \"cuda\" (the first), \"cuda:N\" or \"cpu\", the emulator, which serves arrays on the CPU. Without a\n"
      "GPU the others raise RuntimeError, \"no CUDA driver\" say; default_context(\"cpu\") is the one to use there.");
}

}  // namespace jitgemm::python
