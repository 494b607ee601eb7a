#include "report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <stdexcept>

namespace ab {
namespace {

void print_ratios(const std::vector<const Shape*>& timed) {
  std::printf("above 1: the second is faster   shapes  geomean      p5     p50     p95   least\n");
  const auto line = [&](const char* name, double (Shape::*ratio)() const) {
    std::vector<double> ratios;
    double sum = 0;
    for (const Shape* shape : timed) ratios.push_back((shape->*ratio)()), sum += std::log(ratios.back());
    std::ranges::sort(ratios);
    const auto at = [&](double part) { return ratios[std::size_t(std::lround(part * double(ratios.size() - 1)))]; };
    const Shape* const least = *std::ranges::min_element(timed, {}, ratio);
    std::printf("%-28s %9zu   %.4f  %.4f  %.4f  %.4f  %.4f at %s\n", name, ratios.size(),
                std::exp(sum / double(ratios.size())), at(0.05), at(0.5), at(0.95), at(0), least->name().c_str());
  };
  line("old / old, a second graph", &Shape::noise);
  line("old / new", &Shape::gain);
}

void print_bits(const std::vector<const Shape*>& timed) {
  const auto differ = std::ranges::count_if(timed, [](const Shape* shape) { return !shape->same_bits; });
  std::printf("bits of D differ in %td shapes", differ);
  int shown = 0;
  for (const Shape* shape : timed) {
    if (!shape->same_bits && shown++ < 5)
      std::printf("%s %s (%s)", shown == 1 ? ":" : ",", shape->name().c_str(), shape->config.c_str());
  }
  std::printf("\n");
}

void write_csv(const std::string& file, const std::vector<Shape>& shapes) {
  if (file.empty()) return;
  std::ofstream csv(file);
  csv << "m,n,k,config,old_us,old_again_us,new_us,old_over_new,same_bits,failure\n";
  for (const Shape& shape : shapes) {
    std::string failure = shape.failure;
    std::ranges::replace(failure, ',', ';');
    std::ranges::replace(failure, '\n', ' ');
    csv << shape.m << ',' << shape.n << ',' << shape.k << ',' << shape.config << ',' << shape.old_us << ','
        << shape.again_us << ',' << shape.new_us << ',' << (shape.new_us > 0 ? shape.gain() : 0) << ','
        << shape.same_bits << ',' << failure << '\n';
  }
  if (!csv.flush()) throw std::runtime_error("cannot write " + file);
}

}  // namespace

void report(const std::vector<Shape>& shapes, const std::string& csv) {
  std::vector<const Shape*> timed;
  for (const Shape& shape : shapes) {
    if (shape.failure.empty())
      timed.push_back(&shape);
    else
      std::printf("failed: %s (%s): %s\n", shape.name().c_str(), shape.config.c_str(), shape.failure.c_str());
  }
  if (timed.empty()) return;
  print_ratios(timed);
  write_csv(csv, shapes);
  print_bits(timed);
}

}  // namespace ab
