#pragma once

#include <string>
#include <vector>

#include "shapes.hpp"

namespace ab {

/// Prints what the times come to, and writes a line a shape to the file, if it has a name.
void report(const std::vector<Shape>& shapes, const std::string& csv);

}  // namespace ab
