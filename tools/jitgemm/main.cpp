#include "command_line.hpp"

int main(int argc, char** argv) { return jitgemm::cli::run_command_line(argc, argv); }
