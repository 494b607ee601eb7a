#include "command_line.hpp"
#include "interrupt.hpp"

int main(int argc, char** argv) {
  jitgemm::cli::clean_up_when_interrupted();
  return jitgemm::cli::run_command_line(argc, argv);
}
