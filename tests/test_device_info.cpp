#include "core/device_info.hpp"

#include <string>

#include "catch.hpp"
#include "errors.hpp"

using namespace jitgemm;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("Typical devices are found by their architecture", "[device_info]") {
  for (const char* name : {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"}) {
    const DeviceInfo device = device_info_for(name);
    CHECK(device.architecture() == name);
    CHECK(device.sm_count > 0);
    CHECK(device.smem_per_block <= device.smem_per_sm);
    CHECK_FALSE(device.emulated);
    CHECK(describe(device).architecture == name);
  }
  CHECK(device_info_for("sm_90").has_wgmma());
  CHECK(device_info_for("sm_90a").sm_count == 132);
  CHECK_FALSE(device_info_for("sm_100a").has_wgmma());
  CHECK_THAT(test::refusal(ErrorCode::invalid_option, [] { device_info_for("sm_70"); }),
             ContainsSubstring("use one of sm_80, "));
}
