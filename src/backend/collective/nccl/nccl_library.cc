// Looks for the library, and calls it by the types and numbers of its ABI.
#include "backend/collective/nccl/nccl_library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <filesystem>
#include <type_traits>
#include <utility>

namespace bs::backend::collective {
namespace {

constexpr const char* kFile = "libnccl.so.2";

// Numbers of nccl.h.
constexpr int kSum = 0;
constexpr int kInProgress = 7;
constexpr int kInvalidArgument = 4;
constexpr unsigned int kMagic = 0xcafebeef;

int TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 6;
    case DType::kFloat64:
      return 8;
    case DType::kBfloat16:
      return 9;
    default:
      return 7;
  }
}

std::string PathOf(void* library, const std::string& name) {
  ::link_map* map = nullptr;
  if (::dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0 || map == nullptr)
    return name;
  return *map->l_name != '\0' ? map->l_name : name;
}

Status Unusable(const std::string& why) {
  return Status::Unavailable("NCCL cannot be used: " + why);
}

Status NotThere(std::span<const std::string> folders) {
  std::string places = "this process has not loaded it";
  for (const std::string& folder : folders) places += ", " + folder + " lacks it";
  return Unusable(places + ", and so do the system's folders and LD_LIBRARY_PATH (" + kFile +
                  "): install a PyTorch with CUDA, or run pip install nvidia-nccl-cu12 or "
                  "nvidia-nccl-cu13, whichever CUDA the driver has");
}

}  // namespace

// The first part of ncclConfig_t, which every later version knows too.
struct NcclLibrary::Config {
  size_t size_bytes = sizeof(Config);
  unsigned int magic = kMagic;
  unsigned int version = kOldest;
  int blocking = 0;
  int unset = INT_MIN;  // a later field begins here
};

const char* NcclLibrary::Bind(void* library, Functions* functions) {
  const char* missing = nullptr;
  const auto find = [&](auto* function, const char* name) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(::dlsym(library, name));
    if (*function == nullptr && missing == nullptr) missing = name;
  };
  find(&functions->get_last_error, "ncclGetLastError");
  missing = nullptr;
  find(&functions->get_version, "ncclGetVersion");
  find(&functions->get_unique_id, "ncclGetUniqueId");
  find(&functions->init_rank_config, "ncclCommInitRankConfig");
  find(&functions->all_reduce, "ncclAllReduce");
  find(&functions->reduce, "ncclReduce");
  find(&functions->broadcast, "ncclBroadcast");
  find(&functions->group_start, "ncclGroupStart");
  find(&functions->group_end, "ncclGroupEnd");
  find(&functions->get_async_error, "ncclCommGetAsyncError");
  find(&functions->abort, "ncclCommAbort");
  find(&functions->get_error_string, "ncclGetErrorString");
  return missing;
}

Result<std::unique_ptr<NcclLibrary>> NcclLibrary::Open(void* library, const std::string& name) {
  const std::string path = PathOf(library, name);
  Functions functions{};
  const char* const missing = Bind(library, &functions);
  int version = 0;
  if (functions.get_version == nullptr || functions.get_version(&version) != 0) {
    return Unusable(path + " does not tell its version (ncclGetVersion)");
  }
  const std::string oldest = "version " + TextOf(kOldest) + " or newer is needed: pip install -U ";
  if (version < kOldest) {
    return Unusable(path + " is NCCL " + TextOf(version) + ", and " + oldest +
                    "torch, or nvidia-nccl-cu12");
  }
  if (missing != nullptr) return Unusable(path + " lacks " + missing);
  return std::unique_ptr<NcclLibrary>(new NcclLibrary(path, functions, version));
}

Result<std::unique_ptr<NcclLibrary>> NcclLibrary::Load(std::span<const std::string> folders) {
  // It has threads of its own, so it stays.
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  if (void* const loaded = ::dlopen(kFile, kFlags | RTLD_NOLOAD); loaded != nullptr) {
    return Open(loaded, kFile);
  }
  std::vector<std::string> names;
  for (const std::string& folder : folders) names.push_back(folder + "/" + kFile);
  names.emplace_back(kFile);
  for (const std::string& name : names) {
    if (void* const library = ::dlopen(name.c_str(), kFlags); library != nullptr) {
      return Open(library, name);
    }
    // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc has a text for each thread.
    const std::string error = ::dlerror();
    if (!error.starts_with(name + ": cannot open shared")) return Unusable(error);
  }
  return NotThere(folders);
}

