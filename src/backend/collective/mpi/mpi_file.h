// MpiFile: finds the file of an MPI library, and symbols in it.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/collective/mpi/mpi_abi.h"
#include "backend/collective/mpi/mpi_launcher.h"
#include "base/status.h"

namespace bs::backend::collective {

// A loaded library, which stays until the process ends: MPI has threads and callbacks of its own.
class MpiFile {
 public:
  MpiFile(void* library, std::string name) : library_(library), name_(std::move(name)) {}

  // Its path; where the system does not say it, the name by which it was found.
  const std::string& name() const { return name_; }
  // Returns null if there is no such symbol.
  void* Find(const char* symbol) const;

 private:
  void* library_;
  std::string name_;
};

struct FoundMpi {
  const MpiAbi* abi;
  MpiFile file;
};

// Finds and loads a library of `launcher`, as LoadMpi describes.
Result<FoundMpi> FindMpi(const MpiLauncher& launcher, std::span<const std::string> folders);

// Returns the folders of libraries beside the programs that have started this process, the nearest
// program first.
std::vector<std::string> FoldersOfLaunchers();

}  // namespace bs::backend::collective
