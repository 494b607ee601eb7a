#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace jitgemm {

/// A JSON value that is made and unmade where there is no memory left, too.
///
/// nlohmann's destructor takes memory to flatten a value that others are nested in; where there is none, the process
/// ends. So no such value is ever destroyed here: read into a document, or build in its root() member by member,
/// never by a list in braces, and copy only what holds no others.
class JsonDocument {
 public:
  using Json = nlohmann::json;

  JsonDocument() = default;
  /// Throws std::exception for what is no JSON, or nests deeper than any of the library's files.
  explicit JsonDocument(std::string_view text) : JsonDocument() {
    Builder builder(root_);
    Json::sax_parse(text, &builder);
  }
  ~JsonDocument() { dismantle(root_); }
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;

  Json& root() { return root_; }
  const Json& root() const { return root_; }
  /// One line. What is not UTF-8 is replaced.
  std::string text() const { return text_of(root_); }
  static std::string text_of(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

 private:
  static constexpr std::size_t most_depth = 16;

  /// From the inside out: what is empty is destroyed without memory.
  static void dismantle(Json& value) noexcept {
    if (auto* const object = value.get_ptr<Json::object_t*>()) {
      for (auto& [name, child] : *object) dismantle(child);
      object->clear();
    } else if (auto* const array = value.get_ptr<Json::array_t*>()) {
      for (Json& child : *array) dismantle(child);
      array->clear();
    } else if (value.is_structured()) {
      std::construct_at(&value);  // nlohmann's operator[] began to make it one, and there was no memory
    }
  }

  class Builder final : public nlohmann::json_sax<Json> {
   public:
    explicit Builder(Json& root) : root_(root) {}
    bool null() override { return add(nullptr); }
    bool boolean(bool value) override { return add(value); }
    bool number_integer(std::int64_t value) override { return add(value); }
    bool number_unsigned(std::uint64_t value) override { return add(value); }
    bool number_float(double value, const std::string&) override { return add(value); }
    bool string(std::string& value) override { return add(std::move(value)); }
    bool binary(binary_t&) override { return false; }
    bool key(std::string& value) override { return key_ = std::move(value), true; }
    bool start_object(std::size_t) override { return open(Json::value_t::object); }
    bool start_array(std::size_t) override { return open(Json::value_t::array); }
    bool end_object() override { return --depth_, true; }
    bool end_array() override { return --depth_, true; }
    bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
      throw std::invalid_argument(error.what());
    }

   private:
    /// A place for a value in what is open.
    Json& place() {
      if (depth_ == 0) return root_;
      Json& parent = *open_[depth_ - 1];
      if (parent.is_array()) return parent.emplace_back();
      Json& member = parent[key_];
      dismantle(member);  // the last of two of a name counts
      return member;
    }
    bool add(Json value) { return place() = std::move(value), true; }
    bool open(Json::value_t type) {
      if (depth_ == most_depth) throw std::invalid_argument("nests too deeply");
      Json& made = place() = Json(type);
      open_[depth_++] = &made;
      return true;
    }

    Json& root_;
    Json* open_[most_depth] = {};  // stays where it is while its own members are added
    std::size_t depth_ = 0;
    std::string key_;
  };

  Json root_;
};

}  // namespace jitgemm
