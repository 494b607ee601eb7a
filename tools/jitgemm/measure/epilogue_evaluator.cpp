#include "measure/epilogue_evaluator.hpp"

#include <fmt/core.h>

#include "core/data_types.hpp"
#include "jit/custom_epilogue_source.hpp"

namespace jitgemm::cli {
namespace {

/// What the kernel below takes.
struct Arguments {
  const double* in;
  double* out;
  long long points;
};

constexpr std::size_t before_inputs = 7;  // sums, place and errors

/// In front of all: each approximated result gets an error, of one of two in turn.
constexpr const char* functions_with_errors = R"(
static double function_error[2];
static unsigned function_calls;
template <typename T>
static T with_function_error(T x) { return T(x * (1 + function_error[function_calls++ % 2])); }
template <typename T>
static T with_error_of_1(T x) { return T(x + function_error[function_calls++ % 2]); }
#define JITGEMM_APPROXIMATE(x) ::with_function_error(x)
#define JITGEMM_APPROXIMATE_DIFFERENCE(x) ::with_error_of_1(x)
)";

/// One thread goes through all points.
std::string kernel_of(const EpilogueFunction& function, DataType compute) {
  const std::string type(info_of(compute).device_name);
  std::string read, written;
  std::size_t in = before_inputs, out = 1;
  for (const EpilogueOperand& operand : function.operands) {
    if (operand.output)
      written += fmt::format("    to[{}] = double(result.out.{});\n", out++, operand.name);
    else
      read += fmt::format("    args.{} = {}(from[{}]);\n", operand.name, type, in++);
  }
  return fmt::format(
      "struct EvaluateArguments {{ const double* in; double* out; long long points; }};\n"
      "extern \"C\" __global__ void evaluate(const EvaluateArguments arguments) {{\n"
      "  for (long long i = 0; i < arguments.points; ++i) {{\n"
      "    const double* const from = arguments.in + i * {};\n"
      "    double* const to = arguments.out + i * {};\n"
      "    epilogue_text::Args args{{}};\n"
      "    function_error[0] = from[5];\n    function_error[1] = from[6];\n    function_calls = 0;\n"
      "    args.row = int(from[2]);\n    args.column = int(from[3]);\n    args.batch = int(from[4]);\n"
      "{}    const Result result = jitgemm_epilogue({}(from[0]){}, args);\n"
      "    to[0] = double(result.x);\n{}  }}\n}}\n",
      in, out, read, type, function.pairs == Pairing::none ? "" : ", " + type + "(from[1])", written);
}

}  // namespace

EpilogueEvaluator::EpilogueEvaluator(const EpilogueFunction& function, DataType compute)
    : host_(make_emulator_backend({})) {
  for (const EpilogueOperand& operand : function.operands) ++(operand.output ? outputs_ : inputs_);
  KernelSource source;
  source.text = functions_with_errors + custom_epilogue_alone(function, compute) + kernel_of(function, compute);
  source.entry = "evaluate";
  source.architecture = host_->device().architecture();
  source.config = "epilogue alone";
  kernel_ = host_->load(host_->compile(source), 0);
}

std::vector<std::vector<double>> EpilogueEvaluator::operator()(const std::vector<Point>& points) {
  std::vector<double> in, out(points.size() * (1 + outputs_));
  in.reserve(points.size() * (before_inputs + inputs_));
  for (const Point& point : points) {
    in.insert(in.end(), {point.x, point.up, double(point.row), double(point.column), double(point.batch),
                         point.function_error[0], point.function_error[1]});
    in.insert(in.end(), point.inputs.begin(), point.inputs.end());
  }
  const Arguments arguments{in.data(), out.data(), static_cast<long long>(points.size())};
  host_->launch(*kernel_, {.grid = 1, .threads = 32}, bytes_of(arguments), nullptr);
  std::vector<std::vector<double>> values(points.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto begin = out.begin() + std::ptrdiff_t(i * (1 + outputs_));
    values[i].assign(begin, begin + std::ptrdiff_t(1 + outputs_));
  }
  return values;
}

}  // namespace jitgemm::cli
