#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jitgemm/tensor_parallel.hpp"

namespace jitgemm::cli {

/// By its name; nullopt if there is none.
std::optional<Exchange> parse_exchange(std::string_view name);

/// A product across ranks, with n and k of the whole layer.
struct ParallelShape {
  Exchange exchange = Exchange::all_gather_a;
  std::int64_t m = 0, n = 0, k = 0;

  bool operator==(const ParallelShape&) const = default;
};

/// "reduce_scatter_d 2048 8192 28672", as a line of the file.
std::string to_string(const ParallelShape& shape);
/// One `exchange m n k` a line; # begins a comment. Throws Error{io}.
std::vector<ParallelShape> read_parallel_shapes(const std::filesystem::path& file);
/// Of the layers of Llama-70B and -405B: QKV and gate with up behind an all-gather, o and down before a
/// reduce-scatter, for prompts; o and down of 70B before an all-reduce, for decoding.
std::vector<ParallelShape> llama_shapes();

/// What a rank of so many multiplies: A row-major, B column-major. 8-bit inputs give bf16. Throws
/// Error{invalid_option} if the shape does not divide evenly.
Problem problem_of_rank(const ParallelShape& shape, int ranks, DataType type);
/// The D that each rank gets, as if it had come from one product.
Problem problem_of_result(const ParallelShape& shape, int ranks, DataType type);

}  // namespace jitgemm::cli
