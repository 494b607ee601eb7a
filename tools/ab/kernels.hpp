#pragma once

#include <cuda.h>

#include <cstddef>
#include <random>
#include <vector>

#include "options.hpp"
#include "shapes.hpp"
#include "sides.hpp"

namespace ab {

/// Times both libraries' kernels, as graphs that are replayed in turn.
class Kernels {
 public:
  Kernels(const Options& options, Sides& sides)
      : options_(options), sides_(sides), stream_(sides.device->create_stream()) {}

  /// The old library's choice, by both.
  void compile(std::vector<Shape>& shapes);
  /// Matrices that are large enough for all of them.
  void allocate(const std::vector<Shape>& shapes);
  /// What fails is in shape.failure.
  void time(Shape& shape, int rounds);

 private:
  /// Memory for one of a call's matrices, several times over.
  struct Pool {
    std::byte* memory = nullptr;
    std::size_t bytes = 0, step = 0;
    std::byte* at(int set) const { return memory + std::size_t(set) * step; }
  };

  AbProblem problem_of(const Shape& shape) const;
  void try_to_time(Shape& shape, int rounds);
  /// As many sets of matrices as exceed the L2, or fit.
  int rotate(const Shape& shape);
  /// Whether both libraries give the same D, of which NaN stood there before.
  bool same_bits(const Shape& shape);

  const Options& options_;
  Sides& sides_;
  CUstream stream_;
  Pool a_, b_, d_, other_d_;
  std::byte* workspace_ = nullptr;
  std::mt19937 random_{1};
};

}  // namespace ab
