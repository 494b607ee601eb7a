#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "c/errors.hpp"

namespace jitgemm::c {

/// A struct that begins with its size: `name`, `sizes`, the bytes that it had in each version, oldest first, and
/// `defaults()`. Who adds a field at its end adds a number to `sizes`.
template <typename T>
struct Versioned;
#define JITGEMM_VERSIONED(Struct, from_default, ...)                         \
  template <>                                                                \
  struct Versioned<Struct> {                                                 \
    static constexpr const char* name = #Struct;                             \
    static constexpr auto sizes = std::to_array<std::size_t>({__VA_ARGS__}); \
    static Struct defaults() { return from_default; }                        \
  };

/// Bytes of a struct, by its program's version, that this library knows. Fails for sizes that no version has, or could
/// have: of what comes later is known that it is larger, yet no book.
std::size_t known_bytes(std::size_t size, std::span<const std::size_t> sizes, const char* name);
/// Fails if an older program's struct, of `known` bytes, would lose what is not as by default.
void check_kept(const void* value, const void* defaults, std::size_t known, std::size_t size, const char* name);
/// Fails if a newer program has set what this library does not know.
void check_unknown(const void* given, std::size_t size, std::span<const std::size_t> sizes, const char* name);

template <typename T>
constexpr bool is_current() {
  return Versioned<T>::sizes.back() == sizeof(T) && sizeof(T) % sizeof(std::size_t) == 0;
}

/// Fills in a struct that the caller says has so many bytes.
template <typename T>
void init(T* to, std::size_t size) {
  static_assert(is_current<T>(), "the struct has another size: add that to its sizes");
  given(to, Versioned<T>::name);
  const std::size_t known = known_bytes(size, Versioned<T>::sizes, Versioned<T>::name);
  T value = Versioned<T>::defaults();
  value.size = size;
  std::memset(static_cast<void*>(to), 0, size);
  std::memcpy(static_cast<void*>(to), &value, known);
}

/// What a program of any version gives, as this version has it: what an older one lacks has its default.
template <typename T>
T read(const T* from) {
  static_assert(is_current<T>());
  const std::size_t size = given(from, Versioned<T>::name).size;
  const std::size_t known = known_bytes(size, Versioned<T>::sizes, Versioned<T>::name);
  if (size > known) check_unknown(from, size, Versioned<T>::sizes, Versioned<T>::name);
  if (known == sizeof(T)) return *from;
  T value = Versioned<T>::defaults();
  std::memcpy(static_cast<void*>(&value), from, known);
  return value;
}

/// Where a result goes, looked at before there is one. nullptr: nowhere.
template <typename T>
class Out {
 public:
  explicit Out(T* to) : to_(to) {
    static_assert(is_current<T>());
    if (to) known_ = known_bytes(to->size, Versioned<T>::sizes, Versioned<T>::name);
  }
  void put(T value) const {
    if (!to_) return;
    value.size = to_->size;
    std::memcpy(static_cast<void*>(to_), &value, known_);
    std::memset(reinterpret_cast<char*>(to_) + known_, 0, value.size - known_);
  }
  /// Of what the program gives back later: refused, with nothing written, where an older one's struct cannot hold it.
  void put_whole(const T& value) const {
    const T defaults = Versioned<T>::defaults();
    if (to_) check_kept(&value, &defaults, known_, sizeof(T), Versioned<T>::name);
    put(value);
  }

 private:
  T* to_;
  std::size_t known_ = 0;
};
template <typename T>
Out<T> required(T* to) {
  return Out<T>(&given(to, Versioned<T>::name));
}

}  // namespace jitgemm::c
