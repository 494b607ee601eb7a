#include "core/epilogue_text.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace jitgemm {
namespace {

constexpr std::string_view lower = "abcdefghijklmnopqrstuvwxyz", digits = "0123456789",
                           upper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

bool starts_word(char c) {
  return lower.find(c) != std::string_view::npos || upper.find(c) != std::string_view::npos || c == '_';
}
bool continues_word(char c) { return starts_word(c) || digits.find(c) != std::string_view::npos; }

// What would make the function another than one of its arguments, or reach beyond it.
constexpr std::array refused_words{
    std::string_view("asm"),
    std::string_view("extern"),
    std::string_view("namespace"),
    std::string_view("thread_local"),
    std::string_view("volatile"),
    std::string_view("new"),
    std::string_view("delete"),
    std::string_view("throw"),
    std::string_view("try"),
    std::string_view("goto"),
    std::string_view("register"),
    std::string_view("import"),
    std::string_view("reinterpret_cast"),
    std::string_view("const_cast"),
    std::string_view("module"),
    std::string_view("jitgemm"),
    std::string_view("std"),
    std::string_view("ptx"),
    std::string_view("threadIdx"),
    std::string_view("blockIdx"),
    std::string_view("blockDim"),
    std::string_view("gridDim"),
    std::string_view("printf"),
    std::string_view("malloc"),
    std::string_view("free"),
    std::string_view("co_await"),
    std::string_view("co_yield"),
    std::string_view("co_return"),
    std::string_view("friend"),
    std::string_view("virtual"),
    std::string_view("mutable"),
};
constexpr std::array declaring_words{
    std::string_view("__device__"), std::string_view("constexpr"),     std::string_view("struct"),
    std::string_view("enum"),       std::string_view("using"),         std::string_view("template"),
    std::string_view("inline"),     std::string_view("static_assert"),
};
// Of an operand: of C++ and CUDA, and of what Args has besides.
constexpr std::array reserved_names{
    std::string_view("alignas"),      std::string_view("alignof"),   std::string_view("and"),
    std::string_view("and_eq"),       std::string_view("auto"),      std::string_view("bitand"),
    std::string_view("bitor"),        std::string_view("bool"),      std::string_view("break"),
    std::string_view("case"),         std::string_view("catch"),     std::string_view("char"),
    std::string_view("char16_t"),     std::string_view("char32_t"),  std::string_view("char8_t"),
    std::string_view("class"),        std::string_view("compl"),     std::string_view("concept"),
    std::string_view("const"),        std::string_view("consteval"), std::string_view("constexpr"),
    std::string_view("constinit"),    std::string_view("continue"),  std::string_view("decltype"),
    std::string_view("default"),      std::string_view("do"),        std::string_view("double"),
    std::string_view("dynamic_cast"), std::string_view("else"),      std::string_view("enum"),
    std::string_view("explicit"),     std::string_view("export"),    std::string_view("false"),
    std::string_view("float"),        std::string_view("for"),       std::string_view("if"),
    std::string_view("inline"),       std::string_view("int"),       std::string_view("linux"),
    std::string_view("long"),         std::string_view("noexcept"),  std::string_view("not"),
    std::string_view("not_eq"),       std::string_view("nullptr"),   std::string_view("operator"),
    std::string_view("or"),           std::string_view("or_eq"),     std::string_view("private"),
    std::string_view("protected"),    std::string_view("public"),    std::string_view("requires"),
    std::string_view("return"),       std::string_view("short"),     std::string_view("signed"),
    std::string_view("sizeof"),       std::string_view("static"),    std::string_view("static_assert"),
    std::string_view("static_cast"),  std::string_view("struct"),    std::string_view("switch"),
    std::string_view("template"),     std::string_view("this"),      std::string_view("true"),
    std::string_view("typedef"),      std::string_view("typeid"),    std::string_view("typename"),
    std::string_view("union"),        std::string_view("unix"),      std::string_view("unsigned"),
    std::string_view("using"),        std::string_view("void"),      std::string_view("wchar_t"),
    std::string_view("while"),        std::string_view("xor"),       std::string_view("xor_eq"),
    std::string_view("row"),          std::string_view("column"),    std::string_view("batch"),
};

// After one of these, as after an operator, `*` and `&` do not multiply and mask.
constexpr std::array before_operands{
    std::string_view("return"),   std::string_view("case"),   std::string_view("else"),   std::string_view("do"),
    std::string_view("const"),    std::string_view("float"),  std::string_view("double"), std::string_view("int"),
    std::string_view("unsigned"), std::string_view("signed"), std::string_view("long"),   std::string_view("short"),
    std::string_view("char"),     std::string_view("bool"),   std::string_view("void"),   std::string_view("auto"),
};

template <std::size_t SIZE>
bool is_one_of(std::string_view word, const std::array<std::string_view, SIZE>& words) {
  return std::ranges::find(words, word) != words.end();
}

struct Token {
  std::string_view text;  // a word, a number or one other character
  int line;
};

/// What is left of the code without comments and space.
class Scanner {
 public:
  Scanner(std::string_view code, int first_line) : code_(code), line_(first_line) {}

