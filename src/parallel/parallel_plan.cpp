#include "core/out_of_memory.hpp"
#include "jitgemm/tensor_parallel.hpp"
#include "util/number_text.hpp"

namespace jitgemm {

std::string_view to_string(Exchange exchange) {
  switch (exchange) {
    case Exchange::all_gather_a:
      return "all_gather_a";
    case Exchange::reduce_scatter_d:
      return "reduce_scatter_d";
    case Exchange::all_reduce_d:
      return "all_reduce_d";
  }
  return "unknown";
}

std::string ParallelPlan::explain() const {
  return with_memory_errors([this] {
    std::string text;
    const auto line = [&text](std::string label, const std::string& value) {
      label.resize(16, ' ');
      text += label + value + '\n';
    };
    const auto us = [](double x) { return fixed_text(x, x < 100 ? 2 : 0) + " us"; };
    line("exchange",
         std::string(to_string(exchange)) + ", this is rank " + std::to_string(rank) + " of " + std::to_string(ranks));
    line("overlapped", std::string(overlapped ? "yes" : one_shot ? "no, one-shot all-reduce" : "no") + ": " + why);
    line("received", std::to_string(received_bytes) + " bytes by each rank");
    line("staging", std::to_string(staging_bytes) + " bytes");
    line("expected", "product " + us(gemm_us) + ", exchange " + us(exchange_us) +
                         ", of which the product does not hide " + us(exposed_us));
    return text + "The product of each rank:\n" + gemm.explain();
  });
}

}  // namespace jitgemm
