#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace jitgemm {

/// What stands for each ${name} of a template.
using TemplateValues = std::map<std::string, std::string, std::less<>>;

/// A file of templates/ as kernels have it: without_includes(). For work on the templates: JITGEMM_TEMPLATES_DIR names
/// a folder that is read instead of the embedded files.
std::string template_file(const std::string& name);
/// Those of templates/FOLDER, one after the other: `names` are without their ".cuh".
std::string text_of(const std::vector<std::string>& names, const std::string& folder = "");

/// Replaces each ${name}. An unknown name is a bug of the template. Values are taken as they are.
std::string fill_in(const std::string& file, const TemplateValues& values);
/// Whether fill_in() may give this text with these values and some for the other names.
bool may_give(const std::string& file, const TemplateValues& values, std::string_view text);

}  // namespace jitgemm
