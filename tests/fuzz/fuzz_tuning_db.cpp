// The tuning database as a file that others write to: the input, cut in two at its first form feed, is what the file
// holds at a first and at a second look.
#include <fstream>

#include "core/device_info.hpp"
#include "core/problem.hpp"
#include "fuzz.hpp"
#include "tune/tuning_db.hpp"

using namespace jitgemm;

namespace {

void look(TuningDb& db) {
  static const DeviceInfo device = device_info_for("sm_90a");
  for (const TuningRecord& record : db.records()) {
    for (const NormalProblem& problem : {record.problem, shape_of(normalise({.m = 512, .n = 512, .k = 512}))}) {
      const TuningLookup found = db.find(problem, device);
      if (found.match == Match::none) continue;
      fuzz::expect(why_illegal(found.config, problem, device).empty(), "what is found is legal");
      fuzz::expect(!found.why.empty(), "what is found has a reason");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  const std::size_t cut = std::min(text.find('\f'), text.size());
  const auto file = fuzz::write_scratch("tuning.jsonl", text.substr(0, cut));
  TuningDb db(file);
  look(db);
  std::ofstream(file, std::ios::binary | std::ios::app) << text.substr(std::min(cut + 1, text.size()));
  look(db);

  const std::size_t before = db.records().size();
  TuningRecord record;
  record.problem = normalise({.m = 640, .n = 640, .k = 640});
  record.device_name = "fuzz";
  record.compute_capability = 90;
  record.sm_count = 1;
  record.median_us = 1;
  record.library_version = "0";
  db.add(record);
  const auto after = db.records();
  fuzz::expect(after.size() == before || after.size() == before + 1, "one more record, or one newer");
  bool found = false;
  for (const TuningRecord& x : after) found = found || x.device_name == "fuzz";
  fuzz::expect(found, "what was added is there, whatever stood before it");
  fuzz::expect(TuningDb(file).records().size() == after.size(), "who opens the file now reads the same");
  return 0;
}
