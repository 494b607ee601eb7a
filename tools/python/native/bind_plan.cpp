#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "jitgemm/context.hpp"
#include "jitgemm/device.hpp"
#include "jitgemm/plan.hpp"

namespace jitgemm::python {

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

}  // namespace jitgemm::python
