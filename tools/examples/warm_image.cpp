// Fills a kernel cache where there is no GPU, while an image is built, say. Argument: the cache's folder.
#include <jitgemm/jitgemm.hpp>

#include <cstdio>

int main(int argc, char** argv) {
  jitgemm::ContextOptions options{.device = jitgemm::Device::compile_only, .architecture = "sm_90a"};
  options.cache_dir = argc > 1 ? argv[1] : "warm_cache";
  options.tuning = jitgemm::Tuning::cached;
  const jitgemm::Problem problems[] = {{.m = 4096, .n = 4096, .k = 1024}, {.m = 16, .n = 4096, .k = 1024}};

  try {
    jitgemm::Context builder(options);  // while the image is built
    for (const jitgemm::Problem& problem : problems) builder.warm(problem);

    // Where the image runs, the same with Device::cuda. A kernel is a hit if the folder has one of the same source,
    // options and architecture: it is read, and nothing is compiled. With Tuning::on it would first measure others.
    jitgemm::Context user(options);
    for (const jitgemm::Problem& problem : problems) user.warm(problem);

    const jitgemm::Counters built = builder.counters(), used = user.counters();
    std::printf("builder: %d compiled, %d read from disk\n", int(built.compiles), int(built.disk_hits));
    std::printf("user:    %d compiled, %d read from disk\n", int(used.compiles), int(used.disk_hits));
    return used.compiles == 0 && used.disk_hits >= 2 ? 0 : 1;
  } catch (const jitgemm::Error& error) {
    if (error.code() != jitgemm::ErrorCode::no_compiler) throw;
    std::printf("SKIPPED: %s\n", error.what());
  }
}
