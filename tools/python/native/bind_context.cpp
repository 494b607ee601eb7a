#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
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

std::function<bool(const Problem&, const Operands&, Stream)> fallback_of(nb::handle function) {
  return [callable = shared(function)](const Problem& problem, const Operands& operands, Stream stream) {
    const WithLock lock;
    nb::dict pointers;
    const auto add = [&](const char* operand, const void* pointer) {
      pointers[operand] = pointer ? nb::cast(reinterpret_cast<std::uintptr_t>(pointer)) : nb::none();
    };
    add("a", operands.a);
    add("b", operands.b);
    add("c", operands.c);
    add("d", operands.d);
    add("bias", operands.bias);
    add("scale_a", operands.scale_a);
    add("scale_b", operands.scale_b);
    add("scale_d", operands.scale_d);
    return nb::cast<bool>((*callable)(problem, pointers, reinterpret_cast<std::uintptr_t>(stream)));
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
    {"fallback", [](ContextOptions& options, nb::handle value) { options.fallback = fallback_of(value); }},
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

std::string size_word(const char* name, nb::handle size) {
  const nb::object integer = nb::steal(PyNumber_Index(size.ptr()));
  if (!integer.is_valid()) {
    PyErr_Clear();
    throw nb::type_error((std::string(name) + " is no integer; pass m, n and k, or one text").c_str());
  }
  return std::string(name) + "=" + nb::cast<std::string>(nb::str(nb::handle(integer))) + " ";
}

/// A field as Problem's text has it; types also by the names of NumPy and torch.
std::string field_word(const std::string& name, nb::handle value) {
  if (value.is_none()) return "";
  std::string text;
  const bool is_type = name == "a" || name == "b" || name == "c" || name == "d";
  if (is_type && !(PyUnicode_Check(value.ptr()) && nb::cast<std::string>(value) == "automatic"))
    text = to_string(data_type_of(value, name.c_str()));
  else
    text = nb::cast<std::string>(nb::str(value));
  if (name == "activation" && text == "gelu") text = "gelu_erf";
  if (text.empty() || text.find_first_of(" =\t\n\r\f\v") != std::string::npos)
    throw nb::value_error((name + " is not one word; see what str() of a Problem shows").c_str());
  return " " + name + "=" + text;
}

void bind_problem(nb::module_& module) {
  nb::class_<Problem>(
      module, "Problem",
      "What is computed: D = activation(alpha * A * B + beta * C + bias), without the arrays.\n\n"
      "Problem(\"m=64 n=96 k=128 a=bf16 bias=along_n\"), or Problem(64, 96, 128, a=\"bf16\",\n"
      "bias=\"along_n\"). Fields are those that str() shows; `layout_b=\"column_major\"` says that B is\n"
      "stored by columns, as torch.nn.Linear's weight is. ValueError for what cannot be read; whether\n"
      "kernels can serve it is seen when it is used.",
      nb::is_weak_referenceable())
      .def(
          "__init__",
          [](Problem* self, nb::handle text_or_m, nb::handle n, nb::handle k, const nb::kwargs& fields) {
            std::string text;
            if (PyUnicode_Check(text_or_m.ptr())) {
              if (!n.is_none() || !k.is_none()) throw nb::type_error("a text says all sizes; pass either it or three");
              text = nb::cast<std::string>(text_or_m);
            } else {
              text = size_word("m", text_or_m) + size_word("n", n) + size_word("k", k);
            }
            for (const auto [key, value] : fields) text += field_word(nb::cast<std::string>(key), value);
            new (self) Problem(parse_problem(text));
          },
          "text_or_m"_a, "n"_a = nb::none(), "k"_a = nb::none(), "fields"_a,
          nb::sig("def __init__(self, text_or_m: str | int, n: int | None = None, k: int | None = None, **fields: "
                  "object) -> None"))
      .def_ro("m", &Problem::m)
      .def_ro("n", &Problem::n)
      .def_ro("k", &Problem::k)
      .def_ro("batch", &Problem::batch)
      .def("__str__", [](const Problem& problem) { return to_string(problem); })
      .def("__repr__", [](const Problem& problem) { return "jitgemm.Problem(\"" + to_string(problem) + "\")"; })
      .def(
          "__eq__",
          [](const Problem& left, nb::handle right) {
            Problem* other = nullptr;
            return nb::try_cast<Problem*>(right, other) && other && to_string(left) == to_string(*other);
          },
          nb::is_operator(), nb::arg().none(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const Problem& problem) { return std::hash<std::string>()(to_string(problem)); })
      .def("__reduce__", [](const Problem& problem) {
        return nb::make_tuple(nb::type<Problem>(), nb::make_tuple(to_string(problem)));
      });
}

void bind_plan(nb::module_& module) {
  nb::class_<Plan>(module, "Plan", "A choice for a problem, and why. Times are in microseconds; 0 where not measured.")
      .def_prop_ro("problem", [](const Plan& plan) { return plan.problem; })
      .def_prop_ro(
          "config", [](const Plan& plan) { return to_string(plan.config); },
          "The configuration, as `config=` of matmul takes it.")
      .def_prop_ro(
          "source", [](const Plan& plan) { return std::string(to_string(plan.source)); },
          "pinned, exact, measured, nearest, model, fallback or at_hand.")
      .def_ro("why", &Plan::why)
      .def_prop_ro("predicted_us", [](const Plan& plan) { return plan.predicted.us; })
      .def_ro("measured_us", &Plan::measured_us)
      .def_ro("spread", &Plan::spread, "Of the measurement: (p90 - p10) / median.")
      .def_ro("device", &Plan::device)
      .def_ro("workspace_bytes", &Plan::workspace_bytes)
      .def_ro("registers", &Plan::registers, "-1 until the kernel is compiled.")
      .def_ro("spill_bytes", &Plan::spill_bytes, "-1 until the kernel is compiled.")
      .def("explain", &Plan::explain, "All there is to say, for people, several lines.")
      .def(
          "json", [](const Plan& plan) { return nb::module_::import_("json").attr("loads")(plan.json()); },
          nb::sig("def json(self) -> dict[str, object]"), "The same for programs.")
      .def("__repr__", [](const Plan& plan) {
        return "<jitgemm.Plan of " + to_string(plan.problem) + ": " + to_string(plan.config) + ">";
      });
  nb::class_<TunedCandidate>(module, "TunedCandidate", "One configuration that tuning looked at.")
      .def_prop_ro("config", [](const TunedCandidate& it) { return to_string(it.config); })
      .def_ro("predicted_us", &TunedCandidate::predicted_us)
      .def_ro("measured_us", &TunedCandidate::measured_us)
      .def_ro("spread", &TunedCandidate::spread)
      .def_ro("skipped", &TunedCandidate::skipped, "Why it was not measured or not accepted; empty if it was.")
      .def("__repr__", [](const TunedCandidate& it) {
        return "<jitgemm.TunedCandidate " + to_string(it.config) +
               (it.skipped.empty() ? ": " + std::to_string(it.measured_us) + " us>" : ": skipped, " + it.skipped + ">");
      });
  nb::class_<TuneReport>(module, "TuneReport", "What tuning found.")
      .def_ro("plan", &TuneReport::plan, "The winner.")
      .def_ro("candidates", &TuneReport::candidates, "In the order of the cost model.")
      .def_ro("seconds", &TuneReport::seconds);
  nb::class_<DeviceDescription>(module, "DeviceDescription", "A GPU, or what stands for one.")
      .def_ro("name", &DeviceDescription::name)
      .def_ro("architecture", &DeviceDescription::architecture)
      .def_ro("sm_count", &DeviceDescription::sm_count)
      .def_ro("smem_bytes_per_block", &DeviceDescription::smem_bytes_per_block)
      .def_ro("l2_bytes", &DeviceDescription::l2_bytes)
      .def_ro("memory_bytes", &DeviceDescription::memory_bytes)
      .def_ro("emulated", &DeviceDescription::emulated)
      .def("__repr__", [](const DeviceDescription& it) {
        return "<jitgemm.DeviceDescription " + it.name + ", " + it.architecture + ", " + std::to_string(it.sm_count) +
               " SMs>";
      });
  nb::class_<Counters>(module, "Counters", "What a Context has done since it was made, and device memory it holds.")
      .def_ro("launches", &Counters::launches)
      .def_ro("compiles", &Counters::compiles)
      .def_ro("disk_hits", &Counters::disk_hits)
      .def_ro("memory_hits", &Counters::memory_hits)
      .def_ro("rebuilt", &Counters::rebuilt)
      .def_ro("tuned", &Counters::tuned)
      .def_ro("stopgaps", &Counters::stopgaps)
      .def_ro("unkept", &Counters::unkept)
      .def_ro("workspace_bytes", &Counters::workspace_bytes)
      .def_ro("graph_workspace_bytes", &Counters::graph_workspace_bytes);
}

}  // namespace

std::function<void(int, int)> progress_of(nb::handle progress) {
  if (progress.is_none() || progress.is(nb::handle(Py_False))) return [](int, int) { check_signals(); };
  const nb::object report = progress.is(nb::handle(Py_True))
                                ? nb::module_::import_("jitgemm._progress").attr("Bar")("tuning")
                                : nb::borrow(progress);
  if (!PyCallable_Check(report.ptr()))
    throw nb::type_error("progress is neither True nor a function of (done, total); pass one of them");
  return [callable = shared(report)](int done, int total) {
    const WithLock lock;
    (*callable)(done, total);
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  };
}

std::string source_of(ContextHandle& context, const Problem& problem, const KernelConfig* config) {
  const WithoutLock unlock;
  return config ? context->source(problem, *config) : context->source(problem);
}

Plan plan_of(ContextHandle& context, const Problem& problem, const KernelConfig* config, bool compiled) {
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
  bind_problem(module);
  bind_plan(module);
  using Text = std::optional<std::string>;
  const auto pointer = [](const std::optional<KernelConfig>& config) { return config ? &*config : nullptr; };
  nb::class_<ContextHandle>(
      module, "Context",
      "One device's kernels, tuning results and workspaces. Threads may share one.\n\n"
      "device: \"cuda\" (torch's current device, else the first), \"cuda:N\", \"cpu\" (the emulator) or\n"
      "\"compile_only\", for `architecture`. Options, with their defaults in C++'s ContextOptions: architecture,\n"
      "tuning (\"off\", \"cached\", \"on\"), tuning_budget_seconds, tuning_total_budget_seconds, batch_invariant,\n"
      "workspace_limit (bytes a call), sm_limit, workspace_bound_bytes, bucket_m, dependent_launch,\n"
      "compile_in_background, at_hand_within, fallback (a function of (problem, pointers, stream) that returns "
      "whether\n"
      "it has served the call), cache_dir, emulator_sm_count, emulator_seed. CUDA graphs that were captured with a "
      "Context need it\n"
      "for as long as they are launched.",
      nb::is_weak_referenceable())
      .def(
          "__init__",
          [](ContextHandle* self, const std::string& device, const nb::kwargs& options) {
            new (self) ContextHandle(options_of(device, options));
          },
          "device"_a = "cuda", "options"_a,
          nb::sig("def __init__(self, device: str = \"cuda\", **options: object) -> None"))
      .def(
          "plan",
          [=](ContextHandle& self, const Problem& problem, const Text& config) {
            return plan_of(self, problem, pointer(config_of(config)), false);
          },
          "problem"_a, "config"_a = nb::none(), "What would run now. Measures and compiles nothing.")
      .def(
          "compile",
          [=](ContextHandle& self, const Problem& problem, const Text& config) {
            return plan_of(self, problem, pointer(config_of(config)), true);
          },
          "problem"_a, "config"_a = nb::none(), "The plan once its kernel is compiled.")
      .def(
          "source",
          [=](ContextHandle& self, const Problem& problem, const Text& config) {
            return source_of(self, problem, pointer(config_of(config)));
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
      .def("tune", &tune, "problem"_a, "progress"_a = nb::none(),
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
          "out of range, or a matrix of its MatrixPointers had no memory.")
      .def_prop_ro("device", [](ContextHandle& self) { return self->device(); })
      .def_prop_ro("counters", [](ContextHandle& self) { return self->counters(); });
  module.def("devices", &cuda_devices, nb::call_guard<WithoutLock>(),
             "The visible CUDA devices; empty without a driver.");
  module.def("set_default_context", &set_default_context, "context"_a,
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
      "The Context that serves arrays on a device when no other is named.");
}

}  // namespace jitgemm::python
