#include "catch.hpp"
#include "core/device_info.hpp"
#include "gemm_cases.hpp"
#include "geometry_sm90.cuh"
#include "kernels/legality.hpp"
#include "kernels/parameters.hpp"
#include "random.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

void same_bits_in_every_order(const std::string& part) {
  INFO("JITGEMM_TEST_SEED=" << test_seed());
  std::vector<GemmCase> cases;
  for (const Mechanism& mechanism : hopper_mechanisms()) {
    if (mechanism.part == part) cases.push_back(mechanism.gemm);
  }
  REQUIRE(!cases.empty());
  GemmDevice in_order(GemmDevice::emulator());
  in_order.compile(cases);
  std::vector<GemmDevice>
      devices;  // each order of warps four times with each way in which asynchronous work takes effect
  for (std::uint64_t seed = 2; seed < 26; ++seed) devices.emplace_back(GemmDevice::emulator(seed, 2));
  for (const GemmCase& gemm : cases) {
    INFO(to_string(gemm));
    const GemmInputs inputs = make_inputs(gemm, Fill::normal, test_seed());
    const std::vector<char> expected = in_order.run(gemm, inputs);
    REQUIRE(check(gemm, inputs, expected) == "");
    for (std::size_t i = 0; i < devices.size(); ++i) {
      INFO("emulator seed " << 2 + i);
      REQUIRE(devices[i].run(gemm, inputs) == expected);
    }
  }
}

}  // namespace

TEST_CASE("Every order of execution gives the same bits with operands that clusters share", "[gemm][emulated]") {
  same_bits_in_every_order("cluster");
}

TEST_CASE("Every order of execution gives the same bits with ping-pong consumers", "[gemm][emulated]") {
  same_bits_in_every_order("ping_pong");
}

TEST_CASE("Every order of execution gives the same bits with clusters that split k", "[gemm][emulated]") {
  same_bits_in_every_order("cluster_sum");
}

TEST_CASE("Every order of execution gives the same bits however D is stored", "[gemm][emulated]") {
  same_bits_in_every_order("store");
}

TEST_CASE("Every order of execution gives the same bits with packed operands", "[gemm][emulated]") {
  same_bits_in_every_order("packed");
}

TEST_CASE("The Hopper mechanisms are legal and each is used", "[gemm]") {
  const DeviceInfo device = device_info_for("sm_90a");
  bool multicast = false, ping_pong = false, sums = false, swapped = false, by_tma = false, by_rows = false,
       packed = false;
  for (const auto& [part, gemm] : hopper_mechanisms()) {
    const KernelConfig& c = gemm.config;
    INFO(to_string(gemm));
    CHECK(why_illegal(c, normalise(gemm.problem), device) == "");
    multicast |= c.cluster_m * c.cluster_n > 1;
    ping_pong |= c.ping_pong;
    sums |= c.cluster_k > 1;
    swapped |= c.swap_ab;
    packed |= c.pack_a;
    const auto geometry = device::sm90::geometry(parameters_of(c, kernel_problem(normalise(gemm.problem), c)));
    (geometry.tma_store ? by_tma : by_rows) = true;
  }
  CHECK((multicast && ping_pong && sums && swapped && by_tma && by_rows && packed));
}
