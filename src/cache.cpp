#include "jitgemm/cache.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "cache_home.hpp"
#include "core/out_of_memory.hpp"
#include "jit/cache_directory.hpp"
#include "jit/cache_entry.hpp"
#include "jit/cache_files.hpp"
#include "jitgemm/error.hpp"
#include "tune/tuning_result.hpp"
#include "tune/wisdom_file.hpp"
#include "util/atomic_file.hpp"
#include "util/output_file.hpp"
#include "util/trust.hpp"

namespace jitgemm {
namespace {

namespace fs = std::filesystem;

CachedKernel to_kernel(const CacheEntryInfo& info) {
  return {.digest = info.digest,
          .path = info.path.string(),
          .fault = info.state == "ok" ? "" : info.state,
          .bytes = info.bytes,
          .last_used = info.last_used,
          .read_only = info.read_only,
          .entry = info.entry.source.entry,
          .architecture = info.entry.binary.architecture,
          .config = info.entry.source.config,
          .compiler = info.entry.binary.compiler,
          .registers = info.entry.binary.registers,
          .spill_bytes = info.entry.binary.spill_bytes};
}

std::vector<CachedKernel> list(KernelCache& cache, bool verify) {
  std::vector<CachedKernel> kernels;
  for (const CacheEntryInfo& info : cache.list(verify)) kernels.push_back(to_kernel(info));
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const CachedKernel& x, const CachedKernel& y) { return x.last_used > y.last_used; });
  return kernels;
}

std::vector<CacheEntryInfo> own_entries(KernelCache& cache, bool verify) {
  std::vector<CacheEntryInfo> entries = cache.list(verify);
  std::erase_if(entries, [](const CacheEntryInfo& info) { return info.read_only; });
  return entries;
}

/// Throws Error if, after the removal, kernels are left that were to go.
template <typename Removal>
std::uintmax_t remove(CacheHome& home, std::uintmax_t max_bytes, Removal removal) {
  const fs::path directory = home.own();
  std::set<fs::path> before;
  for (const CacheEntryInfo& info : own_entries(home.kernels, false)) before.insert(info.path);
  const std::uintmax_t freed = removal();
  const std::string why = why_not_writable(directory);
  std::uintmax_t left_bytes = 0;
  std::size_t damaged = 0;
  for (const CacheEntryInfo& info : own_entries(home.kernels, !why.empty())) {
    if (!before.contains(info.path)) continue;  // another process has added it meanwhile
    left_bytes += info.bytes;
    damaged += info.state != "ok";
  }
  // Where files can be removed, a damaged one that is left is another version's.
  if (left_bytes > max_bytes || (damaged > 0 && !why.empty())) {
    throw Error(ErrorCode::io, "kernels in " + directory.string() +
                                   " cannot be removed: " + (why.empty() ? "they are protected" : why) +
                                   "; make it writable, or run this as its owner");
  }
  return freed;
}

[[noreturn]] void cannot_write(const fs::path& path, const std::string& why) {
  throw Error(ErrorCode::io, "cannot write " + path.string() + ": " + why + "; export elsewhere");
}

void write(const fs::path& path, std::string_view bytes) {
  if (std::string why; !write_output(path, bytes, &why)) cannot_write(path, why);
}

/// A file for others to read and nobody to change, whatever stood there.
void write_shared(const fs::path& path, std::string_view bytes) {
  AtomicFile file(path, {shared_file_mode});
  if (!file.write(bytes) || !file.publish()) cannot_write(path, file.why());
}

/// Calls write(folder, digest, entry, bytes) for each kernel that is whole, and returns how many there were. What lies
/// in both directories counts once.
template <typename Write>
CacheExport export_to(const std::string& given, CacheHome& home, Write write) {
  const fs::path folder = checked_directory(given, "the folder");
  std::set<std::string> exported;
  for (const CacheEntryInfo& info : home.kernels.list(false)) {
    if (info.state != "ok" || exported.contains(info.digest)) continue;
    const std::optional<std::string> bytes = read_trusted(info.path, nullptr, max_entry_bytes);
    const auto entry = bytes ? unpack_entry(*bytes, info.digest, nullptr) : std::nullopt;
    if (!entry) continue;  // damaged, or gone meanwhile
    if (exported.empty()) {
      if (const std::string why = make_directories(folder, shared_directory_mode); !why.empty())
        cannot_write(folder, why);
    }
    write(folder, info.digest, *entry, *bytes);
    exported.insert(info.digest);
  }
  if (exported.empty()) {
    throw Error(ErrorCode::io, "there is no whole kernel in " +
                                   home.kernels.directory().value_or("the system's cache").string() +
                                   " to export: `jitgemm warm` it first");
  }
  return {exported.size(), folder.string(), {}};
}

/// What keeps others from reading a folder, or has their caches refuse it.
std::string remark_on(const fs::path& folder) {
  if (const std::string why = why_not_readable(folder); !why.empty())
    return "it is " + why + ": correct that (chown, chmod go-w)";
  struct stat status{};
  constexpr mode_t for_others = S_IROTH | S_IXOTH;  // which a umask of 077 or another hand may have taken away
  if (stat(folder.c_str(), &status) != 0 || (status.st_mode & for_others) != for_others)
    return "others cannot read it: correct that (chmod -R a+rX)";
  return {};
}

}  // namespace

struct Cache::Impl {
  CacheHome home;
};

Cache::Cache(const std::optional<std::string>& directory)
    : impl_(with_memory_errors([&] { return std::make_shared<Impl>(Impl{open_home(directory)}); })) {}

std::string Cache::directory() const {
  return with_memory_errors([&] { return impl_->home.kernels.directory().value_or(fs::path()).string(); });
}

std::uint64_t Cache::max_bytes() const { return impl_->home.kernels.max_bytes(); }

std::vector<CachedKernel> Cache::kernels() const {
  return with_memory_errors([&] { return list(impl_->home.kernels, false); });
}

std::vector<CachedKernel> Cache::verify() const {
  return with_memory_errors([&] { return list(impl_->home.kernels, true); });
}

std::uint64_t Cache::prune(std::uint64_t max_bytes) {
  CacheHome& home = impl_->home;
  return with_memory_errors([&] { return remove(home, max_bytes, [&] { return home.kernels.prune(max_bytes); }); });
}

std::uint64_t Cache::clear() {
  CacheHome& home = impl_->home;
  return with_memory_errors([&] { return remove(home, 0, [&] { return home.kernels.clear(); }); });
}

CacheExport Cache::export_kernels(const std::string& folder) const {
  return with_memory_errors([&] {
    const auto write = [](const fs::path& to, const std::string& digest, const CacheEntry&, std::string_view bytes) {
      write_shared(cache_file_path(to, digest), bytes);
    };
    CacheExport done = export_to(folder, impl_->home, write);
    done.remark = remark_on(done.directory);
    return done;
  });
}

CacheExport Cache::export_binaries(const std::string& folder) const {
  return with_memory_errors([&] {
    return export_to(folder, impl_->home,
                     [](const fs::path& to, const std::string& digest, const CacheEntry& entry, std::string_view) {
                       const bool of_gpu = is_gpu_kernel(digest, entry.source);
                       write(to / (digest + (of_gpu ? ".cubin" : ".so")), entry.binary.code);
                       write(to / (digest + ".cu"), entry.source.text);
                     });
  });
}

std::vector<TuningResult> Cache::tuning_results() const {
  return with_memory_errors([&] { return to_results(impl_->home.records()); });
}

}  // namespace jitgemm
