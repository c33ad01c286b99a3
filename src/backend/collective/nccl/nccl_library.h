// NcclLibrary: the functions of an NCCL library that was found at run time.
//
// Nothing links NCCL or includes its header, so that a machine without it runs the same build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/collective/collective.h"
#include "base/status.h"
#include "base/types.h"

namespace bs::backend::collective {

// An error of NCCL is a kUnavailable Status with the library's own text.
//
// Thread-safe, but for the calls of a communicator.
class NcclLibrary {
 public:
  using Communicator = void*;
  using Stream = void*;

  static constexpr size_t kIdBytes = 128;
  // The first version whose calls do not block, so that an abort reaches them.
  static constexpr int kOldest = 21400;

  // Loads the library that this process has, PyTorch's own say, else a file of `folders`, else of
  // the system.  kUnavailable: there is none, or it is broken or too old; the text says where it
  // was looked for and how to install it.
  static Result<std::unique_ptr<NcclLibrary>> Load(std::span<const std::string> folders);
  // Returns the folder in which NVIDIA's packages of pip have it, if this package is beside them.
  static std::vector<std::string> FoldersBeside();
  // Returns "2.21.5" for 22105.
  static std::string TextOf(int version);

  // The file that was loaded.
  const std::string& file() const { return file_; }
  int version() const { return version_; }

  // Returns kIdBytes by which the ranks of a communicator find each other.
  Result<std::string> NewId() const;
  // Begins to connect this rank with the others, on the GPU that the thread uses.
  // REQUIRES, here and below: IsAtRest after each call, before the next one.
  Result<Communicator> Connect(const std::string& id, int rank, int size) const;
  // False: the latest call on the communicator goes on.  An error may be that of another rank.
  Result<bool> IsAtRest(Communicator communicator) const;
  struct Array {
    const void* in;
    void* out;
    size_t count;
    PieceKind kind;
    int root;
  };
  // Puts the work of `arrays` on `stream`, as one operation.
  Status Put(Communicator communicator, std::span<const Array> arrays, DType dtype,
             Stream stream) const;
  // Ends what is under way, and the communicator, which else stays until the process ends.
  void Abort(Communicator communicator) const;

 private:
  struct Id {
    char bytes[kIdBytes];
  };
  struct Config;
  // Pointers to functions of nccl.h; each returns 0 if it succeeds.
  struct Functions {
    int (*get_version)(int*);
    int (*get_unique_id)(Id*);
    int (*init_rank_config)(Communicator*, int, Id, int, Config*);
    int (*all_reduce)(const void*, void*, size_t, int, int, Communicator, Stream);
    int (*reduce)(const void*, void*, size_t, int, int, int, Communicator, Stream);
    int (*broadcast)(const void*, void*, size_t, int, int, Communicator, Stream);
    int (*group_start)();
    int (*group_end)();
    int (*get_async_error)(Communicator, int*);
    int (*abort)(Communicator);
    const char* (*get_error_string)(int);
    const char* (*get_last_error)(Communicator);  // may be null
  };

  NcclLibrary(std::string file, const Functions& functions, int version)
      : file_(std::move(file)), nccl_(functions), version_(version) {}
  // Fills the table.  Returns the name of a function that `library` lacks; null: it has all.
  static const char* Bind(void* library, Functions* functions);
  static Result<std::unique_ptr<NcclLibrary>> Open(void* library, const std::string& name);
  Status PutArray(Communicator communicator, const Array& array, int type, Stream stream) const;
  // Ok too if the call goes on.
  Status Check(const char* function, int result, Communicator communicator) const;

  const std::string file_;
  const Functions nccl_;
  const int version_;
};

}  // namespace bs::backend::collective
