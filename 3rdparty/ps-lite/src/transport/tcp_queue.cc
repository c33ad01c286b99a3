// Asks the kernel about its queues.  Apart from tcp_socket.cc, because <linux/tcp.h>, which names
// the newer fields of tcp_info, excludes the C library's <netinet/tcp.h>.
#include "transport/tcp_queue.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace ps {

uint64_t HeldBytes(int fd) {
  int size_bytes = 0;
  const bool asked = ::ioctl(fd, SIOCOUTQ, &size_bytes) == 0;
  return asked && size_bytes > 0 ? static_cast<uint64_t>(size_bytes) : 0;
}

bs::Duration LeastRoundTrip(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  // All bits are set until the kernel has measured a round trip.
  if (info.tcpi_min_rtt == ~__u32{0}) return {};
  return std::chrono::microseconds(info.tcpi_min_rtt);
}

}  // namespace ps
