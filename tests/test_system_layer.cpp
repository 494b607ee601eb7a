// The tuning database of JITGEMM_SYSTEM_CACHE_DIR, under the user's own.
#include <filesystem>

#include "catch.hpp"
#include "jitgemm/jitgemm.hpp"
#include "sandbox.hpp"
#include "tuning_samples.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

const NormalProblem first = shape(1024, 1024, 1024), near_first = shape(1024, 1024, 1032),
                    second = shape(1024, 1024, 1200);

/// Both files, the system's with records of the problems.
struct Layers {
  TemporaryDirectory directory;
  fs::path own = directory.path() / "own" / "tuning.jsonl", system = directory.path() / "system" / "tuning.jsonl";

  Layers() { fs::create_directory(system.parent_path()); }
  void add_to_system(const NormalProblem& problem, int block_m) { TuningDb(system).add(record_of(problem, block_m)); }
};

}  // namespace

TEST_CASE("Own exact goes before system exact, that before the nearest of either", "[tuning_db][system_layer]") {
  Layers layers;
  layers.add_to_system(first, 32);
  TuningDb db(layers.own, layers.system);
  const auto system_exact = db.find(first, h200);
  CHECK(system_exact.match == Match::exact);
  CHECK(system_exact.config.block_m == 32);
  CHECK_THAT(system_exact.why, ContainsSubstring("of the system's database"));

  db.add(record_of(near_first, 64));
  CHECK(db.find(first, h200).config.block_m == 32);  // an own neighbour does not hide it

  const auto own_nearest = db.find(shape(1024, 1024, 1040), h200);
  CHECK(own_nearest.match == Match::nearest);
  CHECK(own_nearest.config.block_m == 64);
  CHECK_THAT(own_nearest.why, !ContainsSubstring("system"));
  const auto system_nearest = db.find(shape(1024, 1024, 1000), h200);
  CHECK(system_nearest.config.block_m == 32);
  CHECK_THAT(system_nearest.why, ContainsSubstring("k=1024") && ContainsSubstring("of the system's database"));

  db.add(record_of(first, 128));
  CHECK(db.find(first, h200).config.block_m == 128);
  CHECK_THAT(db.find(first, h200).why, !ContainsSubstring("system"));
  CHECK(db.find(shape(1024, 1024, 1000), h200).config.block_m == 128);  // as near: the own
}

TEST_CASE("The system's database is read as it grows, and never written", "[tuning_db][system_layer]") {
  Layers layers;
  const CapturedLog log;
  TuningDb db(layers.own, layers.system);
  CHECK(db.find(first, h200).match == Match::none);
  CHECK_FALSE(fs::exists(layers.system));  // absent is no fault
  layers.add_to_system(first, 32);
  const std::string before = file_text(layers.system);
  const auto files = [&] { return std::distance(fs::directory_iterator(layers.system.parent_path()), {}); };
  const auto count = files();

  CHECK(db.find(first, h200).match == Match::exact);
  db.add(record_of(second));
  db.add(record_of(first, 128));
  CHECK(db.merge({record_of(shape(64, 64, 64))}) == 1);
  CHECK(db.records().size() == 3);  // the system's record of the first is hidden
  CHECK(TuningDb(layers.own).records().size() == 3);
  CHECK(file_text(layers.system) == before);
  CHECK(files() == count);

  fs::remove(layers.system);
  CHECK(db.find(first, h200).config.block_m == 128);
  CHECK(log.text().empty());
}

TEST_CASE("A system database that cannot be read costs one warning", "[tuning_db][system_layer]") {
  Layers layers;
  fs::create_directory(layers.system);
  const CapturedLog log;
  TuningDb db(layers.own, layers.system);
  db.add(record_of(second));
  for (int i = 0; i < 3; ++i) CHECK(db.find(second, h200).match == Match::exact);
  CHECK(log.count("warning") == 1);
  CHECK_THAT(log.text(), ContainsSubstring("system tuning database") && ContainsSubstring("JITGEMM_SYSTEM_CACHE_DIR"));
}

TEST_CASE("A Context asks the system's database and says so", "[context][system_layer]") {
  const Layers layers;
  const NormalProblem problem = shape(512, 512, 512);
  const ContextOptions options{.device = Device::compile_only,
                               .architecture = "sm_90a",
                               .tuning = Tuning::cached,
                               .cache_dir = layers.own.parent_path().string()};
  TuningRecord record = record_of(problem, 32);
  TuningDb(layers.system).add(record);
  const ScopedEnvironment system("JITGEMM_SYSTEM_CACHE_DIR", layers.system.parent_path().c_str());
  {
    const Plan plan = Context(options).plan(problem);
    CHECK(plan.source == PlanSource::exact);
    CHECK(plan.config == record.config);
    CHECK_THAT(plan.explain(), ContainsSubstring("of the system's database"));
  }
  fs::permissions(layers.system.parent_path(), fs::perms::others_write, fs::perm_options::add);
  const CapturedLog log;
  CHECK(Context(options).plan(problem).source == PlanSource::model);
  CHECK(log.count("warning") == 1);
}
