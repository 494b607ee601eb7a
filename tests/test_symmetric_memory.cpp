// Memory that all ranks of a node reach: who has it open when it is freed, and what becomes of the others where one
// rank has none. The devices keep books, and have no kernels.
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "errors.hpp"
#include "fake_backend.hpp"
#include "parallel/symmetric_memory.hpp"
#include "ranks.hpp"

using namespace jitgemm;
using namespace jitgemm::test;

namespace {

constexpr int ranks = 3;

/// What the devices of a node have open of each other's.
struct Books {
  std::mutex mutex;
  std::map<void*, int> open;  // by how many others
  int freed_open = 0;
};

class PeerBackend final : public FakeBackend {
 public:
  PeerBackend(Books& books, int rank) : FakeBackend(Behaviour{}), books_(books), rank_(rank) {}

  void* allocate(std::size_t bytes) override {
    if (has_no_host_memory) throw std::bad_alloc();
    return FakeBackend::allocate(bytes);
  }
  void release(void* memory) noexcept override {
    {
      const std::lock_guard lock(books_.mutex);
      books_.freed_open += books_.open[memory] > 0;
    }
    log += "release ";
    FakeBackend::release(memory);
  }
  PeerHandle handle_of(void* memory) override {
    PeerHandle handle;
    std::memcpy(handle.bytes.data(), &memory, sizeof memory);
    return handle;
  }
  void* open_peer(const PeerHandle& handle) override {
    if (reaches_no_other) throw Error(ErrorCode::launch_failed, "the wires are cut");
    void* memory = nullptr;
    std::memcpy(&memory, handle.bytes.data(), sizeof memory);
    const std::lock_guard lock(books_.mutex);
    ++books_.open[memory];
    return memory;
  }
  void close_peer(void* memory) noexcept override {
    std::this_thread::sleep_for(std::chrono::milliseconds(10 * rank_));
    const std::lock_guard lock(books_.mutex);
    --books_.open[memory];
    log += "close ";
  }

  bool has_no_host_memory = false, reaches_no_other = false;
  std::string log;

 private:
  Books& books_;
  const int rank_;
};

/// What comes of making memory on all ranks.
struct Node {
  Node() {
    for (int rank = 0; rank < ranks; ++rank) backends.push_back(std::make_unique<PeerBackend>(books, rank));
  }
  void make() {
    exchange.run([this](int rank) {
      const auto i = std::size_t(rank);
      errors[i] = error_if_any([&] { memory[i].emplace(*backends[i], rank, ranks, exchange.all_gather(rank), 256); });
    });
  }
  int alive() const {
    int all = 0;
    for (const auto& backend : backends) all += backend->alive();
    return all;
  }

  Books books;
  Ranks exchange{ranks};
  std::vector<std::unique_ptr<PeerBackend>> backends;
  std::optional<SymmetricMemory> memory[ranks];
  std::optional<Error> errors[ranks];
};

}  // namespace

TEST_CASE("What is freed together no rank has open any more", "[parallel][symmetric_memory]") {
  Node node;
  node.make();
  for (const auto& error : node.errors) REQUIRE_FALSE(error);
  CHECK(node.alive() == ranks);
  node.exchange.run([&](int rank) { node.memory[rank]->free_together(node.exchange.all_gather(rank)); });
  CHECK(node.alive() == 0);
  CHECK(node.books.freed_open == 0);
}

TEST_CASE("A rank that ends alone closes the others' memory before it frees its own", "[parallel][symmetric_memory]") {
  Node node;
  node.make();
  for (auto& memory : node.memory) memory.reset();
  CHECK(node.alive() == 0);
  for (const auto& backend : node.backends) CHECK(backend->log == "close close release ");
}

TEST_CASE("A rank without memory fails all ranks, which have met as often", "[parallel][symmetric_memory]") {
  Node node;
  node.backends[1]->has_no_host_memory = true;
  node.make();
  for (const auto& error : node.errors) {
    REQUIRE(error);
    CHECK(error->code() == ErrorCode::out_of_memory);
  }
  CHECK(node.alive() == 0);
}

TEST_CASE("Where a rank reaches no other, memory is freed when none has it open", "[parallel][symmetric_memory]") {
  Node node;
  node.backends[1]->reaches_no_other = true;
  node.make();
  for (const auto& error : node.errors) {
    REQUIRE(error);
    CHECK(error->code() == ErrorCode::launch_failed);
  }
  CHECK(node.alive() == 0);
  CHECK(node.books.freed_open == 0);
}
