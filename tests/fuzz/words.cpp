// Prints the words that problems are written in, as entries of libFuzzer's dictionaries.
#include <cstdio>
#include <string>

#include "core/enumerators.hpp"
#include "core/problem_fields.hpp"

using namespace jitgemm;

namespace {

void print(const std::string& word) { std::printf("\"%s\"\n", word.c_str()); }

template <typename Enum>
void print_all() {
  for (const Enumerator<Enum>& enumerator : enumerators<Enum>()) print(std::string(enumerator.name));
}

}  // namespace

int main() {
  for_each_field([](const ProblemField& field, auto) {
    print(std::string(field.name) + "=");
    print("\\\"" + std::string(field.name) + "\\\":");
  });
  print_all<DataType>();
  print_all<Layout>();
  print_all<Bias>();
  print_all<Activation>();
  print_all<Scaling>();
  print_all<Accumulation>();
}
