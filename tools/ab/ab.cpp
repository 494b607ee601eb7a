// Times two builds of the library against each other in one process: the kernels of a corpus, and what a call costs the
// host. tools/ab/build.sh makes the program and says how to run it.
#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>

#include "calls.hpp"
#include "kernels.hpp"
#include "options.hpp"
#include "report.hpp"
#include "shapes.hpp"
#include "sides.hpp"
#include "times.hpp"

namespace ab {
namespace {

/// Those that lose most, with more rounds.
void time_least_again(Kernels& kernels, std::vector<Shape>& shapes, const Options& options) {
  std::vector<Shape*> timed;
  for (Shape& shape : shapes) {
    if (shape.failure.empty()) timed.push_back(&shape);
  }
  std::ranges::sort(timed, {}, &Shape::gain);
  timed.resize(std::min(timed.size(), std::size_t(options.again)));
  if (!timed.empty()) std::printf("\nthe least again, with %d rounds\n", 4 * options.rounds);
  for (Shape* shape : timed) {
    const double before = shape->gain();
    kernels.time(*shape, 4 * options.rounds);
    std::printf("%-18s %9.3f us old %9.3f us new   %.4f, was %.4f   noise %.4f   %s\n", shape->name().c_str(),
                shape->old_us, shape->new_us, shape->gain(), before, shape->noise(), shape->config.c_str());
  }
  std::fflush(stdout);
}

/// False if a shape failed.
bool compare_kernels(const Options& options, Sides& sides, std::vector<Shape>& shapes) {
  Kernels kernels(options, sides);
  auto begin = Clock::now();
  kernels.compile(shapes);
  std::printf("compiled in %.0f s\n", seconds_since(begin));
  std::fflush(stdout);
  kernels.allocate(shapes);
  begin = Clock::now();
  for (Shape& shape : shapes) kernels.time(shape, options.rounds);
  std::printf("timed in %.0f s\n\n", seconds_since(begin));
  const bool all = std::ranges::all_of(shapes, &std::string::empty, &Shape::failure);
  report(shapes, options.csv);
  time_least_again(kernels, shapes, options);
  return all;
}

/// The exit status.
int compare(Options options, const std::filesystem::path& directory) {
  if (options.emulator) options.rounds = 1, options.host_rounds = std::min(options.host_rounds, 1);
  Sides sides(options.emulator, directory);
  std::vector<Shape> shapes = read_shapes(options.shapes);
  std::printf("old %s, new %s; %zu shapes, %s to %s, %s, %s\n", sides.before.version(), sides.after.version(),
              shapes.size(), options.type.c_str(), options.type_d.c_str(), options.layout.c_str(),
              options.accumulation.c_str());
  const bool kernels_ran = shapes.empty() || compare_kernels(options, sides, shapes);
  const bool calls_ran = options.host_rounds <= 0 || compare_calls(options, sides);
  return kernels_ran && calls_ran ? 0 : 1;
}

}  // namespace
}  // namespace ab

int main(int count, char** arguments) {
  char name[] = "/tmp/jitgemm-ab-XXXXXX";
  int status = 1;
  try {
    const ab::Options options = ab::parse(count, arguments);
    if (!mkdtemp(name)) throw std::runtime_error("cannot make a folder in /tmp");
    status = ab::compare(options, name);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ab: error: %s\n", error.what());
  }
  std::error_code ignored;
  std::filesystem::remove_all(name, ignored);
  return status;
}