  /// nullopt at the end, and where something is refused.
  std::optional<Token> next() {
    while (at_ < code_.size()) {
      const char c = code_[at_];
      const std::string_view rest = code_.substr(at_);
      if (c == '\n') {
        ++line_;
        ++at_;
      } else if (c == ' ' || c == '\t' || c == '\r') {
        ++at_;
      } else if (rest.starts_with("//")) {
        at_ = std::min(code_.find('\n', at_), code_.size());
      } else if (rest.starts_with("/*")) {
        const std::size_t end = code_.find("*/", at_ + 2);
        if (end == std::string_view::npos) return refuse("a comment has no end: close it with */");
        line_ += int(std::ranges::count(code_.substr(at_, end - at_), '\n'));
        at_ = end + 2;
      } else if (continues_word(c)) {
        return taken(length_of_word(rest, digits.find(c) != std::string_view::npos));
      } else if (c == '#' || rest.starts_with("%:")) {
        return refuse("a preprocessor directive: write it out, with constexpr instead of #define");
      } else if (c == '"' || c == '\'') {
        return refuse("a string or a character: an epilogue has numbers alone");
      } else if (static_cast<unsigned char>(c) >= 0x7f) {
        return refuse("a character outside of ASCII: it may stand in comments alone");
      } else {
        return taken(1);
      }
    }
    return std::nullopt;
  }
  const std::string& refused() const { return refused_; }

 private:
  /// A number takes its digits' separators along.
  static std::size_t length_of_word(std::string_view text, bool number) {
    std::size_t length = 1;
    while (length < text.size() &&
           (continues_word(text[length]) ||
            (number && text[length] == '\'' && length + 1 < text.size() && continues_word(text[length + 1]))))
      ++length;
    return length;
  }
  std::optional<Token> taken(std::size_t length) {
    const Token token{code_.substr(at_, length), line_};
    at_ += length;
    return token;
  }
  std::optional<Token> refuse(const std::string& why) {
    refused_ = "line " + std::to_string(line_) + ": " + why;
    return std::nullopt;
  }

  std::string_view code_;
  std::size_t at_ = 0;
  int line_;
  std::string refused_;
};

std::string at_line(int line, const std::string& why) { return "line " + std::to_string(line) + ": " + why; }

/// Characters by which a compiler may see other lines and comments than this scanner: refused in comments, too.
std::string why_characters_refused(std::string_view code, int line) {
  for (std::size_t i = 0; i < code.size(); ++i) {
    const char c = code[i];
    const bool ends_line = c == '\r' && i + 1 < code.size() && code[i + 1] == '\n';
    if (c == '\\' || code.substr(i).starts_with("\?\?"))
      return at_line(line, "a backslash or a trigraph: join the lines");
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' && !ends_line)
      return at_line(line, "a control character: leave spaces, tabs and line ends");
    if (c == '\n') ++line;
  }
  return {};
}

/// What the words are that do not belong here.
std::string why_word_refused(const Token& token) {
  const std::string_view word = token.text;
  const std::string name(word);
  if (is_one_of(word, refused_words))
    return at_line(token.line, "\"" + name + "\" has no place in a function of values: leave it away");
  if (word == "__device__" || word == "__forceinline__") return {};
  if (word.find("__") != std::string_view::npos || word.starts_with("jitgemm") ||
      (word.size() > 1 && word[0] == '_' && starts_word(word[1])))
    return at_line(token.line, "\"" + name + "\" is a name of the compiler's or the library's: use another");
  return {};
}

/// Pointers and addresses, of which an epilogue has none: two neighbours tell them from products and masks.
class Pointers {
 public:
  /// Of each token in turn.
  std::string add(const Token& token) {
    const std::string_view text = token.text;
    std::string why;
    if (previous_ == "*" && (text == ")" || text == ">" || text == "," || text == "*" || text == "&"))
      why = refused(token.line, "*");
    if (text == "*" && !ends_operand(previous_)) why = refused(token.line, "*");
    // `&&` is two; what is captured by reference, or declared as one, has a type or a bracket before it.
    const bool declares = is_one_of(previous_, before_operands) && previous_ != "return" && previous_ != "case";
    if (text == "&" && previous_ != "&" && previous_ != "[" && !ends_operand(previous_) && !declares)
      why = refused(token.line, "&");
    if (previous_ == "-" && text == ">") why = refused(token.line, "->");
    if (has_no_length_ && (text == "," || text == ")"))
      why = at_line(token.line, "an array without a length is a pointer: give one");
    has_no_length_ = previous_ == "[" && text == "]";
    const bool casts = previous_ == ")" && before_previous_ == "&" && text != "const" && text != "noexcept" &&
                       (text == "(" || continues_word(text[0]));
    if (casts || (previous_ == "&" && text == ">"))
      why = at_line(token.line, "a cast to a reference: convert the value");
    before_previous_ = previous_;
    previous_ = text;
    return why;
  }

