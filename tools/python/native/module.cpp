#include "bindings.hpp"
#include "errors.hpp"
#include "jitgemm/version.hpp"

NB_MODULE(_core, module) {
  nanobind::set_leak_warnings(false);  // a program may end with objects of ours in its globals
  module.doc() = "The native part of jitgemm.";
  module.attr("__version__") = JITGEMM_VERSION;
  jitgemm::python::register_errors();
  jitgemm::python::bind_context(module);
  jitgemm::python::bind_matmul(module);
}
