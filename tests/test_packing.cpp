#include "kernels/packing.hpp"

#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes)
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes)
#endif

#include "backend/backend.hpp"
#include "catch.hpp"
#include "core/operand_matrix.hpp"
#include "core/problem.hpp"
#include "exact_memory.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/error.hpp"
#include "random.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

constexpr Layout rows = Layout::row_major, columns = Layout::column_major;
constexpr KernelConfig packed_a{.main_loop = MainLoop::sm90, .pack_a = true},
    packed_b{.main_loop = MainLoop::sm90, .pack_b = true},
    packed_both{.main_loop = MainLoop::sm90, .pack_a = true, .pack_b = true};

}  // namespace

TEST_CASE("16-bit operands are packed as they lie, with rows of whole lines", "[packing]") {
  const NormalProblem asked =
      normalise({.m = 5, .n = 9, .k = 17, .a = {.ld = 19}, .b = {.layout = columns, .alignment = 2}});
  const NormalProblem p = packed_problem(asked, packed_both);
  CHECK(p.a.layout == rows);
  CHECK(p.b.layout == columns);
  CHECK(p.a.ld == 64);
  CHECK(p.b.ld == 64);
  CHECK(p.a.alignment == 16);
  CHECK(p.b.alignment == 16);
  CHECK(p.k == 17);  // TMA reads zeros from there on
  CHECK(equal(packed_problem(p, packed_both), p));
  CHECK(equal(packed_problem(asked, KernelConfig{}), asked));

  const NormalProblem one = packed_problem(asked, packed_b);
  CHECK(one.a.ld == asked.a.ld);
  CHECK(one.a.alignment == asked.a.alignment);
}

TEST_CASE("All other operands become K-major", "[packing]") {
  const NormalProblem asked = normalise(
      {.m = 33, .n = 40, .k = 70, .a = {.type = e4m3, .layout = columns}, .b = {.type = e5m2, .layout = rows}});
  CHECK(transposes_a(asked, packed_both));
  CHECK(transposes_b(asked, packed_both));
  CHECK_FALSE(transposes_b(asked, packed_a));
  const NormalProblem p = packed_problem(asked, packed_both);
  CHECK(p.a.layout == rows);
  CHECK(p.b.layout == columns);
  CHECK(p.a.ld == 128);
  CHECK(p.b.ld == 128);
  CHECK(packed_problem(asked, packed_a).b.layout == rows);
  const NormalProblem words = normalise({.m = 8, .n = 8, .k = 3, .a = {tf32}, .b = {tf32}, .d = {f32}});
  CHECK_FALSE(transposes_a(words, packed_both));
  CHECK(packed_problem(words, packed_both).b.ld == 32);
}

TEST_CASE("Copies lie in the workspace one behind the other, each matrix once", "[packing]") {
  const NormalProblem asked = normalise({.m = 5, .n = 9, .k = 17, .batch = 3, .b = {.stride = 0}});
  const NormalProblem p = packed_problem(asked, packed_both);
  CHECK(p.a.stride == 5 * 64);
  CHECK(p.b.stride == 0);
  const Packing packing = packing_of(asked, packed_both);
  CHECK(packing.offset_b == 0);
  CHECK(packing.offset_a == 2304);  // 17 x 64 x 2 bytes, rounded up to 256
  CHECK(packing.bytes == 2304 + 3 * 5 * 64 * 2);
  CHECK(packing.launch.grid == packing.blocks_a + packing.blocks_b);
  CHECK(packing.blocks_a == 1);
  CHECK(packing_of(asked, packed_a).offset_a == 0);
  CHECK(packing_of(asked, packed_b).blocks_a == 0);
  CHECK(packing_of(asked, KernelConfig{}).launch.grid == 0);

  KernelConfig split = packed_both;
  split.block_k = 64, split.warps = 8, split.schedule = Schedule::split_k, split.splits = 2;
  const LaunchShape shape = launch_shape(normalise({.m = 5, .n = 9, .k = 170}), split);
  CHECK(shape.partial_bytes == 2 * 128 * 128 * 4);
  CHECK(shape.packed_offset() == shape.partial_bytes);
  CHECK(shape.workspace_bytes() == shape.partial_bytes + shape.packed_bytes);
}

TEST_CASE("Slabs are whole tiles, nearly alike, whose copies fit into the workspace", "[packing]") {
  KernelConfig config = packed_both;
  config.block_n = 256;
  const auto slab = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    const NormalProblem p = normalise({.m = m, .n = n, .k = k});
    CHECK(packing_of(p, config).bytes <= max_packed_bytes);
    const Slab s = slab_of(p, config);
    return std::pair(s.rows, s.columns);
  };
  CHECK(slab(4095, 4095, 4095) == std::pair<std::int64_t, std::int64_t>(4095, 4095));
  CHECK(slab(7312, 1099, 8129) == std::pair<std::int64_t, std::int64_t>(2560, 1099));  // B, 19 MB, is there at once
  CHECK(slab(1000, 8191, 8191) == std::pair<std::int64_t, std::int64_t>(1000, 2816));  // 3 slabs
  CHECK(slab(8191, 8191, 8191) == std::pair<std::int64_t, std::int64_t>(1664, 1792));  // a quarter and a bit each
  config.pack_b = false;
  CHECK(slab(7776, 8000, 4222) == std::pair<std::int64_t, std::int64_t>(7776, 8000));
}

