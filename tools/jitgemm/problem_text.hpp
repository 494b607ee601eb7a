#pragma once

#include <string>
#include <string_view>

#include "jitgemm/jitgemm.hpp"

namespace jitgemm::cli {

// What there is, for help and errors: "none, relu, ... or silu".
std::string input_type_names();
std::string output_type_names();
std::string bias_names();
std::string activation_names();
std::string accumulation_names();

/// The type of D where none is given.
DataType default_output(DataType a);

/// "m=64 n=64 ... " as to_string(Problem) prints it, or "64x64x64". Without b it is a, and without d default_output(a).
Problem parse_problem(const std::string& line);
/// Sets what to_string(Problem) calls `name`. `given` is how the user wrote it, if not as "name=value".
void set_field(Problem& problem, std::string_view name, const std::string& value, const std::string& given = {});
/// "nn", "nt", "tn" or "tt", of A and B.
void set_layouts(Problem& problem, const std::string& text);

}  // namespace jitgemm::cli