 private:
  static bool ends_operand(std::string_view text) {
    if (text.empty() || is_one_of(text, before_operands)) return false;
    return text == ")" || text == "]" || text == ">" || continues_word(text[0]);
  }
  static std::string refused(int line, const std::string& what) {
    return at_line(line, "\"" + what + "\" of a pointer: an epilogue gets values, and no address");
  }

  std::string_view previous_, before_previous_;
  bool has_no_length_ = false;  // of an array, up to here
};

/// What namespace scope has between two of its declarations' ends.
class Declarations {
 public:
  /// Of the tokens outside of all brackets, and the brackets themselves.
  std::string add(const Token& token) {
    if (first_.empty()) {
      first_ = token.text;
      line_ = token.line;
      if (token.text != ";" && !is_one_of(token.text, declaring_words))
        return at_line(token.line,
                       "\"" + std::string(token.text) +
                           "\" begins nothing that may stand here: functions begin with __device__, constants with "
                           "constexpr");
    }
    if (token.text == "(") has_parameters_ = true;
    if (has_parameters_ && previous_ == "epilogue" && token.text == "(" && first_ != "struct")
      epilogue_line_ = token.line;
    if (token.text == "constexpr") is_constant_ = true;
    const bool is_type = first_ == "struct" || first_ == "enum";
    const bool makes_types = is_type || first_ == "using" || first_ == "static_assert" || is_struct_template_;
    if (first_ == "template" && (token.text == "struct" || token.text == "using")) is_struct_template_ = true;
    const bool gives_value = token.text == "=" || token.text == ";" || token.text == "{" || token.text == "[";
    const bool follows_body = has_body_ && token.text != ";";
    if ((!makes_types && !is_constant_ && !has_parameters_ && gives_value) || (makes_types && follows_body))
      return at_line(line_, "a variable outlives the call: make it constexpr, or a local one");
    previous_ = token.text;
    if (token.text == ";") end();
    return {};
  }
  /// Of the tokens in the brackets of all of namespace scope.
  void add_within(const Token& token, std::size_t depth) {
    if (epilogue_line_ == 0) return;
    if (depth == 1 && token.text == ",") ++commas_;
    if (depth == 1 && token.text == "Args") is_of_pair_ = commas_ == 2;
  }
  /// A closing brace outside of all others: of a function it is the end.
  void close() {
    has_body_ = true;
    if (has_parameters_) end();
  }
  /// The same of a parenthesis.
  void close_parameters() {
    if (epilogue_line_ == 0) return;
    (is_of_pair_ ? pair_line_ : sum_line_) = epilogue_line_;
    epilogue_line_ = commas_ = 0;
    is_of_pair_ = false;
  }
  /// Lines of the function epilogue, of one sum (or what no compiler will take) and of a pair; 0: there is none.
  int sum_line() const { return sum_line_; }
  int pair_line() const { return pair_line_; }

