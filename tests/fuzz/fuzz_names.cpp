// Every enumerator, device and level that is written as a word. Also each enumeration's to_string() of any value.
#include "core/device_info.hpp"
#include "fuzz.hpp"
#include "jitgemm/jitgemm.hpp"
#include "util/log.hpp"

using namespace jitgemm;

namespace {

template <typename Enum>
void check_name(std::string_view text, std::optional<Enum> parsed) {
  if (parsed) fuzz::expect(to_string(*parsed) == text, "a name names what prints it");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  check_name(text, parse_data_type(text));
  check_name(text, parse_layout(text));
  check_name(text, parse_activation(text));
  check_name(text, parse_scaling(text));
  check_name(text, parse_batch_mode(text));
  check_name(text, parse_accumulation(text));
  check_name(text, parse_schedule(text));
  parse_log_level(text);
  try {
    const DeviceInfo device = device_info_for(std::string(text));
    fuzz::expect(device_info_for(device.architecture()).name == device.name, "an architecture names its device");
  } catch (const Error& error) {
    fuzz::expect(error.code() == ErrorCode::invalid_option, "the error is about the architecture");
  }

  const std::uint8_t value = size > 0 ? data[0] : 0;
  size_of(DataType(value));
  for (const std::string_view name :
       {to_string(DataType(value)), to_string(Layout(value)), to_string(Activation(value)), to_string(Scaling(value)),
        to_string(Accumulation(value)), to_string(Schedule(value)), to_string(MainLoop(value)),
        to_string(PlanSource(value))}) {
    fuzz::expect(!name.empty(), "every value prints as something");
  }
  fuzz::expect(!to_string(ErrorCode(value)).empty(), "every code prints as something");
  return 0;
}
