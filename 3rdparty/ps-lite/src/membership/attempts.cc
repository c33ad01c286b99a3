// Tells a peer that fell silent from a peer that no connection has ever reached.
#include "membership/attempts.h"

#include <algorithm>

#include "wire/control.h"

namespace ps {

bool Attempts::Reached(int32_t peer) const {
  const auto it = all_.find(peer);
  return it != all_.end() && it->second.reached;
}

std::string Attempts::Latest(int32_t peer) const {
  const auto it = all_.find(peer);
  return it == all_.end() ? "" : it->second.latest;
}

std::string Attempts::WhyLost(int32_t peer, const Address& address,
                              const std::string& otherwise) const {
  if (Reached(peer)) return otherwise;
  const std::string where = TextOf(address);
  std::string latest = Latest(peer);
  if (latest.starts_with(where)) {
    latest.erase(0, std::min(latest.find_first_not_of(": ", where.size()), latest.size()));
  }
  return "no connection to " + where + (latest.empty() ? "" : " (" + latest + ")") +
         "; set DMLC_NODE_HOST on that host to its address that the others reach";
}

}  // namespace ps
