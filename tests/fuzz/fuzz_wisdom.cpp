// A wisdom file. The first byte chooses how much of it is the input's: all of it; all but a right checksum; manifest
// and records, cut in two at the first line end, in a file that is right otherwise; or one kernel with a checksum of
// its own.
#include <fstream>
#include <iterator>

#include "fuzz.hpp"
#include "jitgemm/error.hpp"
#include "tune/wisdom.hpp"
#include "util/hash.hpp"

using namespace jitgemm;

namespace {

void append(std::string& bytes, std::uint64_t value, int width) {
  for (int i = 0; i < width; ++i) bytes += char(value >> (8 * i));
}

std::string wisdom_of(std::string_view manifest, std::string_view records, std::string_view kernels) {
  std::string bytes = "jitwisdm";
  append(bytes, wisdom_version, 4);
  append(bytes, manifest.size(), 4);
  append(bytes, records.size(), 8);
  append(bytes, kernels.size(), 8);
  return bytes.append(manifest).append(records).append(kernels);
}

std::string with_kernel(std::string_view text) {
  const std::string kernel = std::string(text) + digest_of(text);
  const std::string digest(text.size() >= 64 ? text.substr(32, 32) : "");
  for (const char letter : digest) {
    if (std::string_view("0123456789abcdef").find(letter) == std::string_view::npos) return wisdom_of("", "", kernel);
  }
  const std::string manifest = R"({"library":"0","records":0,"kernels":[{"digest":")" + digest +
                               R"(","architecture":"sm_90a","bytes":)" + std::to_string(kernel.size()) + "}]}";
  return wisdom_of(manifest, "", kernel);
}

std::string text_in(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void check(const std::filesystem::path& file) {
  StoredWisdom wisdom;
  try {
    wisdom = read_wisdom_file(file);
  } catch (const Error& error) {
    fuzz::expect(error.code() == ErrorCode::io, "the error is about the file");
    fuzz::expect(std::string_view(error.what()).find(file.string()) != std::string_view::npos,
                 "the error names the file");
    return;
  }
  const StoredWisdom merged = merge_stored({wisdom, wisdom});
  fuzz::expect(diff_stored(merged, wisdom).equal(), "merged with itself it stays the same");
  const auto again = fuzz::scratch() / "again.wisdom", third = fuzz::scratch() / "third.wisdom";
  write_wisdom_file(again, merged.records, merged.kernels);
  const StoredWisdom same = read_wisdom_file(again);
  fuzz::expect(diff_stored(wisdom, same).equal() && same.kernels.size() == merged.kernels.size(),
               "what is written reads the same");
  fuzz::expect(same.foreign_records == 0 && same.foreign_kernels == 0, "what is written is of this version");
  write_wisdom_file(third, same.records, same.kernels);
  fuzz::expect(text_in(again) == text_in(third), "the same content gives the same bytes");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Bytes input(data, size);
  const int mode = input.take<std::uint8_t>() % 4;
  const std::string_view rest = input.rest();
  std::string bytes(rest);
  if (mode == 2) {
    const std::size_t cut = std::min(rest.find('\n'), rest.size());
    bytes = wisdom_of(rest.substr(0, cut), rest.substr(std::min(cut + 1, rest.size())), "");
  } else if (mode == 3) {
    bytes = with_kernel(rest);
  }
  if (mode > 0) bytes += digest_of(bytes);
  check(fuzz::write_scratch("input.wisdom", bytes));
  return 0;
}
