#include "jit/kernel_store.hpp"

#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "jitgemm/error.hpp"

namespace jitgemm {
namespace {

using SharedKernel = std::shared_ptr<const Kernel>;

/// Rethrows a copy: those who wait for one future would otherwise share one Error, to which callers add.
SharedKernel wait_for(const std::shared_future<SharedKernel>& future) {
  try {
    return future.get();
  } catch (const Error& error) {
    throw Error(error);
  }
}

}  // namespace

struct KernelStore::Impl {
  Backend& backend;
  KernelCache& cache;
  std::mutex mutex = {};
  std::unordered_map<std::string, std::shared_future<SharedKernel>> kernels = {};  ///< by key digest
  std::atomic<std::uint64_t> compiles = 0, disk_hits = 0, memory_hits = 0, rebuilt = 0;

  CacheEntry compile(const KernelSource& source);
  CacheEntry rebuild(const CacheKey& key, const KernelSource& source, const std::string& why);
  CacheEntry find_or_compile(const CacheKey& key, const KernelSource& source, bool* hit);
  SharedKernel build(const CacheKey& key, const KernelSource& source, std::size_t smem_bytes);
};

CacheEntry KernelStore::Impl::compile(const KernelSource& source) {
  ++compiles;
  return {source, backend.compile(source)};
}

CacheEntry KernelStore::Impl::rebuild(const CacheKey& key, const KernelSource& source, const std::string& why) {
  CacheEntry entry = compile(source);  // or the old one stays
  cache.drop(key, why);
  ++rebuilt;
  cache.store(key, entry);
  return entry;
}

CacheEntry KernelStore::Impl::find_or_compile(const CacheKey& key, const KernelSource& source, bool* hit) {
  CacheEntry entry =
      cache.find_or_compile(key, [&] { return compile(source); }, [&] { return backend.compiler_version(); }, hit);
  if (!*hit) return entry;
  // Digests that collide are all but impossible, and comparing costs next to nothing.
  if (entry.source.text != source.text || entry.source.entry != source.entry ||
      entry.source.architecture != source.architecture) {
    *hit = false;
    return rebuild(key, source, "it holds another kernel");
  }
  ++disk_hits;
  return entry;
}

SharedKernel KernelStore::Impl::build(const CacheKey& key, const KernelSource& source, std::size_t smem_bytes) {
  bool hit = false;
  CacheEntry entry = find_or_compile(key, source, &hit);
  auto kernel = std::make_shared<Kernel>();
  try {
    kernel->loaded = backend.load(entry.binary, smem_bytes);
  } catch (const Error& error) {
    if (!hit || error.code() != ErrorCode::load_failed) throw;
    try {
      entry = rebuild(key, source, error.what());
    } catch (const Error& none) {
      if (none.code() == ErrorCode::no_compiler) throw Error(error);
      throw;
    }
    kernel->loaded = backend.load(entry.binary, smem_bytes);
  }
  kernel->facts = std::move(entry.binary);
  kernel->facts.code.clear();
  kernel->facts.code.shrink_to_fit();
  kernel->smem_bytes = smem_bytes;
  return kernel;
}

KernelStore::KernelStore(Backend& backend, KernelCache& cache) : impl_(new Impl{backend, cache}) {}
KernelStore::~KernelStore() = default;

std::shared_ptr<const Kernel> KernelStore::get(const KernelSource& source, std::size_t smem_bytes) {
  const CacheKey key = cache_key(source, impl_->backend.compiler_kind());
  std::promise<SharedKernel> promise;
  std::shared_future<SharedKernel> future;
  bool first = false;
  {
    const std::lock_guard lock(impl_->mutex);
    const auto found = impl_->kernels.find(key.digest);
    first = found == impl_->kernels.end();
    future = first ? promise.get_future().share() : found->second;
    if (first) impl_->kernels.emplace(key.digest, future);
  }
  if (!first) {
    ++impl_->memory_hits;
    return wait_for(future);
  }
  try {
    promise.set_value(impl_->build(key, source, smem_bytes));
  } catch (...) {
    {
      const std::lock_guard lock(impl_->mutex);
      impl_->kernels.erase(key.digest);
    }
    promise.set_exception(std::current_exception());
  }
  return wait_for(future);
}

bool KernelStore::at_hand(const KernelSource& source) {
  const CacheKey key = cache_key(source, impl_->backend.compiler_kind());
  {
    const std::lock_guard lock(impl_->mutex);
    const auto found = impl_->kernels.find(key.digest);
    if (found != impl_->kernels.end())
      return found->second.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  return impl_->cache.find(key, [&] { return impl_->backend.compiler_version(); }).has_value();
}

CacheEntry KernelStore::warm(const KernelSource& source) {
  bool hit = false;
  return impl_->find_or_compile(cache_key(source, impl_->backend.compiler_kind()), source, &hit);
}

std::uint64_t KernelStore::compiles() const { return impl_->compiles; }
std::uint64_t KernelStore::disk_hits() const { return impl_->disk_hits; }
std::uint64_t KernelStore::memory_hits() const { return impl_->memory_hits; }
std::uint64_t KernelStore::rebuilt() const { return impl_->rebuilt; }

}  // namespace jitgemm
