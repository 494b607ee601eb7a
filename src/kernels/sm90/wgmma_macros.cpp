#include "kernels/sm90/wgmma_macros.hpp"

namespace jitgemm {
namespace {

/// "item(0), item(1), ...", ten a line.
template <typename Item>
std::string list(int count, const std::string& line_break, Item item) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (i > 0) text += ", ";
    if (i > 0 && i % 10 == 0) text += line_break;
    text += item(i);
  }
  return text;
}

}  // namespace

std::string wgmma_macros(DataType a, DataType b, int block_n) {
  int registers = block_n / 2;
  const auto name = [](int i) { return "%" + std::to_string(i); };
  const auto operand = [](int i) { return "C(d[" + std::to_string(i) + "])"; };
  std::string text =
      "\n#define WGMMA_TYPES WGMMA_" + std::string(to_string(a)) + "_" + std::string(to_string(b)) + "\n";
  text += "// What the wgmma statement calls its operands: the accumulators d, and those behind them.\n";
  text += "#define WGMMA_N \"" + std::to_string(block_n) + "\"\n";
  text += "#define WGMMA_D  \\\n  \"{" + list(registers, "\"  \\\n  \"", name) + "}\"\n";
  text += "#define WGMMA_D_OPERANDS(C)  \\\n  " + list(registers, " \\\n  ", operand) + "\n";
  for (const char* behind : {"A", "B", "ACCUMULATE", "STEP_A", "STEP_B", "TRANSPOSE_A", "TRANSPOSE_B"})
    text += "#define WGMMA_" + std::string(behind) + " \"" + name(registers++) + "\"\n";
  return text;
}

}  // namespace jitgemm
