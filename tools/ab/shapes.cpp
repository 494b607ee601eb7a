#include "shapes.hpp"

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace ab {

std::vector<Shape> read_shapes(const std::vector<std::string>& files) {
  std::vector<Shape> shapes;
  for (const std::string& name : files) {
    std::ifstream file(name);
    if (!file) throw std::runtime_error("cannot read " + name);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line.substr(0, line.find('#')));
      Shape shape;
      if (words >> shape.m >> shape.n >> shape.k) shapes.push_back(shape);
    }
  }
  return shapes;
}

}  // namespace ab
