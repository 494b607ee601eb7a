#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "bench/options.hpp"
#include "bench/record.hpp"
#include "bench/shape.hpp"
#include "bench/summary.hpp"
#include "common/progress.hpp"
#include "common/shapes.hpp"
#include "common/text.hpp"
#include "util/output_file.hpp"

namespace jitgemm::cli {
namespace {

namespace fs = std::filesystem;

/// A file of shapes: which are still to do, and what is printed and written of each.
class Bench {
 public:
  explicit Bench(const BenchOptions& options) : options_(options), shapes_(options) {}

  void all() {
    const std::vector<Shape> shapes = read_shapes(options_.shapes);
    open_csv();
    describe(shapes.size());
    Progress progress("bench");
    shapes_.compile_ahead(shapes, progress);
    int failures = 0;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const Problem problem = options_.problem.problem(shapes[i].m, shapes[i].n, shapes[i].k);
      progress.update(int(i), int(shapes.size()), fmt::format("{}x{}x{}", problem.m, problem.n, problem.k));
      std::vector<BenchRecord> records = shapes_.blank_records(problem);
      std::erase_if(records, [&](const BenchRecord& record) {
        return std::ranges::any_of(records_, [&](const BenchRecord& known) { return known.same_case(record); });
      });
      if (records.empty()) continue;
      shapes_.bench(records);
      failures += records.front().check != "ok";
      progress.hide();
      for (BenchRecord& record : records) {
        print(record);
        if (csv_.is_open()) csv_ << csv_line(record) << '\n' << std::flush;
        records_.push_back(std::move(record));
      }
    }
    progress.hide();
    finish();
    if (csv_.is_open() && !csv_) throw Error(ErrorCode::io, "cannot write " + options_.csv + ": is the disk full?");
    if (failures)
      throw Error(ErrorCode::internal,
                  counted(std::uint64_t(failures), "shape") + " failed: the column `check` says why");
  }

 private:
  /// Continues a file, dropping a line that was cut off, or begins one.
  void open_csv() {
    if (options_.csv.empty()) return;
    std::string lines = csv_header() + "\n";
    std::error_code none;  // why a path leads nowhere, write_output() says
    if (fs::exists(options_.csv, none) && !fs::is_regular_file(options_.csv, none))
      throw Error(ErrorCode::io, options_.csv + " is no regular file, as --csv needs: name one, or leave --csv out");
    if (fs::exists(options_.csv, none) && fs::file_size(options_.csv) > 0) {
      if (!options_.resume) {
        throw Error(ErrorCode::io, options_.csv + " exists: continue it with --resume, or remove it");
      }
      records_ = read_csv(options_.csv);
      std::erase_if(records_, [](const BenchRecord& record) { return record.check != "ok"; });  // another try
      for (const BenchRecord& record : records_) lines += csv_line(record) + "\n";
    }
    std::string why;
    if (!write_output(options_.csv, lines, &why))
      throw Error(ErrorCode::io, "cannot write " + options_.csv + ": " + why + "; write elsewhere");
    csv_.open(options_.csv, std::ios::app);
  }

  void describe(std::size_t shapes) const {
    const DeviceDescription device = shapes_.device();
    const std::string kind =
        to_string(shapes_.base()).substr(to_string(shapes_.base()).find("a="));  // without the sizes
    fmt::print("{}, {}, on {} ({}, {} SMs)\n", counted(shapes, "shape"), kind, device.name, device.architecture,
               device.sm_count);
    if (!records_.empty()) fmt::print("{} in {} already\n", counted(records_.size(), "result"), options_.csv);
    if (shapes_.emulated()) {
      fmt::print("emulator: nothing is timed, results are only checked\n");
    } else {
      fmt::print("{}", shapes_.peers().describe());
    }
    std::fflush(stdout);
  }

  static void print(const BenchRecord& r) {
    const auto arm = [](const char* name, const ArmResult& result) {
      return result.timed() ? fmt::format("  {} {:.2f}", name, result.us) : std::string();
    };
    std::string others;
    for (const NamedArm& other : r.others) others += arm(other.name.c_str(), other.result);
    fmt::print("{:>5} x {:>5} x {:>5}  {}{}{}{}{}{}{}{}  {}{}\n", r.problem.m, r.problem.n, r.problem.k,
               to_string(r.protocol), arm("model", r.model), arm("tuned", r.tuned), arm("best", r.best),
               arm("cublas", r.cublas), arm("cublaslt", r.cublaslt), arm("triton", r.triton), others,
               r.check == "ok" && r.model.timed() + r.tuned.timed() + r.pinned.size() > 0 ? "" : r.check,
               r.absent.empty() ? "" : "(" + r.absent + ")");
    for (const ArmResult& pinned : r.pinned) fmt::print("    {:>9.2f} us  {}\n", pinned.us, pinned.config);
    std::fflush(stdout);
  }

  void finish() const {
    fmt::print("{}", summary(records_));
    if (options_.json.empty()) return;
    nlohmann::ordered_json json{{"device", to_json(shapes_.device())},
                                {"library", JITGEMM_VERSION},
                                {"peers", shapes_.peers().version()},
                                {"triton", shapes_.peers().triton_version()},
                                {"summary", summary_json(records_)}};
    json["shapes"] = nlohmann::ordered_json::array();
    for (const BenchRecord& record : records_) json["shapes"].push_back(to_json(record));
    std::string why;
    if (!write_output(options_.json, json_text(json), &why)) {
      throw Error(ErrorCode::io, "cannot write " + options_.json + ": " + why + "; write elsewhere");
    }
  }

  const BenchOptions& options_;
  ShapeBench shapes_;
  std::vector<BenchRecord> records_;
  std::ofstream csv_;
};

}  // namespace

void bench(const BenchOptions& options) { Bench(options).all(); }

}  // namespace jitgemm::cli
