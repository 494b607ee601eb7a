#pragma once

#include <nanobind/nanobind.h>

#include <utility>

namespace jitgemm::python {
namespace nb = nanobind;

/// An attribute of a module, found on first need and held for ever. For static objects, in the place of local ones that
/// are made by importing: that gives Python's lock away, and another thread with it would wait at the object's guard.
class Imported {
 public:
  constexpr Imported(const char* module, const char* attribute) : module_(module), attribute_(attribute) {}

  const nb::object& operator*() {
    if (!object_) {
      nb::object found = nb::module_::import_(module_).attr(attribute_);
      if (!object_) object_ = new nb::object(std::move(found));  // another thread may have been faster
    }
    return *object_;
  }

 private:
  const char* module_;
  const char* attribute_;
  nb::object* object_ = nullptr;
};

}  // namespace jitgemm::python
