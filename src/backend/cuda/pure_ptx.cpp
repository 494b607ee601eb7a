#include "backend/cuda/pure_ptx.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace jitgemm::cuda {
namespace {

// PTX ISA 9.0: integer and floating-point arithmetic, comparison, logic, conversion and branches. All else is refused.
constexpr std::array<std::string_view, 61> pure = {
    "abs",      "add",   "addc", "and",   "bfe",  "bfi",   "bfind",  "bmsk", "bra", "brev", "brx",  "clz",  "cnot",
    "copysign", "cos",   "cvt",  "div",   "dp2a", "dp4a",  "ex2",    "fma",  "fns", "lg2",  "lop3", "mad",  "mad24",
    "madc",     "max",   "min",  "mov",   "mul",  "mul24", "neg",    "not",  "or",  "popc", "prmt", "rcp",  "rem",
    "ret",      "rsqrt", "sad",  "selp",  "set",  "setp",  "shf",    "shl",  "shr", "sin",  "slct", "sqrt", "sub",
    "subc",     "szext", "tanh", "testp", "xor",  "exit",  "pragma", "add2", "nop"};

struct Refused {
  std::string_view opcode, why;
};
constexpr std::string_view touches_memory =
    "touches memory: values come by args and go by out and the result, and arrays are indexed by constants";
constexpr std::string_view synchronises = "waits for or speaks to other threads: each element is on its own";
constexpr std::array refusals = {
    Refused{"call", "calls a function that is not inlined, by recursion say: write it as a loop of known length"},
    Refused{"ld", touches_memory},
    Refused{"st", touches_memory},
    Refused{"atom", touches_memory},
    Refused{"red", touches_memory},
    Refused{"bar", synchronises},
    Refused{"barrier", synchronises},
    Refused{"shfl", synchronises},
    Refused{"vote", synchronises},
    Refused{"match", synchronises},
    Refused{"activemask", synchronises},
    Refused{"trap", "ends the kernel: give NaN"},
};

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  return text;
}

std::string_view until(std::string_view text, std::string_view ends) {
  return text.substr(0, text.find_first_of(ends));
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) return std::nullopt;
  return value;
}

/// Registers that the hardware gives a value, other in each thread or at each time.
bool names_special_register(std::string_view operands) {
  constexpr std::array<std::string_view, 16> special = {
      "%tid",   "%ntid",   "%laneid", "%warpid", "%nwarpid",  "%ctaid",   "%nctaid", "%smid",
      "%nsmid", "%gridid", "%clock",  "%global", "%lanemask", "%cluster", "%envreg", "%pm"};
  return std::ranges::any_of(special,
                             [&](std::string_view name) { return operands.find(name) != std::string_view::npos; });
}

class Reader {
 public:
  std::string refuse(std::string_view line) {
    line = trimmed(line);
    if (line.starts_with(".file")) return note_file(line);
    if (line.starts_with(".loc")) return note_line(line);
    if (line.starts_with("@")) line = trimmed(line.substr(std::min(line.find(' '), line.size())));
    if (line.empty() || std::string_view(".{}()/$,").find(line[0]) != std::string_view::npos) return {};
    const std::string_view instruction = until(line, " \t;"), opcode = until(instruction, ".");
    if (opcode.ends_with(":")) return {};
    if (instruction.starts_with("ld.param") || instruction.starts_with("st.param")) return {};
    if (names_special_register(line.substr(instruction.size())))
      return said(instruction, "asks which thread it is, or what time: use args.row and args.column");
    if (std::ranges::find(pure, opcode) != pure.end()) return {};
    const auto* const known = std::ranges::find(refusals, opcode, &Refused::opcode);
    return said(instruction, known != refusals.end() ? known->why : "is more than arithmetic: leave it away");
  }

 private:
  std::string said(std::string_view instruction, std::string_view why) const {
    return line_ + std::string(instruction) + " " + std::string(why);
  }
  /// .file 2 "epilogue"
  std::string note_file(std::string_view line) {
    const std::string_view rest = trimmed(line.substr(5));
    const std::size_t name = rest.find('"');
    if (name == std::string_view::npos) return {};
    const std::string_view path = until(rest.substr(name + 1), "\"");
    if (path == "epilogue" || path.ends_with("/epilogue")) own_file_ = number(rest);
    return {};
  }
  /// .loc 2 3 5
  std::string note_line(std::string_view line) {
    const std::string_view rest = trimmed(line.substr(4));
    if (!own_file_ || number(rest) != own_file_) return {};
    if (const auto at = number(trimmed(rest.substr(until(rest, " ").size()))))
      line_ = "line " + std::to_string(*at) + ": ";
    return {};
  }

  std::optional<int> own_file_;
  std::string line_;
};

}  // namespace

std::string why_ptx_refused(std::string_view ptx, std::string_view function) {
  Reader reader;
  const auto read = [&reader](std::string_view text) {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      if (std::string why = reader.refuse(text.substr(begin, end - begin)); !why.empty()) return why;
      begin = end + 1;
    }
    return std::string();
  };
  // Files are named at the end.
  if (const std::size_t files = ptx.find("\n\t.file"); files != std::string_view::npos) read(ptx.substr(files));
  const std::size_t name = ptx.find(" " + std::string(function) + "(");
  if (name == std::string_view::npos) return {};
  const std::size_t begin = std::min(ptx.find("\n{", name), ptx.size()), end = ptx.find("\n}", begin);
  return read(ptx.substr(begin, end - begin));
}

}  // namespace jitgemm::cuda