std::vector<std::string> NcclLibrary::FoldersBeside() {
  ::Dl_info here{};
  if (::dladdr(reinterpret_cast<const void*>(&NcclLibrary::FoldersBeside), &here) == 0) return {};
  std::error_code error;
  const std::filesystem::path file = std::filesystem::weakly_canonical(here.dli_fname, error);
  if (error) return {};
  // <site-packages>/bytescheduler/_core.so
  return {(file.parent_path().parent_path() / "nvidia" / "nccl" / "lib").string()};
}

std::string NcclLibrary::TextOf(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

Status NcclLibrary::Check(const char* function, int result, Communicator communicator) const {
  if (result == 0 || result == kInProgress) return Status::Ok();
  std::string text = std::string(function) + ": " + nccl_.get_error_string(result);
  const char* const more =
      nccl_.get_last_error != nullptr ? nccl_.get_last_error(communicator) : nullptr;
  std::string last = more != nullptr ? more : "";
  std::ranges::replace(last, '\n', ' ');
  while (!last.empty() && last.back() == ' ') last.pop_back();
  if (!last.empty()) text += " (" + last + ")";
  return Status::Unavailable(text);
}

Result<std::string> NcclLibrary::NewId() const {
  Id id{};
  const Status status = Check("ncclGetUniqueId", nccl_.get_unique_id(&id), nullptr);
  if (!status.ok()) return status;
  return std::string(static_cast<const char*>(id.bytes), kIdBytes);
}

Result<NcclLibrary::Communicator> NcclLibrary::Connect(const std::string& id, int rank,
                                                       int size) const {
  Id unique{};
  std::memcpy(static_cast<char*>(unique.bytes), id.data(), std::min(id.size(), kIdBytes));
  Config config;
  Communicator communicator = nullptr;
  int result = nccl_.init_rank_config(&communicator, size, unique, rank, &config);
  if (result == 0 && communicator == nullptr) result = kInvalidArgument;
  const Status status = Check("ncclCommInitRankConfig", result, nullptr);
  if (!status.ok()) return status;
  return communicator;
}

Result<bool> NcclLibrary::IsAtRest(Communicator communicator) const {
  int state = 0;
  Status status =
      Check("ncclCommGetAsyncError", nccl_.get_async_error(communicator, &state), communicator);
  if (status.ok()) status = Check("NCCL failed", state, communicator);
  if (!status.ok()) return status;
  return state != kInProgress;
}

Status NcclLibrary::PutArray(Communicator communicator, const Array& array, int type,
                             Stream stream) const {
  const auto& [in, out, count, kind, root] = array;
  switch (kind) {
    case PieceKind::kReduce:
      return Check("ncclReduce",
                   nccl_.reduce(in, out, count, type, kSum, root, communicator, stream),
                   communicator);
    case PieceKind::kBroadcast:
      return Check("ncclBroadcast",
                   nccl_.broadcast(in, out, count, type, root, communicator, stream), communicator);
    case PieceKind::kAllReduce:
      break;
  }
  return Check("ncclAllReduce", nccl_.all_reduce(in, out, count, type, kSum, communicator, stream),
               communicator);
}

Status NcclLibrary::Put(Communicator communicator, std::span<const Array> arrays, DType dtype,
                        Stream stream) const {
  Status status = Check("ncclGroupStart", nccl_.group_start(), communicator);
  if (!status.ok()) return status;
  for (const Array& array : arrays) {
    if (!status.ok()) break;
    status = PutArray(communicator, array, TypeOf(dtype), stream);
  }
  const Status ended = Check("ncclGroupEnd", nccl_.group_end(), communicator);
  return status.ok() ? ended : status;
}

void NcclLibrary::Abort(Communicator communicator) const { nccl_.abort(communicator); }

}  // namespace bs::backend::collective
