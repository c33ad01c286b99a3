// Views of jobs whose hosts are not known.
#include "job/view.h"

#include <utility>

#include "base/check.h"

namespace bs::job {

View MakeView(Place own, int32_t num_workers, int32_t num_servers) {
  BS_CHECK(num_workers >= 0 && num_servers >= 0);
  View view;
  view.own = own;
  const auto add = [&view](std::vector<Peer>* peers) {
    peers->push_back({.host = static_cast<int32_t>(view.hosts.size())});
    view.hosts.emplace_back();
  };
  for (int32_t rank = 0; rank < num_workers; ++rank) add(&view.workers);
  for (int32_t rank = 0; rank < num_servers; ++rank) add(&view.servers);
  return view;
}

SharedView ShareView(Place own, int32_t num_workers, int32_t num_servers) {
  return std::make_shared<const View>(MakeView(own, num_workers, num_servers));
}

}  // namespace bs::job
