#include "kernels/sm90/wgmma_text.hpp"

#include "core/type_rules.hpp"

namespace jitgemm {
namespace {

/// "item(0), item(1), ...", with a line break now and then.
template <typename Item>
std::string list(int count, const std::string& line_break, Item item) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (i > 0) text += i % 16 == 0 ? "," + line_break : ", ";
    text += item(i);
  }
  return text;
}

}  // namespace

std::string wgmma_text(const KernelProblem& p, int block_n) {
  const int registers = block_n / 2;
  const auto operand = [](int i) { return "%" + std::to_string(i); };
  const auto transposed = [](bool k_major) { return k_major ? ", 0" : ", 1"; };

  std::string shape = "m64n" + std::to_string(block_n) + "k" + std::to_string(32 / size_of(p.a.type)) + "." +
                      std::string(to_string(accumulator_of(p))) + "." + std::string(to_string(p.a.type)) + "." +
                      std::string(to_string(p.b.type));
  // That neither floating-point operand is negated; of 16-bit ones, which is transposed.
  std::string modifiers;
  if (p.a.type != s8) modifiers += ", 1, 1";
  if (size_of(p.a.type) == 2) {
    modifiers += transposed(p.a.layout == Layout::row_major);
    modifiers += transposed(p.b.layout == Layout::column_major);
  }
  const std::string line_break = "\"  \\\n  \"   ";
  const std::string constraint = p.a.type == s8 ? "\"+r\"" : "\"+f\"";
  const std::string a = operand(registers), b = operand(registers + 1), step_a = operand(registers + 2),
                    step_b = operand(registers + 3), accumulate = operand(registers + 4);
  std::string text = "\n#define WGMMA_TEXT  \\\n  \"{ .reg .pred p; .reg .b64 a, b;\"  \\\n";
  const auto line = [&text](const std::string& instructions) { text += "  \" " + instructions + "\"  \\\n"; };
  line("setp.ne.b32 p, " + accumulate + ", 0; mov.b64 a, " + a + "; mov.b64 b, " + b + ";");
  for (int i = 0; i < 4; ++i) {
    if (i > 0) line("add.s64 a, a, " + step_a + "; add.s64 b, b, " + step_b + ";");
    line("wgmma.mma_async.sync.aligned." + shape);
    line("  {" + list(registers, line_break, operand) + "},");
    line("  a, b, " + std::string(i == 0 ? "p" : "1") + modifiers + ";");
  }
  return text + "  \"}\"\n#define WGMMA_D " +
         list(registers, "  \\\n  ", [&](int i) { return constraint + "(d[" + std::to_string(i) + "])"; }) + "\n";
}

}  // namespace jitgemm
