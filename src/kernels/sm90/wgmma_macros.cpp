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

std::string wgmma_macros(DataType a, DataType b, const std::vector<int>& widths, bool reads_d) {
  const auto name = [](int i) { return "%" + std::to_string(i); };
  const auto operand = [](int i) { return "C(d[" + std::to_string(i) + "])"; };
  std::string text =
      "\n#define WGMMA_TYPES WGMMA_" + std::string(to_string(a)) + "_" + std::string(to_string(b)) + "\n";
  text += std::string("#define WGMMA_D_ACCESS \"") + (reads_d ? "+" : "=") + "\"\n";
  text += "// What the wgmma statement calls its operands: the accumulators d, and those behind them.\n";
  std::string all;
  for (const int width : widths) {
    const std::string n = std::to_string(width);
    int registers = width / 2;
    all += " F(" + n + ")";
    text += "#define WGMMA_D_" + n + "  \\\n  \"{" + list(registers, "\"  \\\n  \"", name) + "}\"\n";
    text += "#define WGMMA_D_OPERANDS_" + n + "(C)  \\\n  " + list(registers, " \\\n  ", operand) + "\n";
    for (const char* behind : {"A", "B", "ACCUMULATE", "STEP_A", "STEP_B", "TRANSPOSE_A", "TRANSPOSE_B"})
      text += "#define WGMMA_" + std::string(behind) + "_" + n + " \"" + name(registers++) + "\"\n";
  }
  return text + "#define WGMMA_WIDTHS(F)" + all + "\n";
}

}  // namespace jitgemm