 private:
  void end() {
    first_ = previous_ = {};
    has_parameters_ = is_constant_ = is_struct_template_ = has_body_ = false;
  }

  std::string_view first_, previous_;
  int line_ = 0;
  bool has_parameters_ = false, is_constant_ = false, is_struct_template_ = false, has_body_ = false;
  bool is_of_pair_ = false;             // two sums come before Args
  int epilogue_line_ = 0, commas_ = 0;  // of the parameters that are read
  int sum_line_ = 0, pair_line_ = 0;
};

constexpr std::string_view of_sum = "__device__ float epilogue(float x, const Args& args, Out& out)",
                           of_pair = "__device__ float epilogue(float gate, float up, const Args& args, Out& out)";

/// Whether what is defined is what the text says that it is.
std::string why_signature_refused(int sum_line, int pair_line, bool takes_pairs) {
  const std::string wanted(takes_pairs ? of_pair : of_sum);
  if (sum_line == 0 && pair_line == 0) return "there is no function \"epilogue\": define " + wanted;
  if (sum_line != 0 && pair_line != 0)
    return at_line(std::max(sum_line, pair_line),
                   "a second function \"epilogue\", of one sum where another is of a pair: keep one");
  if (takes_pairs && sum_line != 0)
    return at_line(sum_line,
                   "the function is not one of a pair, as the text's line \"// pairs\" says: define " + wanted);
  if (!takes_pairs && pair_line != 0)
    return at_line(pair_line,
                   "the function takes a pair: say in the text's first line which columns meet, \"// pairs halves\" or "
                   "\"// pairs neighbours\"");
  return {};
}

}  // namespace

std::string why_code_refused(std::string_view code, int first_line, bool takes_pairs) {
  if (std::string why = why_characters_refused(code, first_line); !why.empty()) return why;
  Scanner scanner(code, first_line);
  Pointers pointers;
  Declarations declarations;
  std::vector<Token> open;
  std::optional<Token> before;
  while (const auto token = scanner.next()) {
    if (before && before->text == "static" && token->text != "constexpr")
      return at_line(before->line,
                     "\"static\" has no place in a function of values, but for a constexpr: leave it away");
    before = token;
    if (std::string why = why_word_refused(*token); !why.empty()) return why;
    if (std::string why = pointers.add(*token); !why.empty()) return why;
    const char c = token->text.size() == 1 ? token->text[0] : ' ';
    const bool closes = c == ')' || c == ']' || c == '}';
    if (closes) {
      const char opened = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open.empty() || open.back().text[0] != opened)
        return at_line(token->line, std::string("\"") + c + "\" closes nothing: match the brackets");
      open.pop_back();
      if (open.empty() && c == '}') declarations.close();
      if (open.empty() && c == ')') declarations.close_parameters();
      continue;
    }
    if (open.empty()) {
      if (std::string why = declarations.add(*token); !why.empty()) return why;
    } else {
      declarations.add_within(*token, open.size());
    }
    if (c == '(' || c == '[' || c == '{') open.push_back(*token);
  }
  if (!scanner.refused().empty()) return scanner.refused();
  if (!open.empty())
    return at_line(open.back().line, "\"" + std::string(open.back().text) + "\" is never closed: match the brackets");
  return why_signature_refused(declarations.sum_line(), declarations.pair_line(), takes_pairs);
}

std::string error_of_epilogue(std::string_view log) {
  for (std::size_t begin = 0; begin < log.size();) {
    const std::size_t end = std::min(log.find('\n', begin), log.size());
    const std::string_view line = log.substr(begin, end - begin);
    const bool own =
        line.starts_with("epilogue(") || line.starts_with("epilogue:") || line.starts_with("call of the epilogue");
    if (own && line.find("error") != std::string_view::npos) return std::string(line);
    begin = end + 1;
  }
  return {};
}

bool is_operand_name(std::string_view name) {
  if (name.empty() || name.size() > 32 || lower.find(name[0]) == std::string_view::npos) return false;
  const auto fits = [](char c) {
    return lower.find(c) != std::string_view::npos || digits.find(c) != std::string_view::npos || c == '_';
  };
  return std::ranges::all_of(name, fits) && name.find("__") == std::string_view::npos &&
         !is_one_of(name, reserved_names) && !is_one_of(name, refused_words);
}

}  // namespace jitgemm
