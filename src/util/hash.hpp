#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace jitgemm {

/// XXH3-128 as 32 hex digits.
std::string digest_of(std::string_view bytes);

/// The same of bytes that come in pieces.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  void add(std::string_view bytes);
  std::string digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace jitgemm
