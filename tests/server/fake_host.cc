// A process that hosts a server, for tests.
#include "server/fake_host.h"

#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <utility>

namespace bs::server {

ServerUpdater FakeHost::Updater() {
  return {.executor = &executor_,
          .set_optimizer =
              [this](std::string_view pickle) {
                EXPECT_TRUE(executor_.IsCurrent());
                calls.push_back("set " + std::string(pickle));
                return pickle == "bad" ? Status::Internal("no such class") : Status::Ok();
              },
          .update = [this](const ServerUpdate& update) { return Update(update); }};
}

Status FakeHost::Update(const ServerUpdate& update) {
  EXPECT_TRUE(executor_.IsCurrent());
  calls.push_back("update " + std::to_string(update.key));
  abouts.emplace_back(update.about);
  if (throws) throw std::bad_alloc();
  gradient = ToFloats(update.gradient);
  rates = update.rates;
  dtype = update.dtype;
  // Also where it fails: then nobody may see them.
  std::vector<float> weights = ToFloats(update.weights);
  for (size_t i = 0; i < gradient.size(); ++i) weights[i] += gradient[i];
  if (!weights.empty()) {
    std::memcpy(update.weights.data(), weights.data(), update.weights.size());
  }
  return fails.empty() ? Status::Ok() : Status::InvalidArgument(std::exchange(fails, ""));
}

}  // namespace bs::server