TEST_CASE("The grid of the packing kernel follows the bytes and stays within one wave", "[packing]") {
  const auto blocks = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    const Packing packing = packing_of(normalise({.m = m, .n = n, .k = k}), packed_both);
    return std::pair(packing.blocks_a, packing.blocks_b);
  };
  CHECK(blocks(1, 1, 1) == std::pair(1, 1));
  CHECK(blocks(511, 64, 511) == std::pair(128, 16));  // a chunk a thread
  CHECK(blocks(4095, 1, 4095).first + blocks(4095, 1, 4095).second == 528);
  CHECK(blocks(4095, 1, 4095).second >= 1);
  CHECK(blocks(1, 4095, 4095).first >= 1);
  CHECK(blocks(3000, 1000, 3000).first > 2 * blocks(3000, 1000, 3000).second);
}

namespace {

/// An operand of the packing kernel alone, and its copy.
struct PackCase {
  int size;
  bool transposed;
  OperandMatrix matrix{};
  int offset = 0, blocks = 1;
};

OperandMatrix matrix_of(std::int64_t extent, std::int64_t vectors, std::int64_t ld, std::int64_t batch,
                        std::int64_t stride) {
  return {extent, vectors, f16, ld, batch, stride};
}

class Packed {
 public:
  Packed(const PackCase& pack, Random& random)
      : case_(pack), source_bytes_(std::size_t(pack.offset + pack.matrix.batch_span() * pack.size)) {
    const OperandMatrix& s = pack.matrix;
    source_ = allocate_exactly(source_bytes_, 16);
    for (std::size_t i = 0; i < source_bytes_; ++i) source_.get()[i] = char(random.next());
    ASAN_POISON_MEMORY_REGION(source_.get(), pack.offset / 8 * 8);
    length_ = pack.transposed ? s.vectors : s.extent;
    rows_ = pack.transposed ? s.extent : s.vectors;
    chunks_ = (length_ * pack.size + 15) / 16;
    row_chunks_ = chunks_ + int(random.between(0, 2));
    packed_bytes_ = std::size_t(((rows_ * s.batch - 1) * row_chunks_ + chunks_) * 16);
    packed_ = allocate_exactly(packed_bytes_, 256);
    std::memset(packed_.get(), 0xff, packed_bytes_);
  }
  ~Packed() { ASAN_UNPOISON_MEMORY_REGION(source_.get(), case_.offset / 8 * 8); }

  device::PackedOperand argument() const {
    const OperandMatrix& s = case_.matrix;
    return {source_.get() + case_.offset,
            packed_.get(),
            s.ld,
            s.stride,
            int(s.extent),
            int(s.vectors),
            int(s.batch),
            int(chunks_),
            int(row_chunks_),
            case_.blocks};
  }

  /// Empty, or the first element that is wrong.
  std::string violation() const {
    const OperandMatrix& s = case_.matrix;
    const auto size = std::size_t(case_.size);
    for (std::int64_t batch = 0; batch < s.batch; ++batch) {
      for (std::int64_t row = 0; row < rows_; ++row) {
        for (std::int64_t i = 0; i < length_; ++i) {
          const std::int64_t element = case_.transposed ? i * s.ld + row : row * s.ld + i;
          const char* from = source_.get() + case_.offset + std::size_t(batch * s.stride + element) * size;
          const char* to =
              packed_.get() + std::size_t((batch * rows_ + row) * row_chunks_ * 16) + std::size_t(i) * size;
          if (std::memcmp(from, to, size) != 0)
            return "element " + std::to_string(i) + " of row " + std::to_string(row) + " of matrix " +
                   std::to_string(batch);
        }
        const std::int64_t next = (batch * rows_ + row + 1) * row_chunks_, gap = row_chunks_ - chunks_;
        for (std::int64_t i = (next - gap) * 16; i < next * 16 && i < std::int64_t(packed_bytes_); ++i) {
          if (packed_.get()[i] != char(0xff)) return "byte " + std::to_string(i) + ", between two rows, is written";
        }
      }
    }
    return "";
  }

 private:
  PackCase case_;
  std::size_t source_bytes_, packed_bytes_;
  Memory source_, packed_;
  std::int64_t length_, rows_, chunks_, row_chunks_;
};

std::string describe(const PackCase& c) {
  const OperandMatrix& s = c.matrix;
  return std::to_string(c.size) + " bytes" + (c.transposed ? " transposed" : "") + ", " + std::to_string(s.batch) +
         " x " + std::to_string(s.vectors) + " x " + std::to_string(s.extent) + ", ld " + std::to_string(s.ld) +
         ", stride " + std::to_string(s.stride) + ", offset " + std::to_string(c.offset) + ", " +
         std::to_string(c.blocks) + " blocks";
}

/// The kernels of one element size, by what they transpose.
class PackingKernels {
 public:
  explicit PackingKernels(std::uint64_t seed)
      : backend_(make_emulator_backend({.architecture = "sm_90a", .seed = seed})) {}

