// A cache directory in disorder: a few files of any names and contents, among them entries that are damaged here or
// there.
#include <array>
#include <set>

#include "fuzz.hpp"
#include "jit/kernel_cache.hpp"
#include "util/atomic_file.hpp"

using namespace jitgemm;
namespace fs = std::filesystem;

namespace {

struct Sample {
  CacheEntry entry;
  CacheKey key;
  std::string bytes;  ///< the file's
};

CacheEntry entry_named(const std::string& name) {
  return {{"// " + name + "\n", "gemm_" + name, "sm_90a", "config of " + name},
          {"code of " + name, "gemm_" + name, "sm_90a", "nvrtc 13.0.88", 168, 8, 1024}};
}

std::array<Sample, 2> make_samples() {
  const fs::path directory = fuzz::scratch() / "samples";
  std::array<Sample, 2> samples;
  KernelCache cache({.directory = directory});
  for (std::size_t i = 0; i < samples.size(); ++i) {
    Sample& sample = samples[i];
    sample.entry = entry_named(std::string(1, char('a' + i)));
    sample.key = cache_key(sample.entry.source, "nvrtc");
    cache.store(sample.key, sample.entry);
    sample.bytes = read_file(directory / (sample.key.digest + ".kernel")).value();
  }
  return samples;
}

bool same(const CacheEntry& x, const CacheEntry& y) {
  return x.source.text == y.source.text && x.source.entry == y.source.entry && x.binary.code == y.binary.code &&
         x.binary.compiler == y.binary.compiler && x.binary.registers == y.binary.registers;
}

/// A name without a slash.
std::string name_from(fuzz::Bytes& input, const std::array<Sample, 2>& samples) {
  switch (input.take<std::uint8_t>() % 6) {
    case 0:
      return samples[0].key.digest + ".kernel";
    case 1:
      return samples[1].key.digest + ".kernel";
    case 2:
      return "bytes";
    case 3:
      return samples[0].key.digest + ".kernel.tmp-abcdef";
    case 4:
      return "locks";  // a file where a directory should be
  }
  std::string name(input.take_text(input.take<std::uint8_t>() % 40));
  for (char& c : name) c = c == '/' || c == '\0' ? '_' : c;
  return name.empty() || name == "." || name == ".." ? "x" : name;
}

std::string contents_from(fuzz::Bytes& input, const std::array<Sample, 2>& samples) {
  const auto choice = input.take<std::uint8_t>();
  if (choice % 4 == 0) return std::string(input.take_text(input.take<std::uint16_t>() % 4096));
  std::string bytes = samples[choice / 4 % 2].bytes;
  if (choice % 4 == 2) bytes.resize(input.take<std::uint16_t>() % (bytes.size() + 64), '\0');
  if (choice % 4 == 3) bytes[input.take<std::uint16_t>() % bytes.size()] ^= char(input.take<std::uint8_t>());
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto& samples = *new std::array<Sample, 2>(make_samples());
  const fs::path directory = fuzz::scratch() / "cache";
  fs::remove_all(directory);
  fs::create_directory(directory);
  fs::permissions(directory, fs::perms::owner_all);

  fuzz::Bytes input(data, size);
  const bool by_finding = input.take<bool>();
  const auto max_bytes = input.take<std::uint16_t>();
  for (int files = input.take<std::uint8_t>() % 5; files > 0; --files) {
    const std::string name = name_from(input, samples);
    fuzz::write_scratch("cache/" + name, contents_from(input, samples));
  }

  KernelCache cache({.directory = directory, .lock_timeout_seconds = 0});
  const auto shallow = cache.list(false), deep = cache.list(true);
  fuzz::expect(shallow.size() == deep.size(), "reading whole files lists no other ones");
  for (const CacheEntryInfo& info : deep) {
    bool right = false;
    for (const Sample& sample : samples) right = right || read_file(info.path) == sample.bytes;
    fuzz::expect(info.state != "ok" || right, "only a whole entry is ok");
  }
  for (const Sample& sample : samples) {
    if (by_finding) {
      const auto found = cache.find(sample.key, {});
      fuzz::expect(!found || same(*found, sample.entry), "what is found is what was stored");
    }
    bool hit = false;
    const CacheEntry made = cache.find_or_compile(sample.key, [&] { return sample.entry; }, {}, &hit);
    fuzz::expect(same(made, sample.entry), "what is made is right");
    fuzz::expect(!by_finding || hit || cache.find(sample.key, {}).has_value(), "what is made is stored");
  }
  cache.prune(max_bytes);
  std::uintmax_t bytes = 0;
  for (const CacheEntryInfo& info : cache.list(true)) {
    bytes += info.bytes;
    fuzz::expect(info.state == "ok" || info.state.starts_with("schema "), "pruning leaves nothing damaged");
  }
  fuzz::expect(bytes <= max_bytes, "pruning holds the bound");
  cache.clear();
  fuzz::expect(cache.list(false).empty(), "clearing leaves no entry");
  return 0;
}
