// Counts what a process copies: a library for LD_PRELOAD that stands before memcpy and memmove.
//
// Each process adds what calls of at least 1 KiB copy to a file of its own, named by its number, in
// the folder BENCH_COPIES: 8 bytes that anybody may read at any time, as copies.py does.  Copies
// for which a compiler calls nobody are not seen, nor are loops that read, compute and write, as
// sums do.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr size_t kLeastBytes = 1024;

using Count = std::atomic<uint64_t>;
using CopyFunction = void* (*)(void*, const void*, size_t);

// Belongs to the process `owner`; a forked one has to have its own.
std::atomic<Count*> count = nullptr;
std::atomic<pid_t> owner = 0;
std::atomic<CopyFunction> real_memcpy = nullptr;
std::atomic<CopyFunction> real_memmove = nullptr;

// Nothing here may copy with the functions that it stands for.
Count* Open() {
  const char* const folder = std::getenv("BENCH_COPIES");
  if (folder == nullptr) return nullptr;
  char path[256];
  std::snprintf(path, sizeof(path), "%s/%d", folder, static_cast<int>(::getpid()));
  const int file = ::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, sizeof(Count)) != 0) return nullptr;
  void* const at = ::mmap(nullptr, sizeof(Count), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  return at == MAP_FAILED ? nullptr : static_cast<Count*>(at);
}

__attribute__((constructor)) void Begin() {
  owner = ::getpid();
  count = Open();
}

void Add(size_t bytes) {
  if (bytes < kLeastBytes) return;
  if (owner.load() != ::getpid()) Begin();
  Count* const mine = count.load();
  if (mine != nullptr) mine->fetch_add(bytes, std::memory_order_relaxed);
}

CopyFunction Real(std::atomic<CopyFunction>* known, const char* name) {
  CopyFunction function = known->load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = reinterpret_cast<CopyFunction>(::dlsym(RTLD_NEXT, name));
    known->store(function, std::memory_order_relaxed);
  }
  return function;
}

}  // namespace

extern "C" {

void* memcpy(void* target, const void* source, size_t bytes) {
  Add(bytes);
  return Real(&real_memcpy, "memcpy")(target, source, bytes);
}

void* memmove(void* target, const void* source, size_t bytes) {
  Add(bytes);
  return Real(&real_memmove, "memmove")(target, source, bytes);
}

void* __memcpy_chk(void* target, const void* source, size_t bytes, size_t room) {
  return bytes <= room ? memcpy(target, source, bytes) : (std::abort(), nullptr);
}

void* __memmove_chk(void* target, const void* source, size_t bytes, size_t room) {
  return bytes <= room ? memmove(target, source, bytes) : (std::abort(), nullptr);
}
}
