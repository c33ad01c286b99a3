// Looks for the library beside the launcher, then where the system's loader looks.
#include "backend/collective/mpi/mpi_file.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>

namespace bs::backend::collective {
namespace {

// A process has a few above it: the launcher's daemon, a shell, bslaunch.
constexpr int kMostAbove = 16;

int FlagsFor(const MpiAbi& abi) {
  return RTLD_NOW | RTLD_NODELETE | (abi.global_symbols ? RTLD_GLOBAL : RTLD_LOCAL);
}

std::string PathOf(void* library, const std::string& name) {
  ::link_map* map = nullptr;
  if (::dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0 || map == nullptr)
    return name;
  return *map->l_name != '\0' ? map->l_name : name;
}

// Calls `visit` with each ABI and name, until it returns a value.
template <typename F>
std::optional<Result<FoundMpi>> ForEachName(const MpiLauncher& launcher, F visit) {
  for (const MpiAbi& abi : launcher.abis) {
    for (const std::string_view library : abi.libraries) {
      if (library.empty()) break;
      std::optional<Result<FoundMpi>> found = visit(abi, std::string(library));
      if (found) return found;
    }
  }
  return std::nullopt;
}

// Loads `name`, a path or a name for the system's loader.  Nothing: there is no such file.
std::optional<Result<FoundMpi>> Load(const MpiAbi& abi, const std::string& name, int flags) {
  void* library = ::dlopen(name.c_str(), flags);
  if (library != nullptr) {
    FoundMpi found{.abi = &abi, .file = MpiFile(library, PathOf(library, name))};
    if (abi.foreign_symbol == nullptr || found.file.Find(abi.foreign_symbol) == nullptr) {
      return found;
    }
    return Status::Unavailable(found.file.name() + " has " + abi.foreign_symbol +
                               ", so it is no library of " + std::string(abi.name));
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc has a text for each thread.
  const char* error = (flags & RTLD_NOLOAD) != 0 ? nullptr : ::dlerror();
  if (error == nullptr || std::string_view(error).starts_with(name + ": cannot open shared")) {
    return std::nullopt;
  }
  return Status::Unavailable("the MPI library cannot be loaded: " + std::string(error));
}

Status NotThere(const MpiLauncher& launcher, std::span<const std::string> folders) {
  std::string names;
  ForEachName(launcher, [&](const MpiAbi&, const std::string& name) {
    names += (names.empty() ? "" : ", ") + name;
    return std::optional<Result<FoundMpi>>();
  });
  std::string text = std::string(launcher.name) + " started this process, and its MPI library (" +
                     names + ") is neither ";
  text += folders.empty() ? "in LD_LIBRARY_PATH "
                          : "in " + folders.front() + " nor in LD_LIBRARY_PATH ";
  return Status::Unavailable(text + "nor among the system's libraries: run " +
                             std::string(launcher.packages) +
                             ", or add its folder to LD_LIBRARY_PATH");
}

std::string ProcFile(pid_t process, const char* name) {
  return "/proc/" + std::to_string(process) + "/" + name;
}

// Returns the parent of a process; 0 if there is none, or it cannot be read.
pid_t ParentOf(pid_t process) {
  std::ifstream stat(ProcFile(process, "stat"));
  std::stringstream text;
  text << stat.rdbuf();
  // The program's name stands in parentheses and may hold any character.
  const std::string line = text.str();
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return 0;
  std::istringstream rest(line.substr(end + 1));
  char state = 0;
  pid_t parent = 0;
  rest >> state >> parent;
  return rest ? parent : 0;
}

}  // namespace

void* MpiFile::Find(const char* symbol) const { return ::dlsym(library_, symbol); }

Result<FoundMpi> FindMpi(const MpiLauncher& launcher, std::span<const std::string> folders) {
  // Code of this process, such as mpi4py, may have loaded it.
  std::optional<Result<FoundMpi>> found =
      ForEachName(launcher, [](const MpiAbi& abi, const std::string& name) {
        return Load(abi, name, FlagsFor(abi) | RTLD_NOLOAD);
      });
  if (found) return *std::move(found);
  for (const std::string& folder : folders) {
    found = ForEachName(launcher, [&](const MpiAbi& abi, const std::string& name) {
      return Load(abi, std::filesystem::path(folder) / name, FlagsFor(abi));
    });
    if (found) return *std::move(found);
  }
  found = ForEachName(launcher, [](const MpiAbi& abi, const std::string& name) {
    return Load(abi, name, FlagsFor(abi));
  });
  if (found) return *std::move(found);
  return NotThere(launcher, folders);
}

std::vector<std::string> FoldersOfLaunchers() {
  std::vector<std::string> folders;
  pid_t process = ::getppid();
  for (int i = 0; i < kMostAbove && process > 1; ++i, process = ParentOf(process)) {
    std::error_code error;
    const std::filesystem::path program =
        std::filesystem::read_symlink(ProcFile(process, "exe"), error);
    if (error) continue;
    const std::string folder = (program.parent_path().parent_path() / "lib").string();
    if (std::find(folders.begin(), folders.end(), folder) == folders.end()) {
      folders.push_back(folder);
    }
  }
  return folders;
}

}  // namespace bs::backend::collective
