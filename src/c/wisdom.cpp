#include "c/cache_values.hpp"
#include "c/handles.hpp"

namespace jitgemm::c {
namespace {

std::vector<std::string> texts_of(const char* const* texts, std::size_t count, const char* name) {
  constexpr std::size_t most = 1 << 16;  // so that a wrong count does not read whatever there is
  if (count > most) {
    refuse(JITGEMM_STATUS_INVALID_ARGUMENT,
           "count is " + std::to_string(count) + ", more than " + std::to_string(most) + "; give the files in parts");
  }
  std::vector<std::string> all;
  if (count > 0) given(texts, name);
  for (std::size_t i = 0; i < count; ++i) all.emplace_back(&given(texts[i], "one of the files"));
  return all;
}

void put_wisdom(jitgemm_wisdom** to, Wisdom wisdom) {
  auto made = std::make_unique<jitgemm_wisdom>(std::move(wisdom));
  if (to) put_handle(to, std::move(made));
}

}  // namespace
}  // namespace jitgemm::c

using namespace jitgemm::c;

jitgemm_status jitgemm_wisdom_cached(const jitgemm_wisdom_selection* selection, jitgemm_wisdom** wisdom) {
  return guarded([&] {
    given(wisdom, "wisdom");
    put_wisdom(wisdom, jitgemm::cached_wisdom(selection_of(selection)));
  });
}
jitgemm_status jitgemm_wisdom_export(const char* file, const jitgemm_wisdom_selection* selection,
                                     jitgemm_wisdom** written) {
  return guarded([&] {
    given(file, "file");
    put_wisdom(written, jitgemm::export_wisdom(file, selection_of(selection)));
  });
}
jitgemm_status jitgemm_wisdom_read(const char* file, jitgemm_wisdom** wisdom) {
  return guarded([&] {
    given(wisdom, "wisdom");
    put_wisdom(wisdom, jitgemm::read_wisdom(&given(file, "file")));
  });
}
jitgemm_status jitgemm_wisdom_merge(const char* file, const char* const* from, std::size_t count,
                                    jitgemm_wisdom** written) {
  return guarded([&] {
    given(file, "file");
    put_wisdom(written, jitgemm::merge_wisdom(file, texts_of(from, count, "from")));
  });
}

jitgemm_status jitgemm_wisdom_get_info(const jitgemm_wisdom* wisdom, jitgemm_wisdom_info* info) {
  return guarded([&] {
    const auto out = required(info);
    out.put(to_c(given(wisdom, "wisdom").value));
  });
}
jitgemm_status jitgemm_wisdom_get_kernel(const jitgemm_wisdom* wisdom, std::size_t index,
                                         jitgemm_wisdom_kernel* kernel) {
  return guarded([&] {
    const auto out = required(kernel);
    const std::vector<jitgemm::WisdomKernel>& all = given(wisdom, "wisdom").value.kernels;
    check_index(index, all.size(), "kernels");
    out.put(to_c(all[index]));
  });
}
const jitgemm_tuning_results* jitgemm_wisdom_results(const jitgemm_wisdom* wisdom) {
  return wisdom ? &wisdom->results : nullptr;
}
void jitgemm_wisdom_destroy(jitgemm_wisdom* wisdom) { delete wisdom; }

jitgemm_status jitgemm_wisdom_import_files(const char* const* files, std::size_t count,
                                           const jitgemm_wisdom_import_options* options, jitgemm_wisdom_import** done) {
  return guarded([&] {
    auto made = std::make_unique<jitgemm_wisdom_import>(
        jitgemm::import_wisdom(texts_of(files, count, "files"), import_options_of(options)));
    if (done) put_handle(done, std::move(made));
  });
}
jitgemm_status jitgemm_wisdom_import_get_info(const jitgemm_wisdom_import* done, jitgemm_wisdom_import_info* info) {
  return guarded([&] {
    const auto out = required(info);
    out.put(to_c(given(done, "done").value));
  });
}
const jitgemm_wisdom* jitgemm_wisdom_import_wisdom(const jitgemm_wisdom_import* done) {
  return done ? &done->wisdom : nullptr;
}
void jitgemm_wisdom_import_destroy(jitgemm_wisdom_import* done) { delete done; }

jitgemm_status jitgemm_wisdom_diff_create(const char* a, const char* b, jitgemm_wisdom_diff** diff) {
  return guarded([&] {
    given(diff, "diff");
    put_handle(diff, std::make_unique<jitgemm_wisdom_diff>(jitgemm::diff_wisdom(&given(a, "a"), &given(b, "b"))));
  });
}
jitgemm_status jitgemm_wisdom_diff_get_info(const jitgemm_wisdom_diff* diff, jitgemm_wisdom_diff_info* info) {
  return guarded([&] {
    const auto out = required(info);
    out.put(given(diff, "diff").info);
  });
}
const jitgemm_tuning_results* jitgemm_wisdom_diff_only_a(const jitgemm_wisdom_diff* diff) {
  return diff ? &diff->only_a : nullptr;
}
const jitgemm_tuning_results* jitgemm_wisdom_diff_only_b(const jitgemm_wisdom_diff* diff) {
  return diff ? &diff->only_b : nullptr;
}
const jitgemm_tuning_results* jitgemm_wisdom_diff_differ_a(const jitgemm_wisdom_diff* diff) {
  return diff ? &diff->differ_a : nullptr;
}
const jitgemm_tuning_results* jitgemm_wisdom_diff_differ_b(const jitgemm_wisdom_diff* diff) {
  return diff ? &diff->differ_b : nullptr;
}
void jitgemm_wisdom_diff_destroy(jitgemm_wisdom_diff* diff) { delete diff; }
