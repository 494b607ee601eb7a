#include "tune/wisdom.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>

#include "core/out_of_memory.hpp"
#include "core/problem.hpp"
#include "jit/cache_entry.hpp"
#include "jit/call.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/error.hpp"
#include "jitgemm/version.hpp"
#include "plan/constraints.hpp"
#include "util/hash.hpp"

namespace jitgemm {
namespace {

/// All that generate() looks at, but for whether launches may start early, which a record does not say.
DeviceInfo device_of(const TuningRecord& record) {
  DeviceInfo device;
  device.compute_capability = record.compute_capability;
  return device;
}

/// The digests of the source texts that a record's calls compile.
void add_sources(const TuningRecord& record, std::set<std::string>& digests) {
  DeviceInfo device = device_of(record);
  const NormalProblem problem = problem_of_kernel(record);
  for (const bool dependent_launch : {false, true}) {
    device.dependent_launch = dependent_launch;
    for (const KernelRole* role : roles_of(problem, record.config))
      digests.insert(digest_of(role->generate(problem, record.config, device).text));
    if (record.method == ParallelMethod::overlapped) digests.insert(digest_of(generate_begin_call(device).text));
  }
}

std::set<std::string> digests_of(const std::vector<StoredKernel>& kernels) {
  std::set<std::string> digests;
  for (const StoredKernel& kernel : kernels) digests.insert(kernel.digest);
  return digests;
}

}  // namespace

StoredWisdom collect_wisdom(std::vector<TuningRecord> records, KernelCache& cache, const StoredSelection& selection) {
  StoredWisdom wisdom;
  wisdom.library = JITGEMM_VERSION;
  std::set<std::string> wanted, taken;
  for (TuningRecord& record : records) {
    const bool of_gpu = !record.emulated && device_of(record).architecture() == selection.architecture;
    if (!selection.architecture.empty() && !of_gpu) continue;
    if (selection.record) {
      if (!selection.record(record)) continue;
      if (selection.kernels) add_sources(record, wanted);
    }
    wisdom.records.push_back(std::move(record));
  }
  if (!selection.kernels) return wisdom;
  for (const CacheEntryInfo& info : cache.list(false)) {
    const std::string& architecture = info.entry.binary.architecture;
    if (info.state != "ok" || taken.contains(info.digest)) continue;
    if (!selection.architecture.empty() && architecture != selection.architecture) continue;
    StoredKernel kernel{info.digest, architecture, info.path, 0, info.bytes};
    try {
      const auto entry = unpack_entry(read_kernel(kernel), info.digest, nullptr);
      if (!is_gpu_kernel(info.digest, entry->source)) {
        ++wisdom.strange_kernels;
        continue;
      }
      if (selection.record && !wanted.contains(digest_of(entry->source.text))) continue;
      kernel.current = is_current(entry->source);
    } catch (const Error& error) {
      if (is_out_of_memory(error)) throw;
      continue;  // damaged, or gone meanwhile
    }
    taken.insert(info.digest);
    wisdom.kernels.push_back(std::move(kernel));
  }
  return wisdom;
}

TakenWisdom take_wisdom(const std::vector<StoredWisdom>& all, TuningDb& db, KernelCache& cache, Kernels kernels) {
  StoredWisdom wisdom = merge_stored(all);
  if (kernels == Kernels::leave) wisdom.kernels.clear();
  if (!cache.directory()) {
    throw Error(ErrorCode::io,
                "there is no directory to import into; set JITGEMM_CACHE_DIR to one that you can write to");
  }
  std::uintmax_t bytes = 0;
  for (const StoredKernel& kernel : wisdom.kernels) bytes += kernel.bytes;
  if (bytes > cache.max_bytes()) {
    throw Error(ErrorCode::io, "the kernels have " + std::to_string(bytes) + " bytes, the cache is bound to " +
                                   std::to_string(cache.max_bytes()) + "; set JITGEMM_CACHE_MAX_BYTES to more");
  }
  TakenWisdom done;
  done.records = db.merge(wisdom.records);
  for (const StoredKernel& kernel : wisdom.kernels) {
    if (cache.add({kernel.digest}, read_kernel(kernel))) ++done.kernels;
  }
  return done;
}

StoredWisdom merge_stored(const std::vector<StoredWisdom>& all) {
  StoredWisdom merged;
  merged.library = JITGEMM_VERSION;
  TuningDb best(std::nullopt);
  std::set<std::string> taken;
  for (const StoredWisdom& wisdom : all) {
    best.merge(wisdom.records);
    for (const StoredKernel& kernel : wisdom.kernels) {
      if (taken.insert(kernel.digest).second) merged.kernels.push_back(kernel);
    }
    merged.foreign_records += wisdom.foreign_records;
    merged.foreign_kernels += wisdom.foreign_kernels;
    merged.strange_kernels += wisdom.strange_kernels;
  }
  merged.records = best.records();
  return merged;
}

StoredDiff diff_stored(const StoredWisdom& a, const StoredWisdom& b) {
  StoredDiff diff;
  struct Less {
    bool operator()(const TuningRecord& x, const TuningRecord& y) const { return key(x) < key(y); }
    static std::tuple<int, int, bool, const std::string&, std::string> key(const TuningRecord& r) {
      return {r.compute_capability, r.sm_count, r.emulated, r.device_name,
              to_string(r.problem) + " " + to_string(r.constraints) + " " + to_string(r.across)};
    }
  };
  // Two records of one key are one, as merge_stored() has it.
  const auto ordered = [](const StoredWisdom& wisdom) {
    const StoredWisdom unique = merge_stored({wisdom});
    return std::set<TuningRecord, Less>(unique.records.begin(), unique.records.end());
  };
  const auto of_a = ordered(a), of_b = ordered(b);
  for (const TuningRecord& record : of_a) {
    const auto other = of_b.find(record);
    if (other == of_b.end()) {
      diff.only_a.push_back(record);
    } else if (record.config == other->config) {
      ++diff.same;
    } else {
      diff.differ.emplace_back(record, *other);
    }
  }
  std::set_difference(of_b.begin(), of_b.end(), of_a.begin(), of_a.end(), std::back_inserter(diff.only_b), Less());

  const auto kernels_a = digests_of(a.kernels), kernels_b = digests_of(b.kernels);
  for (const std::string& digest : kernels_a) ++(kernels_b.contains(digest) ? diff.kernels_same : diff.kernels_only_a);
  diff.kernels_only_b = kernels_b.size() - diff.kernels_same;
  return diff;
}

}  // namespace jitgemm
