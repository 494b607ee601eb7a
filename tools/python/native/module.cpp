#include <nanobind/stl/string.h>
#include "bindings.hpp"
#include "errors.hpp"

#include "jitgemm/version.hpp"
#include "util/environment.hpp"
#include "without_lock.hpp"

NB_MODULE(_core, module) {
  nanobind::set_leak_warnings(false);  // a program may end with objects of ours in its globals
  module.doc() = "The native part of jitgemm.";
  module.attr("__version__") = JITGEMM_VERSION;
  module.def("set_environment_default", &jitgemm::set_environment_default, nanobind::arg("name"),
             nanobind::arg("value"), "What the library finds where an environment variable is not set.");
  jitgemm::python::WithoutLock::watch_interpreter();
  jitgemm::python::register_errors(module);
  jitgemm::python::bind_problem(module);
  jitgemm::python::bind_plan(module);
  jitgemm::python::bind_context(module);
  jitgemm::python::bind_epilogue(module);
  jitgemm::python::bind_matrix_pointers(module);
  jitgemm::python::bind_matmul(module);
  jitgemm::python::bind_tensor_parallel(module);
  jitgemm::python::bind_cache(module);
}
