#pragma once

#include <string>
#include <vector>

namespace ab {

/// One of the corpus, with what both libraries make of it.
struct Shape {
  long long m = 0, n = 0, k = 0;
  std::string config;
  void *old_call = nullptr, *new_call = nullptr;
  std::string failure;
  double old_us = 0, again_us = 0, new_us = 0;
  bool same_bits = true;

  double gain() const { return old_us / new_us; }
  double noise() const { return old_us / again_us; }
  std::string name() const { return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k); }
};

std::vector<Shape> read_shapes(const std::vector<std::string>& files);

}  // namespace ab
