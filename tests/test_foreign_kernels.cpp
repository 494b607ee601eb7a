// What stands beside the launches that the command times, and how its time is taken off.
#include "backend/cuda/cuda_backend.hpp"
#include "catch.hpp"
#include "fake_driver.hpp"
#include "measure/host_lead.hpp"
#include "measure/neighbour.hpp"
#include "measure/rounds.hpp"

namespace jitgemm::test {
namespace {

/// Takes so long, one after the other and from the first again.
class Scripted : public cli::Sequence {
 public:
  explicit Scripted(std::vector<double> us) : us_(std::move(us)) {}
  double time_us() override { return us_[std::size_t(next_++) % us_.size()]; }

 private:
  std::vector<double> us_;
  int next_ = 0;
};

std::vector<std::unique_ptr<cli::Sequence>> scripted(const std::vector<std::vector<double>>& all) {
  std::vector<std::unique_ptr<cli::Sequence>> sequences;
  for (const std::vector<double>& us : all) sequences.push_back(std::make_unique<Scripted>(us));
  return sequences;
}

}  // namespace

TEST_CASE("A neighbour's time is taken off that of mixed launches, round by round", "[timing]") {
  // The first round does not count. Both the arm's and the neighbour's time doubles and triples from round to round.
  const auto sequences = scripted({{99, 100}, {99, 130, 260, 390}, {99, 30, 60, 90}});
  const std::vector<cli::Timing> timings = cli::time_in_turn(sequences, {{10, false}, {10, true}}, 3, 0);
  REQUIRE(timings.size() == 2);
  CHECK(timings[1].median_us == Approx(20));
  CHECK(timings[1].p20_us == Approx(10));
  CHECK(timings[1].p80_us == Approx(30));
  CHECK(timings[1].launches == 10);
  CHECK(timings[0].p80_us == Approx(10));  // nothing is taken off
}

TEST_CASE("Without mixed launches every sequence is an arm's", "[timing]") {
  const auto timings = cli::time_in_turn(scripted({{8}, {6}}), {{4, false}, {2, false}}, 5, 0);
  REQUIRE(timings.size() == 2);
  CHECK(timings[0].median_us == Approx(2));
  CHECK(timings[1].median_us == Approx(3));
  CHECK(timings[1].spread == 0);
}

TEST_CASE("Kernels of someone else's compile, and are launched without attributes on all SMs", "[timing][nvrtc]") {
  FakeDriver::reset();
  static cuda::DriverApi api;
  api = FakeDriver::api();
  static int attributes;
  attributes = 0;
  api.launch_kernel_ex = [](const CUlaunchConfig* config, CUfunction, void** parameters, void**) {
    attributes += int(config->numAttrs);
    FakeDriver::note("launch " + std::to_string(config->gridDimX) + " x " + std::to_string(config->blockDimX) + ", " +
                     std::to_string(config->sharedMemBytes) + " bytes" + (parameters[0] ? "" : " of nothing"));
    return CUDA_SUCCESS;
  };
  cuda::driver_for_tests = &api;
  {
    const auto backend = cuda::make_backend(api, true, -1);
    const auto log_of = [](const auto& enqueue) {
      FakeDriver::log.clear();
      enqueue();
      return FakeDriver::log;
    };
    CHECK(log_of([&] { cli::Neighbour(*backend, cli::Neighbour::Size::small).launch(nullptr); }) ==
          std::vector<std::string>{"function small_neighbour", "launch 132 x 256, 0 bytes"});
    const std::string most = std::to_string(int(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));
    CHECK(log_of([&] { cli::Neighbour(*backend, cli::Neighbour::Size::large).launch(nullptr); }) ==
          std::vector<std::string>{"function large_neighbour", "attribute " + most + " = 122880",
                                   "launch 396 x 256, 122880 bytes"});
    CHECK(log_of([&] { cli::HostLead(*backend).spin(500, nullptr); }) ==
          std::vector<std::string>{"function spin", "launch 1 x 1, 0 bytes"});
    CHECK(attributes == 0);
  }
  cuda::driver_for_tests = nullptr;
  CHECK(FakeDriver::alive.empty());
}

}  // namespace jitgemm::test
