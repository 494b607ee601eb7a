#include "jit/template_values.hpp"

#include <filesystem>

#include "jit/templates.hpp"
#include "jitgemm/error.hpp"
#include "util/atomic_file.hpp"
#include "util/environment.hpp"

namespace jitgemm {
namespace {

/// Calls on_text with what stands between the ${name}, on_name with each of them, in order.
template <typename OnText, typename OnName>
void walk(std::string_view text, OnText on_text, OnName on_name) {
  for (;;) {
    const auto begin = text.find("${");
    on_text(text.substr(0, begin));
    if (begin == std::string_view::npos) return;
    const auto end = text.find('}', begin);
    if (end == std::string_view::npos) return on_name(text.substr(begin));
    on_name(text.substr(begin + 2, end - begin - 2));
    text.remove_prefix(end + 1);
  }
}

}  // namespace

std::string template_file(const std::string& name) {
  const auto directory = environment("JITGEMM_TEMPLATES_DIR");
  if (!directory) return without_includes(template_text(name));
  const auto path = std::filesystem::path(*directory) / name;
  if (auto text = read_file(path)) return without_includes(*text);
  throw Error(ErrorCode::invalid_option,
              "JITGEMM_TEMPLATES_DIR: cannot read " + path.string() + "; unset the variable");
}

std::string fill_in(const std::string& file, const TemplateValues& values) {
  std::string out;
  walk(
      template_file(file), [&](std::string_view text) { out += text; },
      [&](std::string_view name) {
        const auto value = values.find(name);
        if (value == values.end())
          throw Error(ErrorCode::internal, file + " has the unknown placeholder " + std::string(name));
        out += value->second;
      });
  return out;
}

bool may_give(const std::string& file, const TemplateValues& values, std::string_view text) {
  std::vector<std::string> literals(1);
  walk(
      template_file(file), [&](std::string_view literal) { literals.back() += literal; },
      [&](std::string_view name) {
        const auto value = values.find(name);
        if (value == values.end())
          literals.emplace_back();
        else
          literals.back() += value->second;
      });
  if (!text.starts_with(literals.front()) || !text.ends_with(literals.back())) return false;
  std::size_t at = 0;
  for (const std::string& literal : literals) {
    at = text.find(literal, at);
    if (at == std::string_view::npos) return false;
    at += literal.size();
  }
  return true;
}

std::string text_of(const std::vector<std::string>& names, const std::string& folder) {
  std::string text;
  for (const std::string& name : names) text += template_file(folder + name + ".cuh") + "\n";
  return text;
}

}  // namespace jitgemm
