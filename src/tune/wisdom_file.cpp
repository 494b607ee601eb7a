#include "tune/wisdom_file.hpp"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "backend/cuda/compiler_kind.hpp"
#include "core/out_of_memory.hpp"
#include "jit/cache_entry.hpp"
#include "jit/cache_files.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/error.hpp"
#include "jitgemm/version.hpp"
#include "util/atomic_file.hpp"
#include "util/errno_text.hpp"
#include "util/hash.hpp"
#include "util/json_document.hpp"
#include "util/output_file.hpp"

namespace jitgemm {
namespace {

namespace fs = std::filesystem;
using json = JsonDocument::Json;

constexpr std::string_view magic = "jitwisdm";
constexpr std::size_t head_bytes = 32, digest_bytes = 32;
constexpr std::uintmax_t max_manifest_bytes = 64 << 20, max_records_bytes = 256 << 20;

void append_little_endian(std::string& bytes, std::uint64_t value, int width) {
  for (int i = 0; i < width; ++i) bytes += static_cast<char>(value >> (8 * i));
}

std::uint64_t little_endian(std::string_view bytes, std::size_t at, int width) {
  std::uint64_t value = 0;
  for (int i = 0; i < width; ++i) value |= std::uint64_t(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

std::string text_of(int error) { return errno_text(error); }

struct Manifest {
  std::string library;
  std::size_t records = 0;
  std::vector<StoredKernel> kernels;
};

std::string to_text(const std::vector<TuningRecord>& records, const std::vector<StoredKernel>& kernels) {
  JsonDocument document;
  json& manifest = document.root();
  manifest["library"] = JITGEMM_VERSION;
  manifest["records"] = records.size();
  json& list = manifest["kernels"] = json::array();
  for (const StoredKernel& kernel : kernels) {
    json& its = list.emplace_back();
    its["digest"] = kernel.digest;
    its["architecture"] = kernel.architecture;
    its["bytes"] = kernel.bytes;
  }
  return document.text();
}

/// Throws std::exception.
std::uintmax_t count_of(const json& value) {
  if (!value.is_number_unsigned()) throw std::out_of_range("not a count");
  return value.get<std::uintmax_t>();
}

Manifest parse_manifest(std::string_view text) {
  const JsonDocument document(text);
  const json& object = document.root();
  Manifest manifest;
  object.at("library").get_to(manifest.library);
  manifest.records = count_of(object.at("records"));
  for (const json& item : object.at("kernels")) {
    StoredKernel& kernel = manifest.kernels.emplace_back();
    item.at("digest").get_to(kernel.digest);
    item.at("architecture").get_to(kernel.architecture);
    kernel.bytes = count_of(item.at("bytes"));
    if (kernel.bytes > max_entry_bytes) throw std::out_of_range("larger than any kernel");
  }
  return manifest;
}

class Reader {
 public:
  explicit Reader(const fs::path& file) : file_(file), opened_(file) {}

  StoredWisdom read() {
    const std::uintmax_t size = opened_.bytes();
    const std::string head = part(head_bytes);
    if (head.starts_with('{')) fail("it is a tuning database", "`jitgemm wisdom export` makes a wisdom file of one");
    if (!magic.starts_with(head.substr(0, magic.size()))) fail("it is no wisdom file");
    if (head.size() < head_bytes) fail("it is cut short");
    const std::uint64_t version = little_endian(head, 8, 4);
    if (version != wisdom_version) {
      fail("it is of format " + std::to_string(version) + ", this is jitgemm " JITGEMM_VERSION " and reads " +
               std::to_string(wisdom_version),
           version > wisdom_version ? "update jitgemm" : "export it again");
    }
    const std::uint64_t manifest_bytes = little_endian(head, 12, 4), records_bytes = little_endian(head, 16, 8),
                        kernels_bytes = little_endian(head, 24, 8);
    if (manifest_bytes > max_manifest_bytes || records_bytes > max_records_bytes || kernels_bytes > UINT64_MAX / 2) {
      fail("its head is damaged");
    }
    const std::uintmax_t expected = head_bytes + manifest_bytes + records_bytes + kernels_bytes + digest_bytes;
    if (size != expected) fail(size < expected ? "it is cut short" : "it is longer than it says");

    const std::string manifest_text = part(manifest_bytes), records_text = part(records_bytes);
    Manifest manifest;
    std::string why;  // what is wrong with the content, which only counts if the checksum is right
    try {
      manifest = parse_manifest(manifest_text);
    } catch (const std::exception& error) {  // json's and count_of's
      if (is_out_of_memory(error)) throw;
      why = "its manifest cannot be read";
    }
    StoredWisdom wisdom;
    if (why.empty()) {
      std::uintmax_t sum = 0;
      for (const StoredKernel& kernel : manifest.kernels) sum += kernel.bytes;  // at most 64 Mi of 256 MiB
      if (sum != kernels_bytes) why = "its kernels are not those of its manifest";
    }
    if (why.empty()) why = take_kernels(std::move(manifest.kernels), wisdom);
    hash_until(expected - digest_bytes);
    const std::string checksum = hasher_.digest();
    if (part(digest_bytes) != checksum) fail("it is damaged: its checksum differs");
    if (why.empty()) why = take_records(records_text, manifest.records, wisdom);
    if (!why.empty()) fail(why);
    wisdom.library = manifest.library;
    return wisdom;
  }

 private:
  [[noreturn]] void fail(const std::string& why, const std::string& way_out = "copy or export it again") const {
    throw Error(ErrorCode::io, "cannot read the wisdom in " + file_.string() + ": " + why + "; " + way_out);
  }

  [[noreturn]] void fail_to_open(int error) const {
    fail(text_of(error), is_out_of_descriptors(error) ? more_descriptors : "give a wisdom file that can be read");
  }

  /// The next bytes, which count for the checksum.
  std::string part(std::uintmax_t bytes) {
    auto text = opened_.part(offset_, bytes);
    if (!text) fail_to_open(errno);
    offset_ += text->size();
    hasher_.add(*text);
    return *std::move(text);
  }

  void hash_until(std::uintmax_t end) {
    while (offset_ < end) {
      if (part(std::min<std::uintmax_t>(end - offset_, 1 << 20)).empty()) fail("it is cut short");
    }
  }

  /// Returns what is wrong with them.
  std::string take_kernels(std::vector<StoredKernel> kernels, StoredWisdom& wisdom) {
    for (StoredKernel& kernel : kernels) {
      kernel.file = file_;
      kernel.offset = offset_;
      const std::string bytes = part(kernel.bytes);
      std::string why;
      if (is_other_schema(bytes)) {
        ++wisdom.foreign_kernels;
      } else if (const auto entry = unpack_entry(bytes, kernel.digest, &why); !entry) {
        return "its kernel " + kernel.digest + " is no whole one (" + why + ")";
      } else if (cache_file_path(file_, kernel.digest).empty()) {
        return "its kernel " + kernel.digest + " has no digest for a name";
      } else if (entry->binary.architecture != kernel.architecture) {
        return "its kernel " + kernel.digest + " is not for the architecture that its manifest says";
      } else if (!is_gpu_kernel(kernel.digest, entry->source)) {
        ++wisdom.strange_kernels;
      } else {
        kernel.current = is_current(entry->source);
        wisdom.kernels.push_back(std::move(kernel));
      }
    }
    return {};
  }

  static std::string take_records(std::string_view text, std::size_t count, StoredWisdom& wisdom) {
    std::size_t number = 0;
    for (; !text.empty(); ++number) {
      const std::size_t end = text.find('\n');
      if (end == std::string_view::npos) return "its last record has no end";
      std::string why;
      bool foreign = false;
      if (auto record = parse_json_line(std::string(text.substr(0, end)), &why, &foreign)) {
        wisdom.records.push_back(*std::move(record));
      } else if (foreign) {
        ++wisdom.foreign_records;
      } else {
        return "its record " + std::to_string(number + 1) + " is none (" + why + ")";
      }
      text.remove_prefix(end + 1);
    }
    return number == count ? "" : "its records are not as many as its manifest says";
  }

  const fs::path& file_;
  InputFile opened_;
  std::uintmax_t offset_ = 0;
  Hasher hasher_;
};

}  // namespace

bool is_gpu_kernel(const std::string& digest, const KernelSource& source) {
  return digest == cache_key(source, cuda::nvrtc_kind()).digest;
}

StoredWisdom read_wisdom_file(const fs::path& file) { return Reader(file).read(); }

void write_wisdom_file(const fs::path& file, std::vector<TuningRecord> records, std::vector<StoredKernel> kernels) {
  std::vector<std::string> lines;
  for (const TuningRecord& record : records) lines.push_back(to_json_line(record) + '\n');
  std::sort(lines.begin(), lines.end());
  std::string records_text;
  for (const std::string& line : lines) records_text += line;
  std::sort(kernels.begin(), kernels.end(), [](const auto& x, const auto& y) { return x.digest < y.digest; });
  std::uintmax_t kernels_bytes = 0;
  for (const StoredKernel& kernel : kernels) kernels_bytes += kernel.bytes;
  const std::string manifest = to_text(records, kernels);
  if (manifest.size() > max_manifest_bytes || records_text.size() > max_records_bytes) {
    throw Error(ErrorCode::io,
                "there is more wisdom than one file takes; export less: of one architecture (--arch) or fewer problems "
                "(--shapes)");
  }

  std::string head(magic);
  append_little_endian(head, wisdom_version, 4);
  append_little_endian(head, manifest.size(), 4);
  append_little_endian(head, records_text.size(), 8);
  append_little_endian(head, kernels_bytes, 8);

  OutputFile out(file);
  Hasher hasher;
  const auto write = [&](std::string_view bytes) {
    hasher.add(bytes);
    if (!out.write(bytes)) {
      throw Error(ErrorCode::io, "cannot write " + file.string() + ": " + out.why() + "; make room or write elsewhere");
    }
  };
  for (const std::string& text : {head, manifest, records_text}) write(text);
  for (const StoredKernel& kernel : kernels) write(read_kernel(kernel));
  write(hasher.digest());
  if (!out.publish()) {
    throw Error(ErrorCode::io, "cannot write " + file.string() + ": " + out.why() + "; make room or write elsewhere");
  }
}

std::string read_kernel(const StoredKernel& kernel) {
  auto bytes = read_part(kernel.file, kernel.offset, kernel.bytes);
  std::string why = bytes ? "" : text_of(errno);
  if (bytes && unpack_entry(*bytes, kernel.digest, &why)) return *std::move(bytes);
  throw Error(ErrorCode::io,
              "cannot read the kernel " + kernel.digest + " in " + kernel.file.string() + ": " + why + "; try again");
}

}  // namespace jitgemm