  void launch(const PackCase& a, const PackCase& b, const device::PackArguments& arguments) {
    const LaunchGrid grid{.grid = a.blocks + b.blocks, .threads = 256, .smem_bytes = smem_bytes};
    backend_->launch(*kernel(a.size, a.transposed, b.transposed), grid, bytes_of(arguments), nullptr);
  }

 private:
  static constexpr std::size_t smem_bytes = 128 * 128;

  const LoadedKernel* kernel(int size, bool transpose_a, bool transpose_b) {
    auto& loaded = kernels_[{size, transpose_a, transpose_b}];
    if (!loaded) loaded = backend_->load(binary(size, transpose_a, transpose_b), smem_bytes);
    return loaded.get();
  }
  const KernelBinary& binary(int size, bool transpose_a, bool transpose_b) {
    static std::map<std::string, KernelBinary> binaries;
    Problem p{.m = 8,
              .n = 8,
              .k = 8,
              .a = {.layout = transpose_a ? columns : rows},
              .b = {.layout = transpose_b ? rows : columns}};
    if (size == 1) p.a.type = p.b.type = e4m3;
    if (size == 4) p.a.type = p.b.type = tf32, p.d.type = f32;
    const KernelSource source = generate_packing(normalise(p), packed_both, backend_->device());
    KernelBinary& binary = binaries[source.text];
    if (binary.code.empty()) binary = backend_->compile(source);
    return binary;
  }

  std::unique_ptr<Backend> backend_;
  std::map<std::tuple<int, bool, bool>, std::unique_ptr<LoadedKernel>> kernels_;
};

PackCase random_case(int size, Random& random) {
  PackCase c{.size = size, .transposed = size != 2 && random.between(0, 1) == 1};
  const std::int64_t extent = random.log_between(1, 300), vectors = random.log_between(1, 300);
  const std::int64_t ld = extent + (random.between(0, 1) ? random.between(0, 20) : 0);
  const int batch = random.between(0, 2) == 0 ? random.between(2, 3) : 1;
  const std::int64_t stride = batch == 1 ? 0 : vectors * ld + random.between(0, 9);
  c.matrix = matrix_of(extent, vectors, ld, batch, stride);
  c.offset = random.between(0, 16 / size - 1) * size;
  c.blocks = random.between(1, 4);
  return c;
}

/// What random cases seldom meet: several passes of a block, ends of rows at every place of a chunk, matrices that end
/// short of one.
std::vector<PackCase> chosen_cases(int size) {
  std::vector<PackCase> cases;
  const int first = size == 2 ? 0 : 1;
  for (int transposed = 0; transposed <= first; ++transposed) {
    cases.push_back({size, transposed == 1, matrix_of(16 * 9 / size, 700, 16 * 9 / size, 1, 0), 0, 2});
    cases.push_back({size, transposed == 1, matrix_of(131, 601, 133, 1, 0), 8, 1});
    cases.push_back({size, transposed == 1, matrix_of(1, 1, 1, 1, 0), size == 4 ? 12 : 10, 1});
    cases.push_back({size, transposed == 1, matrix_of(3, 5, 5, 3, 1000), size, 1});
    cases.push_back({size, transposed == 1, matrix_of(520, 9, 521, 2, 4692), 16 - size, 3});
    for (int extent = 1; extent <= 16 / size + 1; ++extent)
      cases.push_back({size, transposed == 1, matrix_of(extent, 7, extent, 1, 0), extent % (16 / size) * size, 1});
  }
  return cases;
}

/// Empty, or what is wrong.
std::string pack_and_check(PackingKernels& kernels, const PackCase& a, const PackCase& b, Random& random) {
  const Packed packed_a(a, random), packed_b(b, random);
  try {
    kernels.launch(a, b, {{packed_a.argument(), packed_b.argument()}});
  } catch (const Error& error) {
    return describe(a) + " and " + describe(b) + ": " + error.what() + "\n" + error.log();
  }
  if (const std::string wrong = packed_a.violation(); !wrong.empty()) return describe(a) + ": " + wrong;
  if (const std::string wrong = packed_b.violation(); !wrong.empty()) return describe(b) + ": " + wrong;
  return "";
}

}  // namespace

TEST_CASE("The packing kernel copies every element and touches nothing else", "[packing][emulated][removal][pack]") {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    PackingKernels kernels(seed);
    Random random(test_seed() + seed);
    for (const int size : {1, 2, 4}) {
      std::vector<PackCase> cases = chosen_cases(size);
      for (int i = 0; i < 12; ++i) cases.push_back(random_case(size, random));
      for (const PackCase& a : cases) {
        const std::string wrong = pack_and_check(kernels, a, random.pick(cases), random);
        if (wrong.empty()) continue;
        std::cout << "caught with seed " << seed << ": " << wrong << std::endl;
        FAIL("JITGEMM_TEST_SEED=" << test_seed() << ", seed " << seed << ": " << wrong);
      }
    }
  }
}
