#pragma once

#include <nanobind/nanobind.h>

namespace jitgemm::python {
namespace nb = nanobind;

/// Slots of a class whose objects hold others that may lead back to them, for nb::type_slots. The class has
/// `template <typename Visit> void each_held(const Visit& visit) const`, which visits each reference that it owns once,
/// and drop_held(), after which no cycle leads through it; it may be used, and must refuse that, until it is destroyed.
template <typename Class>
inline PyType_Slot collected_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(+[](PyObject* self, visitproc visit, void* argument) -> int {
       int stop = 0;
       const auto look = [&](nb::handle object) {
         if (stop == 0 && object.is_valid()) stop = visit(object.ptr(), argument);
       };
       look(reinterpret_cast<PyObject*>(Py_TYPE(self)));
       if (nb::inst_ready(self)) static_cast<const Class*>(nb::inst_ptr<Class>(self))->each_held(look);
       return stop;
     })},
    {Py_tp_clear, reinterpret_cast<void*>(+[](PyObject* self) -> int {
       if (nb::inst_ready(self)) nb::inst_ptr<Class>(self)->drop_held();
       return 0;
     })},
    {0, nullptr}};

}  // namespace jitgemm::python
