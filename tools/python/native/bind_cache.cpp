#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "jitgemm/cache.hpp"
#include "jitgemm/wisdom.hpp"
#include "tensor_parallel.hpp"
#include "without_lock.hpp"

namespace jitgemm::python {
namespace {

using namespace nb::literals;
using Unlocked = nb::call_guard<WithoutLock>;
using Directory = std::optional<std::string>;

void bind_kernels(nb::module_& module) {
  nb::class_<CachedKernel>(module, "CachedKernel", "A compiled kernel on disk, one file each.")
      .def_ro("digest", &CachedKernel::digest)
      .def_ro("path", &CachedKernel::path)
      .def_ro("fault", &CachedKernel::fault, "What is wrong with it; empty if nothing is.")
      .def_ro("bytes", &CachedKernel::bytes)
      .def_ro("last_used", &CachedKernel::last_used, "Seconds since 1970; up to a minute late.")
      .def_ro("read_only", &CachedKernel::read_only, "Of JITGEMM_SYSTEM_CACHE_DIR.")
      .def_ro("entry", &CachedKernel::entry)
      .def_ro("architecture", &CachedKernel::architecture)
      .def_ro("config", &CachedKernel::config)
      .def_ro("compiler", &CachedKernel::compiler)
      .def_ro("registers", &CachedKernel::registers)
      .def_ro("spill_bytes", &CachedKernel::spill_bytes)
      .def("__repr__", [](const CachedKernel& it) {
        return "<jitgemm.CachedKernel " + it.digest + ": " + (it.fault.empty() ? it.config : it.fault) + ">";
      });
  nb::class_<TuningResult>(module, "TuningResult", "What has been measured to be the best for a problem on a device.")
      .def_ro("problem", &TuningResult::problem)
      .def_ro("device", &TuningResult::device)
      .def_ro("architecture", &TuningResult::architecture)
      .def_ro("sm_count", &TuningResult::sm_count)
      .def_ro("emulated", &TuningResult::emulated)
      .def_prop_ro("config", [](const TuningResult& it) { return to_string(it.config); })
      .def_ro("median_us", &TuningResult::median_us)
      .def_ro("spread", &TuningResult::spread)
      .def_ro("date", &TuningResult::date)
      .def_ro("library", &TuningResult::library)
      .def_ro("ranks", &TuningResult::ranks, "That compute it together; 1: what matmul() does.")
      .def_prop_ro(
          "exchange",
          [](const TuningResult& it) {
            return it.ranks > 1 ? std::optional<std::string>(name_of(it.exchange)) : std::nullopt;
          },
          "Of several ranks: the method of TensorParallel.")
      .def_prop_ro(
          "method",
          [](const TuningResult& it) {
            return it.ranks > 1 ? std::optional<std::string>(to_string(it.method)) : std::nullopt;
          },
          "Of several ranks: \"unfused\" or \"overlapped\".")
      .def(
          "json", [](const TuningResult& it) { return nb::module_::import_("json").attr("loads")(it.json()); },
          nb::sig("def json(self) -> dict[str, object]"))
      .def("__repr__", [](const TuningResult& it) {
        return "<jitgemm.TuningResult of " + to_string(it.problem) + " on " + it.device + ": " + to_string(it.config) +
               ">";
      });
  nb::class_<CacheExport>(module, "CacheExport")
      .def_ro("kernels", &CacheExport::kernels, "Copied.")
      .def_ro("directory", &CacheExport::directory)
      .def_ro("remark", &CacheExport::remark, "What keeps others from using them; empty if nothing does.");
  nb::class_<Cache>(
      module, "Cache",
      "Kernels and tuning results on disk. directory: as Context's cache_dir; one that is named must exist.")
      .def(nb::init<const Directory&>(), "directory"_a = nb::none(), Unlocked())
      .def_prop_ro("directory", &Cache::directory)
      .def_prop_ro("max_bytes", &Cache::max_bytes)
      .def("kernels", &Cache::kernels, Unlocked())
      .def("verify", &Cache::verify, Unlocked())
      .def(
          "prune",
          [](Cache& self, std::optional<std::uint64_t> max_bytes) {
            return self.prune(max_bytes.value_or(UINT64_MAX));
          },
          "max_bytes"_a = nb::none(), Unlocked())
      .def("clear", &Cache::clear, Unlocked())
      .def("export_kernels", &Cache::export_kernels, "folder"_a, Unlocked())
      .def("export_binaries", &Cache::export_binaries, "folder"_a, Unlocked())
      .def("tuning_results", &Cache::tuning_results, Unlocked());
}

void bind_wisdom(nb::module_& module) {
  nb::class_<WisdomKernel>(module, "WisdomKernel")
      .def_ro("digest", &WisdomKernel::digest)
      .def_ro("architecture", &WisdomKernel::architecture)
      .def_ro("bytes", &WisdomKernel::bytes)
      .def_ro("current", &WisdomKernel::current, "False: this version of jitgemm will not ask for it.");
  nb::class_<Wisdom>(module, "Wisdom", "Tuning results, and compiled kernels of GPUs.")
      .def_ro("library", &Wisdom::library)
      .def_ro("results", &Wisdom::results)
      .def_ro("kernels", &Wisdom::kernels)
      .def_ro("foreign_results", &Wisdom::foreign_results, "In another version's form, and left out.")
      .def_ro("foreign_kernels", &Wisdom::foreign_kernels)
      .def_ro("strange_kernels", &Wisdom::strange_kernels, "Code for the host, or given out for another kernel.")
      .def("__repr__", [](const Wisdom& it) {
        return "<jitgemm.Wisdom: " + std::to_string(it.results.size()) + " results, " +
               std::to_string(it.kernels.size()) + " kernels>";
      });
  nb::class_<WisdomImport>(module, "WisdomImport")
      .def_ro("wisdom", &WisdomImport::wisdom)
      .def_ro("results", &WisdomImport::results, "Taken; of the others there were as good ones, or better.")
      .def_ro("kernels", &WisdomImport::kernels)
      .def_ro("kernels_left_out", &WisdomImport::kernels_left_out)
      .def_ro("directory", &WisdomImport::directory);
  nb::class_<WisdomDiff>(module, "WisdomDiff")
      .def_ro("only_a", &WisdomDiff::only_a)
      .def_ro("only_b", &WisdomDiff::only_b)
      .def_ro("differ", &WisdomDiff::differ)
      .def_ro("same", &WisdomDiff::same)
      .def_ro("kernels_only_a", &WisdomDiff::kernels_only_a)
      .def_ro("kernels_only_b", &WisdomDiff::kernels_only_b)
      .def_ro("kernels_same", &WisdomDiff::kernels_same)
      .def_prop_ro("equal", &WisdomDiff::equal, "In what they choose.");
  const auto selection = [](const Directory& cache_dir, const std::string& architecture, bool kernels) {
    return WisdomSelection{.cache_dir = cache_dir, .architecture = architecture, .result = {}, .kernels = kernels};
  };
  module.def(
      "cached_wisdom",
      [=](const std::string& architecture, bool kernels, const Directory& cache_dir) {
        return cached_wisdom(selection(cache_dir, architecture, kernels));
      },
      "architecture"_a, "kernels"_a, "cache_dir"_a = nb::none(), Unlocked());
  module.def(
      "export_wisdom",
      [=](const std::string& file, const std::string& architecture, bool kernels, const Directory& cache_dir) {
        return export_wisdom(file, selection(cache_dir, architecture, kernels));
      },
      "file"_a, "architecture"_a, "kernels"_a, "cache_dir"_a = nb::none(), Unlocked());
  module.def("read_wisdom", &read_wisdom, "file"_a, Unlocked());
  module.def(
      "import_wisdom",
      [](const std::vector<std::string>& files, bool kernels, const Directory& cache_dir) {
        return import_wisdom(files, {.kernels = kernels, .cache_dir = cache_dir});
      },
      "files"_a, "kernels"_a, "cache_dir"_a = nb::none(), Unlocked());
  module.def("merge_wisdom", &merge_wisdom, "file"_a, "sources"_a, Unlocked());
  module.def("diff_wisdom", &diff_wisdom, "a"_a, "b"_a, Unlocked());
}

}  // namespace

void bind_cache(nb::module_& module) {
  bind_kernels(module);
  bind_wisdom(module);
}

}  // namespace jitgemm::python
