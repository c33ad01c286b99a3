// Reads the secret and refuses files that cannot keep it.
#include "config/secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/descriptors.h"
#include "transport/zmq/zmq_curve.h"

namespace bs::config {
namespace {

constexpr size_t kMaxFileBytes = size_t{64} << 10U;

Status Wrong(const std::string& path, const std::string& what) {
  return Status::InvalidArgument("BYTESCHEDULER_SECRET_FILE=" + path + ": " + what);
}

Result<std::string> ReadOpened(int fd, const std::string& path) {
  struct stat info{};
  if (fstat(fd, &info) != 0) return Wrong(path, SystemError(errno));
  if (!S_ISREG(info.st_mode)) return Wrong(path, "not a file");
  if ((info.st_mode & (S_IROTH | S_IWOTH)) != 0) {
    return Wrong(path, "every user of this host may read or write it; chmod 600 it");
  }
  std::string text(kMaxFileBytes + 1, '\0');
  const ssize_t size = read(fd, text.data(), text.size());
  if (size < 0) return Wrong(path, SystemError(errno));
  if (static_cast<size_t>(size) > kMaxFileBytes) return Wrong(path, "more than 64 KiB");
  text.resize(static_cast<size_t>(size));
  return text;
}

}  // namespace

Result<std::string> ReadSecret(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Wrong(path, std::string("cannot open it: ") + SystemError(errno));
  Result<std::string> text = ReadOpened(fd, path);
  close(fd);
  if (!text.ok()) return text;
  std::string& secret = text.value();
  secret.erase(secret.find_last_not_of(" \t\r\n") + 1);
  const Status usable = ps::DeriveCurveKeys(secret).status();
  if (!usable.ok()) {
    return Wrong(path, usable.message() + "; make one: head -c 32 /dev/urandom | base64");
  }
  return text;
}

Status LoadSecret(Config* config) {
  if (config->secret_file.empty()) return Status::Ok();
  Result<std::string> secret = ReadSecret(config->secret_file);
  if (secret.ok()) config->secret = std::move(secret.value());
  return secret.status();
}

}  // namespace bs::config
